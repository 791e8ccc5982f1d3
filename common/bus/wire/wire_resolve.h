/* wire_resolve.h - addresses of a host, asked for on a thread of their own: getaddrinfo() waits for name servers, and whoever turns a net has a group to serve.
 *
 *     wire_resolve *r = wire_resolve_start(host, port, family);   // a numeric address is there at once
 *     poll(wire_resolve_fd(r)) … wire_resolve_take(r, …)          // < 0: not yet
 *     wire_resolve_drop(r)                                        // any time; whoever is last frees it
 *
 * @thread one owner; its helper ends by itself. */
#ifndef PST_WIRE_RESOLVE_H
#define PST_WIRE_RESOLVE_H

#include <stddef.h>
#include <sys/socket.h>

enum { WIRE_ADDRESSES = 16 }; /* more are not tried */

typedef struct wire_address {
    struct sockaddr_storage at;
    socklen_t len;
} wire_address;

typedef struct wire_resolve wire_resolve;

wire_resolve *wire_resolve_start(const char *host, int port, int family); /* AF_UNSPEC, AF_INET, AF_INET6 */
int wire_resolve_fd(const wire_resolve *r);                               /* readable when it is done */
/* -1: not yet; 0: no address, why says so; else how many. */
int wire_resolve_take(wire_resolve *r, wire_address ret[WIRE_ADDRESSES], char *why, size_t size);
void wire_resolve_drop(wire_resolve *r); /* NULL-safe */

#endif
