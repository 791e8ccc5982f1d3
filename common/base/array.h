/* array.h - room for one more at the end of an array that grows: the one place that decides by how much.
 *
 *     l->at = pst_array_room(l->at, l->n, &l->cap, sizeof *l->at);
 *     l->at[l->n++] = item;
 *
 * The size doubles, so that n items cost n moves in sum. Without memory it aborts, as all of buf.h does. @thread any, one owner. */
#ifndef PST_BASE_ARRAY_H
#define PST_BASE_ARRAY_H

#include <stddef.h>

void *pst_array_room(void *at, size_t n, size_t *cap, size_t size); /* what lies beyond n is not initialised */

#endif
