/* checkpoint.c - taken as a copy, so that training may go on while it is written; read with every length checked against what is there, since
 * a folder is shared with whatever the job runs. One with a wrong checksum is passed over for the one before. */
#include "trainer/learner/checkpoint.h"

#include "common/base/array.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "trainer/learner/ranges.h"
#include "trainer/learner/ring_wire.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "checkpoints are written as they lie in memory");

static const char magic[8] = {'P', 'S', 'T', 'L', 'E', 'A', 'R', 'N'};
enum { VERSION = 1, FRONT = 16, HEADER_MAX = 16 << 20, FILES_MAX = 10000 };

void learn_checkpoint_done(learn_checkpoint *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_fields; i++) {
        free(c->fields[i]);
        for (int k = 0; k < c->words[i].n; k++)
            free(c->words[i].at[k]);
        free(c->words[i].at);
    }
    for (size_t i = 0; i < c->n_ranges; i++)
        free(c->ranges[i].topic);
    void *all[] = {c->settings_digest, c->training_id, c->fields, c->words, c->ranges, c->values, c->m, c->v, c->best};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    learn_statistics_done(&c->stats);
    *c = (learn_checkpoint){0};
}

static float *copy(const float *from, size_t n)
{
    float *to = pst_alloc((n + 1) * sizeof *to);
    if (n)
        memcpy(to, from, n * sizeof *to);
    return to;
}

/* All is copied, words and ranges too: training goes on, and the settings may end, while it is written. */
void learn_checkpoint_take(const learn_training *t, const learn_data *d, const char *training_id, int generation, learn_checkpoint *ret)
{
    const pst_learn_settings *s = t->settings;
    *ret = (learn_checkpoint){.settings_digest = pst_learn_settings_digest(s),
                              .training_id = pst_strdup(training_id ? training_id : ""),
                              .generation = generation,
                              .world = t->pool ? t->pool->world : 1,
                              .data_rows = (int64_t)t->data->all_rows,
                              .data_crc = t->data->crc,
                              .progress = t->progress,
                              .steps = learn_net_steps(t->net),
                              .n_params = learn_net_parameters(t->net)};
    ret->fields = pst_alloc(((size_t)s->n_features + 1) * sizeof *ret->fields);
    ret->words = pst_alloc(((size_t)s->n_features + 1) * sizeof *ret->words);
    for (int i = 0; i < s->n_features; i++) {
        const pst_learn_feature *f = &s->features[i];
        ret->fields[ret->n_fields++] = pst_strdup(f->field);
        ret->words[i] = (learn_checkpoint_words){pst_alloc(((size_t)f->n_words + 1) * sizeof(char *)), f->n_words, f->learn_words,
                                                 f->unknown == PST_LEARN_UNKNOWN_OTHER};
        for (int k = 0; k < f->n_words; k++)
            ret->words[i].at[k] = pst_strdup(f->words[k]);
    }
    ret->ranges = pst_alloc((d->n_ranges + 1) * sizeof *ret->ranges);
    for (size_t i = 0; i < d->n_ranges; i++) {
        ret->ranges[i] = d->ranges[i];
        ret->ranges[i].topic = pst_strdup(d->ranges[i].topic);
    }
    ret->n_ranges = d->n_ranges;
    learn_statistics_copy(&t->data->stats, &ret->stats);
    ret->values = copy(learn_net_values(t->net), ret->n_params);
    ret->m = copy(learn_net_moments(t->net, 1), ret->n_params);
    ret->v = copy(learn_net_moments(t->net, 2), ret->n_params);
    ret->best = t->best ? copy(t->best, ret->n_params) : NULL;
}

int learn_checkpoint_restore(const learn_checkpoint *c, learn_training *t, pst_err *err)
{
    if (c->n_params != learn_net_parameters(t->net) || c->stats.columns != t->data->columns)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "learner", 0,
                           "it holds %zu parameters for %d columns, this network has %zu for %d", c->n_params, c->stats.columns,
                           learn_net_parameters(t->net), t->data->columns);
    size_t bytes = c->n_params * sizeof(float);
    memcpy(learn_net_values(t->net), c->values, bytes);
    memcpy(learn_net_moments(t->net, 1), c->m, bytes);
    memcpy(learn_net_moments(t->net, 2), c->v, bytes);
    learn_net_set_steps(t->net, c->steps);
    t->progress = c->progress;
    if (c->best)
        t->best = copy(c->best, c->n_params);
    return 0;
}

/* ---- encoding ------------------------------------------------------------------------------------------------------------------ */

