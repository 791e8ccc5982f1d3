/* ranges.c - arithmetic on offsets (ranges.h). A share is cut by position in the whole list and not by partition: a topic of one partition is shared out
 * too, and ranks are equally long at work. */
#include "trainer/learner/ranges.h"

#include "common/base/array.h"
#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>

#define OFFSET_MAX ((int64_t)1 << 46) /* so that the sum of all lengths is a number, too */

void learn_ranges_done(learn_ranges *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->at[i].topic);
    free(r->at);
    *r = (learn_ranges){0};
}

void learn_ranges_add(learn_ranges *r, const char *topic, int32_t partition, int64_t from, int64_t to, int rank)
{
    r->at = pst_array_one_more(r->at, r->n, sizeof *r->at);
    r->at[r->n++] = (learn_data_range){pst_strdup(topic), partition, from, to, rank};
}

static int64_t total_of(const learn_data_range *at, size_t n)
{
    int64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += at[i].to - at[i].from;
    return total;
}

static int64_t begin_of(int64_t total, int world, int rank)
{
    return total / world * rank + total % world * rank / world;
}

void learn_ranges_split(const learn_data_range *at, size_t n, int world, learn_ranges *ret)
{
    int64_t total = total_of(at, n), done = 0; /* done: offsets of the list before at[i] */
    *ret = (learn_ranges){0};
    for (size_t i = 0; i < n; i++) {
        int64_t len = at[i].to - at[i].from;
        for (int rank = 0; rank < world; rank++) {
            int64_t from = begin_of(total, world, rank) - done, to = begin_of(total, world, rank + 1) - done;
            from = from < 0 ? 0 : from;
            to = to > len ? len : to;
            if (from < to)
                learn_ranges_add(ret, at[i].topic, at[i].partition, at[i].from + from, at[i].from + to, rank);
        }
        done += len;
    }
}

void learn_ranges_join(const learn_data_range *at, size_t n, learn_ranges *ret)
{
    *ret = (learn_ranges){0};
    for (size_t i = 0; i < n; i++) {
        learn_data_range *last = ret->n ? &ret->at[ret->n - 1] : NULL;
        if (last && last->partition == at[i].partition && !strcmp(last->topic, at[i].topic) && at[i].from >= last->to)
            last->to = at[i].to;
        else
            learn_ranges_add(ret, at[i].topic, at[i].partition, at[i].from, at[i].to, 0);
    }
}

void learn_ranges_limit(learn_data_range *at, size_t n, int64_t records)
{
    int64_t total = total_of(at, n), before = 0, given = 0;
    if (records <= 0 || total <= records)
        return;
    for (size_t i = 0; i < n; i++) {
        before += at[i].to - at[i].from;
        int64_t until = before == total ? records : (int64_t)((double)before / (double)total * (double)records);
        at[i].to = at[i].from + (until - given);
        given = until;
    }
}

json_t *learn_ranges_json(const learn_data_range *at, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s,s:i,s:I,s:I,s:i}", "topic", at[i].topic, "partition", (int)at[i].partition, "from",
                                              (json_int_t)at[i].from, "to", (json_int_t)at[i].to, "rank", at[i].rank));
    return list;
}

int learn_ranges_of_json(const json_t *list, int world, learn_ranges *ret, pst_err *err)
{
    size_t n = json_array_size(list);
    learn_ranges r = {0};
    bool good = json_is_array(list) && n <= PST_LEARN_RANGES_MAX;
    for (size_t i = 0; good && i < n; i++) {
        const json_t *o = json_array_get(list, i);
        const char *topic = pst_json_str(o, "topic", NULL);
        int64_t partition = pst_json_int(o, "partition", -1), from = pst_json_int(o, "from", -1), to = pst_json_int(o, "to", -1);
        int64_t rank = pst_json_int(o, "rank", 0);
        good =
            topic && partition >= 0 && partition <= INT32_MAX && from >= 0 && to >= from && to <= OFFSET_MAX && rank >= 0 && rank < world;
        if (good)
            learn_ranges_add(&r, topic, (int32_t)partition, from, to, (int)rank);
    }
    if (good) {
        *ret = r;
        return 0;
    }
    learn_ranges_done(&r);
    *ret = (learn_ranges){0};
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "learner", 0, "it has a range that is none");
}
