/* advertise.h - by which address processes on other nodes reach those on this one. @thread any. */
#ifndef PST_LCM_ADVERTISE_H
#define PST_LCM_ADVERTISE_H

#include "common/base/err.h"

enum { LCM_ADDRESS_MAX = 64, LCM_COMPUTER_MAX = 80 };

/* As given (PST_EINVAL: no address that others could use), or NULL: found on this computer. */
int lcm_advertise(const char *given, char ret_address[LCM_ADDRESS_MAX], pst_err *err);

/* What tells computers apart whose names do not: nodes with the same one share a loopback. "" = this system does not say. */
void lcm_computer(char ret_id[LCM_COMPUTER_MAX]);

#endif