static json_t *number(double x) /* JSON has no NaN */
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *words_json(const learn_checkpoint_words *w)
{
    if (!w->n)
        return json_null();
    json_t *list = json_array();
    for (int i = 0; i < w->n; i++)
        json_array_append_new(list, json_string(w->at[i]));
    return json_pack("{s:o,s:b,s:b}", "one_hot", list, "learnt", (int)w->learnt, "other", (int)w->other);
}

static json_t *header_of(const learn_checkpoint *c)
{
    const learn_progress *p = &c->progress;
    json_t *fields = json_array(), *words = json_array(), *ranges = learn_ranges_json(c->ranges, c->n_ranges);
    for (int i = 0; i < c->n_fields; i++) {
        json_array_append_new(fields, json_string(c->fields[i]));
        json_array_append_new(words, words_json(&c->words[i]));
    }
    json_t *progress =
        json_pack("{s:I,s:I,s:o,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:b}", "epoch", (json_int_t)p->epoch, "batch", (json_int_t)p->batch,
                  "loss_sum", number(p->loss_sum), "rows", (json_int_t)p->rows, "right", (json_int_t)p->right, "train_loss",
                  number(p->train_loss), "validation_loss", number(p->validation_loss), "best_loss", number(p->best_loss), "train_accuracy",
                  number(p->train_accuracy), "validation_accuracy", number(p->validation_accuracy), "validation_auc",
                  number(p->validation_auc), "best_epoch", (json_int_t)p->best_epoch, "finished", (int)p->finished);
    return json_pack("{s:s,s:s,s:i,s:i,s:o,s:o,s:o,s:I,s:I,s:o,s:I,s:i,s:I,s:b,s:f,s:f}", "settings", c->settings_digest, "training_id",
                     c->training_id, "generation", c->generation, "world", c->world, "features", fields, "words", words, "ranges", ranges,
                     "rows", (json_int_t)c->data_rows, "crc", (json_int_t)c->data_crc, "progress", progress, "steps", (json_int_t)c->steps,
                     "columns", c->stats.columns, "parameters", (json_int_t)c->n_params, "best", (int)(c->best != NULL), "target_mean",
                     (double)c->stats.target_mean, "target_std", (double)c->stats.target_std);
}

static void put_u32(pst_buf *out, uint32_t v)
{
    pst_buf_add(out, &v, sizeof v);
}

void learn_checkpoint_encode(const learn_checkpoint *c, pst_buf *out)
{
    size_t begin = out->len, k = (size_t)c->stats.columns;
    json_t *header = header_of(c);
    PST_ASSERT(header);
    char *text = pst_json_text(header);
    pst_buf_add(out, magic, sizeof magic);
    put_u32(out, VERSION);
    put_u32(out, (uint32_t)strlen(text));
    pst_buf_adds(out, text);
    const float *columns[] = {c->stats.mean, c->stats.std, c->stats.min, c->stats.max}, *params[] = {c->values, c->m, c->v, c->best};
    for (size_t i = 0; i < 4; i++)
        pst_buf_add(out, columns[i], k * sizeof(float));
    for (size_t i = 0; i < (c->best ? 4 : 3); i++)
        pst_buf_add(out, params[i], c->n_params * sizeof(float));
    put_u32(out, pst_crc32c(0, out->data + begin, out->len - begin));
    free(text);
    json_decref(header);
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------------ */

static int bad(pst_err *err, const char *why)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "learner", 0, "%s", why);
}

static double number_of(const json_t *o, const char *key)
{
    return pst_json_num(o, key, NAN);
}

/* A checkpoint from before features had words has none. */
static int words_of(const json_t *v, learn_checkpoint_words *w, pst_err *err)
{
    const json_t *list = json_object_get(v, "one_hot");
    size_t n = json_array_size(list);
    if (!v || json_is_null(v))
        return 0;
    if (!n || n > PST_LEARN_WORDS_MAX)
        return bad(err, "its header has a feature of words without words");
    w->at = pst_alloc(n * sizeof *w->at);
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        if (!word)
            return bad(err, "its header has a word that is no text");
        w->at[w->n++] = pst_strdup(word);
    }
    w->learnt = pst_json_bool(v, "learnt", false);
    w->other = pst_json_bool(v, "other", false);
    return 0;
}

