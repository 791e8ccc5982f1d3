/* wire_tls.h - TLS over a socket that does not block. OpenSSL is opened when the first client asks for TLS.
 *
 *     wire_tls_ctx_new(conf, &ctx, &err)            certificates are read and checked: what is wrong with them is said at once
 *     t = wire_tls_new(ctx, fd, host, family)       SNI; the certificate must be the host's (RFC 6125), an address the certificate's address
 *     wire_tls_hands(t), _read, _write              bytes, or one of WIRE_IO_…
 *
 * TLS 1.2 at least. @thread one at a time. */
#ifndef PST_WIRE_TLS_H
#define PST_WIRE_TLS_H

#include "common/bus/wire/wire_conf.h"

#include <sys/types.h>

enum {
    WIRE_IO_END = 0,
    WIRE_IO_READ = -1,
    WIRE_IO_WRITE = -2,
    WIRE_IO_FAULT = -3
}; /* ended; wait until readable, writable; wire_tls_why() */

typedef struct wire_tls_ctx wire_tls_ctx;
typedef struct wire_tls wire_tls;

int wire_tls_ctx_new(const wire_conf *conf, wire_tls_ctx **ret, pst_err *err);
void wire_tls_ctx_free(wire_tls_ctx *ctx);                           /* NULL-safe */
wire_tls *wire_tls_new(wire_tls_ctx *ctx, int fd, const char *host); /* NULL: no memory, or no host that a certificate could be of */
int wire_tls_hands(wire_tls *t);                                     /* 1 = done, else WIRE_IO_… */
ssize_t wire_tls_read(wire_tls *t, void *to, size_t n);
ssize_t wire_tls_write(wire_tls *t, const void *from, size_t n);
const char *wire_tls_why(const wire_tls *t);
const char *wire_tls_what(const wire_tls *t); /* "TLSv1.3 TLS_AES_256_GCM_SHA384" */
void wire_tls_free(wire_tls *t);              /* NULL-safe; says goodbye if that does not wait */

#endif
