/* unknown.h - which schema ids the registry says it does not know, and when that is believed. An id may be younger than its first record's arrival here,
 * so "not found" is believed only when it has been said several times over seconds; then for a minute without asking again.
 *
 *     if (!pst_unknown_believed(u, id, now)) { ask; if (not found) believed = pst_unknown_said(u, id, now); else pst_unknown_is_known(u, id); }
 *
 * @thread one owner. */
#ifndef PST_INFERENCE_STATE_UNKNOWN_H
#define PST_INFERENCE_STATE_UNKNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PST_UNKNOWN_TRIES = 3 };

typedef struct pst_unknown pst_unknown;

/* every_us: answers within this time of the last one that counted say nothing new (somebody remembers them). */
pst_unknown *pst_unknown_new(int64_t every_us);
void pst_unknown_free(pst_unknown *u); /* NULL-safe */
bool pst_unknown_believed(pst_unknown *u, int32_t id, int64_t now_us);
/* The registry says so again. True: it is believed from now on. */
bool pst_unknown_said(pst_unknown *u, int32_t id, int64_t now_us);
void pst_unknown_is_known(pst_unknown *u, int32_t id);
size_t pst_unknown_count(const pst_unknown *u); /* ids asked for in vain */

#endif