static int header_texts(const json_t *h, learn_checkpoint *c, pst_err *err)
{
    const json_t *fields = json_object_get(h, "features"), *ranges = json_object_get(h, "ranges");
    size_t n = json_array_size(fields);
    const char *digest = pst_json_str(h, "settings", NULL), *id = pst_json_str(h, "training_id", NULL);
    if (!digest || !id || !json_is_array(fields) || !n || n > PST_LEARN_COLUMNS_MAX || !json_is_array(ranges))
        return bad(err, "its header lacks settings, training_id, features or ranges");
    c->settings_digest = pst_strdup(digest);
    c->training_id = pst_strdup(id);
    c->fields = pst_alloc(n * sizeof *c->fields);
    c->words = pst_alloc(n * sizeof *c->words);
    for (size_t i = 0; i < n; i++) {
        const char *field = json_string_value(json_array_get(fields, i));
        if (!field || !*field)
            return bad(err, "its header names a feature that is no text");
        c->fields[c->n_fields++] = pst_strdup(field);
        int rc = words_of(json_array_get(json_object_get(h, "words"), i), &c->words[i], err);
        if (rc < 0)
            return rc;
    }
    learn_ranges list;
    int rc = learn_ranges_of_json(ranges, c->world, &list, err);
    if (rc < 0)
        return rc;
    c->ranges = list.at;
    c->n_ranges = list.n;
    return 0;
}

/* A file of a former run, perhaps of another version or half of one: what a training cannot have is refused here, since sizes of memory and
 * divisors behind are made of these numbers. */
static int header_numbers(const json_t *h, learn_checkpoint *c, bool *ret_best, pst_err *err)
{
    const json_t *p = json_object_get(h, "progress");
    int64_t columns = pst_json_int(h, "columns", 0), parameters = pst_json_int(h, "parameters", 0);
    int64_t world = pst_json_int(h, "world", 1);
    c->generation = (int)pst_json_int(h, "generation", 0);
    c->data_rows = pst_json_int(h, "rows", -1);
    c->data_crc = (uint32_t)pst_json_int(h, "crc", 0);
    c->steps = pst_json_int(h, "steps", -1);
    c->stats.target_mean = (float)number_of(h, "target_mean");
    c->stats.target_std = (float)number_of(h, "target_std");
    c->progress = (learn_progress){.epoch = pst_json_int(p, "epoch", -1),
                                   .batch = pst_json_int(p, "batch", -1),
                                   .loss_sum = number_of(p, "loss_sum"),
                                   .rows = pst_json_int(p, "rows", -1),
                                   .right = pst_json_int(p, "right", -1),
                                   .train_loss = number_of(p, "train_loss"),
                                   .validation_loss = number_of(p, "validation_loss"),
                                   .best_loss = number_of(p, "best_loss"),
                                   .train_accuracy = number_of(p, "train_accuracy"),
                                   .validation_accuracy = number_of(p, "validation_accuracy"),
                                   .validation_auc = number_of(p, "validation_auc"),
                                   .best_epoch = pst_json_int(p, "best_epoch", -1),
                                   .finished = pst_json_bool(p, "finished", false)};
    const learn_progress *q = &c->progress;
    if (world < 1 || world > LEARN_WORLD_MAX || columns < 1 || columns > PST_LEARN_COLUMNS_MAX || parameters < 1 ||
        parameters > (int64_t)(PST_CHECKPOINT_BYTES_MAX / 16) || c->data_rows < 2 || c->steps < 0 || q->epoch < 0 || q->batch < 0 ||
        q->rows < 0 || q->right < 0 || q->best_epoch < 0 || !isfinite(q->loss_sum) || !isfinite(c->stats.target_mean) ||
        !(c->stats.target_std > 0))
        return bad(err, "its header has numbers that cannot be");
    c->world = (int)world;
    c->stats.columns = (int)columns;
    c->n_params = (size_t)parameters;
    *ret_best = pst_json_bool(h, "best", false);
    return 0;
}

static float *take(const char **at, size_t n)
{
    float *to = pst_alloc((n + 1) * sizeof *to);
    memcpy(to, *at, n * sizeof *to);
    *at += n * sizeof *to;
    return to;
}

