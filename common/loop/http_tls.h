/* http_tls.h - TLS under the server's connections. A pair of PEM files, certificate (with its chain) and key, which is taken again within a second after
 * either changed; what cannot be taken is said once, and the pair of before serves on. TLS 1.2 and 1.3, no renegotiation, forward secrecy alone. The process ignores
 * SIGPIPE (stop.h): OpenSSL writes to who has left, too.
 * Sources: RFC 8446, RFC 9325 (what is advised), RFC 7301 (ALPN). @thread loop */
#ifndef PST_LOOP_HTTP_TLS_H
#define PST_LOOP_HTTP_TLS_H

#include "common/base/err.h"
#include "common/loop/loop.h"

#include <event2/util.h>
#include <stdbool.h>

typedef struct http_tls http_tls;
struct bufferevent;

/* Opens OpenSSL and reads the pair. name: for logs. FATAL, with the cure, for files that are none, do not fit, or that others could read (key) or write. */
int http_tls_new(pst_loop *l, const char *name, const char *cert, const char *key, http_tls **ret_tls, pst_err *err);
void http_tls_free(http_tls *t); /* connections keep the pair that they began with; NULL-safe */
/* A connection that is to begin a handshake; fd becomes its own. NULL: no memory. */
struct bufferevent *http_tls_accept(http_tls *t, evutil_socket_t fd);
/* Says that nothing more comes (close_notify), so that the end is known from a cut. */
void http_tls_bye(struct bufferevent *bev);
/* Why a handshake ended, for logs; NULL: by nothing of TLS. */
const char *http_tls_why(struct bufferevent *bev);
/* Is this the first byte of a TLS record with a handshake? */
bool http_tls_is_hello(unsigned char first);

#endif
