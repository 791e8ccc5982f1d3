/* multipart.h - a body of type multipart/form-data that is in memory, cut into its parts: what a form, or FfDL's client, uploads. Nothing is copied:
 * a part's data lie in the body.
 *
 *     pst_part parts[4];
 *     size_t n;
 *     if (pst_multipart_parse(pst_http_header(req, "Content-Type"), body, parts, 4, &n, &err) < 0) …
 *     const pst_part *manifest = pst_part_find(parts, n, "manifest");
 *
 * Input is untrusted. Refused are: no boundary or a malformed one, a body that does not end with it, more parts than there is room for, a part
 * without a name or with one that was there already, heads beyond 4 KiB. Sources: RFC 7578, RFC 2046 5.1. @thread any. */
#ifndef PST_LOOP_MULTIPART_H
#define PST_LOOP_MULTIPART_H

#include "common/base/buf.h"
#include "common/base/err.h"

typedef struct pst_part {
    char name[64];
    pst_slice data;
} pst_part;

/* PST_EPARSE, PST_ELIMIT (too many parts), class DATA. */
int pst_multipart_parse(const char *content_type, pst_slice body, pst_part *parts, size_t max, size_t *ret_n, pst_err *err);
const pst_part *pst_part_find(const pst_part *parts, size_t n, const char *name); /* NULL: there is none */

#endif