/* The checksum is looked at before anything that it covers is believed; then every length against what is left. */
static int decode(const char *bytes, size_t len, json_t **header, learn_checkpoint *c, pst_err *err)
{
    uint32_t version, header_len, crc;
    bool best = false;
    if (len < FRONT + 4 || memcmp(bytes, magic, sizeof magic))
        return bad(err, "it is no checkpoint of this learner");
    memcpy(&version, bytes + 8, 4);
    memcpy(&header_len, bytes + 12, 4);
    memcpy(&crc, bytes + len - 4, 4);
    if (version != VERSION)
        return bad(err, "it is of another version");
    if (crc != pst_crc32c(0, bytes, len - 4))
        return bad(err, "its checksum is wrong: it was cut off or damaged");
    if (header_len > HEADER_MAX || header_len > len - FRONT - 4)
        return bad(err, "its header is longer than the file");
    int rc = pst_json_parse(bytes + FRONT, header_len, "its header", header, err);
    if (!rc)
        rc = header_numbers(*header, c, &best, err);
    if (!rc)
        rc = header_texts(*header, c, err);
    if (rc < 0)
        return rc;
    size_t k = (size_t)c->stats.columns, floats = 4 * k + (best ? 4u : 3u) * c->n_params;
    if (len - FRONT - 4 - header_len != floats * sizeof(float))
        return bad(err, "its length does not fit its header");
    const char *at = bytes + FRONT + header_len;
    c->stats.mean = take(&at, k);
    c->stats.std = take(&at, k);
    c->stats.min = take(&at, k);
    c->stats.max = take(&at, k);
    c->values = take(&at, c->n_params);
    c->m = take(&at, c->n_params);
    c->v = take(&at, c->n_params);
    c->best = best ? take(&at, c->n_params) : NULL;
    for (size_t i = 0; i < k; i++)
        if (!isfinite(c->stats.mean[i]) || !(c->stats.std[i] > 0))
            return bad(err, "its statistics have numbers that cannot be");
    return 0;
}

int learn_checkpoint_decode(const void *bytes, size_t len, learn_checkpoint *ret, pst_err *err)
{
    learn_checkpoint c = {0};
    json_t *header = NULL;
    int rc = decode(bytes, len, &header, &c, err);
    json_decref(header);
    if (rc < 0)
        learn_checkpoint_done(&c);
    else
        *ret = c;
    return rc;
}

/* ---- files --------------------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    int generation;
    int64_t steps;
    char name[300];
} entry;

static int newest_first(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->generation != y->generation)
        return x->generation < y->generation ? 1 : -1;
    return x->steps < y->steps ? 1 : x->steps > y->steps ? -1 : 0;
}

/* The checkpoints of a folder, newest first; what a killed writer left half-written is removed with stale. */
static entry *list(const char *dir, bool stale, size_t *ret_n)
{
    entry *at = NULL;
    *ret_n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && *ret_n < FILES_MAX && (e = readdir(d));) {
        entry one;
        long long steps;
        int end = 0;
        if (sscanf(e->d_name, "learner-%6d-%12lld.ckpt%n", &one.generation, &steps, &end) != 2 || !end)
            continue;
        if (e->d_name[end]) {
            char *path = stale && !strncmp(e->d_name + end, ".tmp", 4) ? pst_fs_join(dir, e->d_name) : NULL;
            if (path)
                unlink(path);
            free(path);
            continue;
        }
        one.steps = steps;
        snprintf(one.name, sizeof one.name, "%s", e->d_name);
        at = pst_array_one_more(at, *ret_n, sizeof *at);
        at[(*ret_n)++] = one;
    }
    if (d)
        closedir(d);
    if (*ret_n)
        qsort(at, *ret_n, sizeof *at, newest_first);
    return at;
}

int learn_checkpoint_write(const char *dir, const learn_checkpoint *c, pst_err *err)
{
    pst_buf b = {0};
    char *path = pst_sprintf("%s/learner-%06d-%012lld.ckpt", dir, c->generation, (long long)c->steps);
    learn_checkpoint_encode(c, &b);
    int rc = pst_fs_mkdirs(dir, 0755, err);
    if (!rc)
        rc = pst_fs_write_atomic(path, b.data, b.len, 0644, err);
    size_t n, kept = 0;
    entry *at = rc ? NULL : list(dir, false, &n);
    for (size_t i = 0; at && i < n; i++) {
        if (at[i].generation > c->generation || (at[i].generation == c->generation && at[i].steps > c->steps) ||
            kept++ < PST_CHECKPOINT_KEEP)
            continue;
        char *old = pst_fs_join(dir, at[i].name);
        unlink(old);
        free(old);
    }
    free(at);
    free(path);
    pst_buf_done(&b);
    return rc;
}

int learn_checkpoint_read_last(const char *dir, learn_checkpoint *ret, void (*skipped)(void *arg, const char *file, const char *why),
                               void *arg)
{
    size_t n;
    int found = 0;
    entry *at = list(dir, true, &n);
    for (size_t i = 0; i < n && !found; i++) {
        pst_err err = {0};
        pst_buf b = {0};
        char *path = pst_fs_join(dir, at[i].name);
        int rc = pst_fs_read(path, PST_CHECKPOINT_BYTES_MAX, &b, &err);
        if (!rc)
            rc = learn_checkpoint_decode(b.data, b.len, ret, &err);
        found = !rc;
        if (rc < 0 && skipped)
            skipped(arg, at[i].name, err.text);
        pst_buf_done(&b);
        free(path);
    }
    free(at);
    return found;
}
