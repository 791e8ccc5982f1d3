/* array.h - room for one more at the end of an array that grows: the one place that decides by how much.
 *
 *     l->at = pst_array_room(l->at, l->n, &l->cap, sizeof *l->at);
 *     l->at[l->n++] = item;
 *
 * The size doubles, so that n items cost n moves in sum. Bytes are buf.h's, and the engine, whose memory has owners, has the same in heap.h.
 * What grows otherwise says why where it does: within a budget (data.c, avro_plan_run.c), together with an index (map.c). Without memory both
 * abort, as all of buf.h does. @thread any, one owner. */
#ifndef PST_BASE_ARRAY_H
#define PST_BASE_ARRAY_H

#include <stddef.h>

void *pst_array_room(void *at, size_t n, size_t *cap, size_t size); /* what lies beyond n is not initialised */
/* For short lists that keep no count of their room, among them those of decoded events, which have exactly n: one more, and no further. */
void *pst_array_one_more(void *at, size_t n, size_t size);

#endif
