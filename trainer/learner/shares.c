/* shares.c - who reads what. Where topics end is decided by rank 0 alone, since records come while others look; and where no features are listed,
 * rank 0 reads first, since its first record is the one that names them. Everything else is done by all at once. */
#include "trainer/learner/shares.h"

#include "common/base/hash.h"
#include "common/base/json.h"
#include "trainer/learner/ranges.h"

#include <stdlib.h>
#include <string.h>

static int parse_ranges(const pst_buf *b, int world, learn_ranges *ret, pst_err *err)
{
    json_t *list = NULL;
    int rc = pst_json_parse(b->data ? b->data : "", b->len, "the list of ranges", &list, err);
    if (!rc)
        rc = learn_ranges_of_json(list, world, ret, err);
    json_decref(list);
    return rc;
}

static void put_ranges(pst_buf *b, const learn_data_range *at, size_t n)
{
    json_t *list = learn_ranges_json(at, n);
    char *text = pst_json_text(list);
    pst_buf_adds(b, text);
    free(text);
    json_decref(list);
}

/* Rank 0's word on what there is to read, shared out. */
static int plan(learn_data *d, pst_learn_settings *s, pst_client *client, const pst_data_store *stores, size_t n_stores,
                const learn_source_hooks *hooks, learn_ranges *ret, pst_err *err)
{
    pst_buf b = {0};
    int rc = 0;
    if (d->pool->rank == 0) {
        learn_data found;
        learn_ranges shared;
        learn_data_init(&found, s, 0);
        rc = learn_data_find_topics(&found, client, stores, n_stores, hooks, err);
        if (!rc) {
            learn_ranges_split(found.ranges, found.n_ranges, d->pool->world, &shared);
            put_ranges(&b, shared.at, shared.n);
            learn_ranges_done(&shared);
        }
        learn_data_done(&found);
    }
    if (!rc)
        rc = learn_pool_spread(d->pool, &b, err);
    if (!rc)
        rc = parse_ranges(&b, d->pool->world, ret, err);
    pst_buf_done(&b);
    return rc;
}

/* Of a checkpoint: the same shares where there are as many ranks as there were. */
static void plan_again(const learn_checkpoint *last, int world, learn_ranges *ret)
{
    learn_ranges whole;
    *ret = (learn_ranges){0};
    if (last->world == world) {
        for (size_t i = 0; i < last->n_ranges; i++) {
            const learn_data_range *r = &last->ranges[i];
            learn_ranges_add(ret, r->topic, r->partition, r->from, r->to, r->rank);
        }
        return;
    }
    learn_ranges_join(last->ranges, last->n_ranges, &whole);
    learn_ranges_split(whole.at, whole.n, world, ret);
    learn_ranges_done(&whole);
}

/* The features that rank 0 found in its first record. */
static int spread_fields(learn_data *d, pst_learn_settings *s, pst_err *err)
{
    pst_buf b = {0};
    json_t *list = json_array();
    for (int i = 0; i < s->n_features && !d->pool->rank; i++)
        json_array_append_new(list, json_string(s->features[i].field));
    char *text = pst_json_text(list);
    pst_buf_adds(&b, text);
    free(text);
    json_decref(list);
    list = NULL;
    int rc = learn_pool_spread(d->pool, &b, err);
    if (!rc && d->pool->rank)
        rc = pst_json_parse(b.data ? b.data : "", b.len, "the list of features", &list, err);
    size_t n = json_array_size(list);
    if (!rc && d->pool->rank && (!n || n > PST_LEARN_COLUMNS_MAX))
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "learner", 0, "rank 0 found %zu features", n);
    const char **fields = pst_alloc((n + 1) * sizeof *fields);
    for (size_t i = 0; i < n; i++) {
        fields[i] = json_string_value(json_array_get(list, i));
        fields[i] = fields[i] ? fields[i] : "";
    }
    if (!rc && d->pool->rank) {
        pst_learn_settings_take_fields(s, fields, (int)n);
        learn_data_set_columns(d);
    }
    free(fields);
    json_decref(list);
    pst_buf_done(&b);
    return rc;
}

