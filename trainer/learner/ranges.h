/* ranges.h - lists of ranges of partitions: shared out among ranks, put together again, as JSON. Pure. @thread any */
#ifndef PST_LEARNER_RANGES_H
#define PST_LEARNER_RANGES_H

#include "trainer/learner/data.h"

#include <jansson.h>

#define PST_LEARN_RANGES_MAX 100000

typedef struct learn_ranges {
    learn_data_range *at;
    size_t n;
} learn_ranges;

void learn_ranges_done(learn_ranges *r);
void learn_ranges_add(learn_ranges *r, const char *topic, int32_t partition, int64_t from, int64_t to, int rank);
/* Every rank gets as many offsets as the others, give or take one, in one run of the list: a partition is cut where two shares meet. */
void learn_ranges_split(const learn_data_range *at, size_t n, int world, learn_ranges *ret);
/* What was one range becomes one again, with rank 0. */
void learn_ranges_join(const learn_data_range *at, size_t n, learn_ranges *ret);
/* Of the ranges of one store: no more than `records` offsets, of each partition by its length. 0 = all. */
void learn_ranges_limit(learn_data_range *at, size_t n, int64_t records);
json_t *learn_ranges_json(const learn_data_range *at, size_t n);
/* PST_EPARSE/DATA: not a list of ranges; ret is empty then. */
int learn_ranges_of_json(const json_t *list, int world, learn_ranges *ret, pst_err *err);

#endif
