/* logged_out.h - who has logged out, so that no cookie of before lets in again, also after the gateway was started anew: a session is nothing but what its
 * cookie says, so its end has to be written down. Sessions have no number; those of a name are told by when they would have ended.
 *
 *     gw_logged_out_open("<state-dir>/logged-out.json", &l, &err);
 *     until = gw_logged_out_until(l, "ann", now, 43200);        // of a session that begins now: never one that has been ended
 *     gw_logged_out_note(l, "ann", now, 43200, &err);           // all of hers are over
 *     gw_logged_out_is(l, "ann", until)                         // true
 *
 * Times in seconds since 1970. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_LOGGED_OUT_H
#define PST_PRODUCERS_GATEWAY_LOGGED_OUT_H

#include "common/base/err.h"

typedef struct gw_logged_out gw_logged_out;

/* path NULL: kept in memory alone. A file that is there and cannot be read or is none is refused: it would let in who has logged out. */
int gw_logged_out_open(const char *path, gw_logged_out **ret_list, pst_err *err);
void gw_logged_out_free(gw_logged_out *l); /* NULL-safe */
/* Was a session of name that lasts until until_s begun before its user logged out? */
bool gw_logged_out_is(const gw_logged_out *l, const char *name, int64_t until_s);
/* When a session that begins now ends. */
int64_t gw_logged_out_until(const gw_logged_out *l, const char *name, int64_t now_s, int64_t lasts_s);
/* Ends all sessions of name that were begun so far; on disk when it returns 0. On failure they are ended as long as this process lives. */
int gw_logged_out_note(gw_logged_out *l, const char *name, int64_t now_s, int64_t lasts_s, pst_err *err);

#endif
