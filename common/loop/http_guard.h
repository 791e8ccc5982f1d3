/* http_guard.h - which requests are refused whatever they carry: names that are re-bound to this computer, pages of other origins, and bodies
 * of a type that a form can send. Pure rules on texts of a request's head.
 *
 * A browser on this computer reaches every loopback port, so a page of any site can send requests here; it cannot choose Host, Origin or
 * Sec-Fetch-Site. Sources: RFC 6454 (origins), W3C Fetch Metadata, WHATWG Fetch (types that need no preflight).
 * @thread any. */
#ifndef PST_LOOP_HTTP_GUARD_H
#define PST_LOOP_HTTP_GUARD_H

#include "common/loop/http_parse.h"

/* Host must be a literal loopback address (127.0.0.0/8 in four decimal parts, [::1]), `localhost`, one of names (NULL-terminated; NULL = none),
 * or own, the literal address on which this request came in (NULL = none): a literal cannot be re-bound. With or without a port. */
bool http_guard_host(const char *host, const char *const *names, const char *own);
/* May a request of this method, with these header fields, change anything? Safe methods always may; others need an Origin that is Host's own
 * and a Sec-Fetch-Site of `same-origin` or `none`, where they are sent. */
bool http_guard_origin(const http_head *h);
/* Is the Content-Type one of types (NULL-terminated, lower case, without parameters)? A body needs one; without a body none may be given. */
bool http_guard_type(const http_head *h, const char *const *types);

#endif
