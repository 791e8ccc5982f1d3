/* advertise.h - by which address processes on other nodes reach those on this one. @thread any. */
#ifndef PST_LCM_ADVERTISE_H
#define PST_LCM_ADVERTISE_H

#include "common/base/err.h"

enum { LCM_ADDRESS_MAX = 64 };

/* As given (PST_EINVAL: no address that others could use), or NULL: found on this computer. */
int lcm_advertise(const char *given, char ret_address[LCM_ADDRESS_MAX], pst_err *err);

#endif
