/* address.c - only what is written as numbers is taken for an address: a name would have to be asked for, and could be another tomorrow. */
#include "common/base/address.h"

#include <arpa/inet.h>
#include <string.h>

bool pst_address_is_numeric(const char *address)
{
    unsigned char raw[16];
    return inet_pton(AF_INET, address, raw) == 1 || inet_pton(AF_INET6, address, raw) == 1;
}

bool pst_address_is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}
