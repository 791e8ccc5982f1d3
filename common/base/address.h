/* address.h - numeric addresses, as they stand in reports and lists: 10.0.0.7, fd00::7. @thread any. */
#ifndef PST_BASE_ADDRESS_H
#define PST_BASE_ADDRESS_H

#include <stdbool.h>

bool pst_address_is_numeric(const char *address);  /* of either family, without a zone or a port */
bool pst_address_is_loopback(const char *address); /* 127.0.0.0/8 or ::1: it reaches its own computer only */

#endif