/* What every rank has really read becomes the list that a checkpoint keeps. */
static int collect_ranges(learn_data *d, pst_err *err)
{
    pst_buf b = {0};
    const pst_buf *all;
    learn_ranges sum = {0};
    for (size_t i = 0; i < d->n_ranges; i++)
        d->ranges[i].rank = d->pool->rank;
    put_ranges(&b, d->ranges, d->n_ranges);
    int rc = learn_pool_gather(d->pool, b.data, b.len, false, &all, err);
    for (int rank = 0; !rc && rank < d->pool->world; rank++) {
        learn_ranges one = {0};
        rc = parse_ranges(&all[rank], d->pool->world, &one, err);
        for (size_t i = 0; i < one.n; i++)
            learn_ranges_add(&sum, one.at[i].topic, one.at[i].partition, one.at[i].from, one.at[i].to, rank);
        learn_ranges_done(&one);
    }
    if (!rc)
        learn_data_take_ranges(d, sum.at, sum.n);
    else
        learn_ranges_done(&sum);
    pst_buf_done(&b);
    return rc;
}

/* Columns of files are told by every rank for itself: they must have found the same. */
static int agree(learn_data *d, const pst_learn_settings *s, pst_err *err)
{
    pst_buf b = {0};
    char hex[65];
    const pst_buf *all;
    for (int i = 0; i < s->n_features; i++)
        pst_buf_printf(&b, "%s\n%d\n", s->features[i].field, s->features[i].slots);
    pst_sha256_hex(b.data ? b.data : "", b.len, hex);
    pst_buf_done(&b);
    int rc = learn_pool_gather(d->pool, hex, 64, true, &all, err);
    for (int rank = 0; !rc && rank < d->pool->world; rank++)
        if (memcmp(all[rank].data, hex, 64) != 0)
            rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "learner", 0,
                             "rank %d has found other features than rank %d: are their data the same? list them under "
                             "penstock.learner.features",
                             rank, d->pool->rank);
    return rc;
}

/* Ranks above 0 must know the features before they read, and rank 0 knows them only from its first records where the manifest names none: so it reads first,
 * and the others wait for its list. */
int learn_shares_read_topics(learn_data *d, pst_learn_settings *s, pst_client *client, const pst_data_store *stores, size_t n_stores,
                             const learn_checkpoint *last, const learn_source_hooks *hooks, pst_err *err)
{
    learn_ranges shares = {0}, mine = {0};
    int rc = 0;
    if (last)
        plan_again(last, d->pool->world, &shares);
    else
        rc = plan(d, s, client, stores, n_stores, hooks, &shares, err);
    for (size_t i = 0; !rc && i < shares.n; i++)
        if (shares.at[i].rank == d->pool->rank)
            learn_ranges_add(&mine, shares.at[i].topic, shares.at[i].partition, shares.at[i].from, shares.at[i].to, d->pool->rank);
    if (!rc && !mine.n)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
                         "there are no records for rank %d of %d; ask for fewer learners, or widen from and to of the data store",
                         d->pool->rank, d->pool->world);
    bool first_names = !s->n_features;
    if (!rc && first_names && d->pool->rank)
        rc = spread_fields(d, s, err);
    if (!rc)
        rc = learn_data_read_topics(d, s, client, stores, n_stores, mine.at, mine.n, hooks, err);
    if (!rc && first_names && !d->pool->rank)
        rc = s->n_features ? spread_fields(d, s, err)
                           : pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "learner", 0, "no record of rank 0 can be read: %s", d->why_bad);
    if (!rc)
        rc = collect_ranges(d, err);
    if (!rc)
        rc = agree(d, s, err);
    learn_ranges_done(&shares);
    learn_ranges_done(&mine);
    return rc;
}

int learn_shares_read_csv(learn_data *d, pst_learn_settings *s, const char *data_dir, const learn_source_hooks *hooks, pst_err *err)
{
    int rc = learn_data_read_csv(d, s, data_dir, s->data, 0, hooks, err);
    return rc ? rc : agree(d, s, err);
}
