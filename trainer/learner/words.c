/* words.c - the words of features. While records come, a feature of words has one column with the number that its dictionary gives the word, since how
 * many columns it will fill is known only when all are there: then the rows are written once more, wider (words.h says which words are taken).
 * Numbers are given in the order of reading, and so differ between ranks and runs; nothing of them is left in the columns. */
#include "trainer/learner/words.h"

#include "common/base/array.h"
#include "common/base/json.h"
#include "common/base/map.h"
#include "trainer/learner/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
    char *text;
    int64_t n; /* records that have it */
} word;

struct learn_words {
    const pst_learn_feature *feature;
    pst_map numbers; /* text → its number + 1 */
    word *at;
    size_t n, cap;
    size_t seen;
    char other[48]; /* the first word that is none of a list */
};

/* ---- numbers ------------------------------------------------------------------------------------------------------------------- */

static void add(learn_words *w, const char *text)
{
    w->at = pst_array_room(w->at, w->n, &w->cap, sizeof *w->at);
    pst_map_put(&w->numbers, text, (void *)(uintptr_t)(w->n + 1));
    w->at[w->n++] = (word){pst_strdup(text), 0};
}

learn_words *learn_words_new(const pst_learn_feature *f)
{
    if (!f->one_hot)
        return NULL;
    learn_words *w = pst_alloc(sizeof *w);
    w->feature = f;
    for (int i = 0; i < f->n_words; i++)
        add(w, f->words[i]);
    return w;
}

void learn_words_free(learn_words *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        free(w->at[i].text);
    pst_map_done(&w->numbers, NULL);
    free(w->at);
    free(w);
}

/* Bytes that a mapping in JSON cannot hold are no word of a model. */
static bool can_be_told(const char *text, size_t len)
{
    json_t *v = json_stringn(text, len);
    json_decref(v);
    return v != NULL;
}

int learn_words_number(learn_words *w, pst_slice text, double *ret_number, pst_err *err)
{
    char key[LEARN_WORD_BYTES_MAX + 1];
    *ret_number = LEARN_WORD_UNKNOWN;
    if (text.len > LEARN_WORD_BYTES_MAX || (text.len && memchr(text.data, '\0', text.len)))
        return 0;
    if (text.len)
        memcpy(key, text.data, text.len);
    key[text.len] = '\0';
    uintptr_t known = (uintptr_t)pst_map_get(&w->numbers, key);
    if (!known && w->feature->learn_words && can_be_told(key, text.len)) {
        if (w->n >= LEARN_WORDS_DISTINCT_MAX)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "learner", 0,
                               "%s has more than %d different words: it names things rather than kinds of them, and tells a model nothing; "
                               "leave it out of the features, or list the words that matter as its one_hot",
                               w->feature->field, LEARN_WORDS_DISTINCT_MAX);
        add(w, key);
        known = w->n;
    }
    if (!known && !*w->other)
        snprintf(w->other, sizeof w->other, "%.47s", key);
    if (!known)
        return 0;
    w->at[known - 1].n++;
    *ret_number = (double)(known - 1);
    return 0;
}

size_t learn_words_seen(const learn_words *w)
{
    return w->seen;
}

pst_slice learn_words_text(double x, char buf[40])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, 40, "%.*g", digits, x == 0 ? 0 : x); /* -0 is 0 */
        if (strtod(buf, NULL) == x)
            break;
    }
    return (pst_slice){buf, strlen(buf)};
}

/* ---- which words are taken ------------------------------------------------------------------------------------------------------ */

static int most_frequent_first(const void *a, const void *b)
{
    const word *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return strcmp(x->text, y->text);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What this rank has seen, for the others: [[word, records], …]. */
static void put_counts(const learn_words *w, pst_buf *out)
{
    json_t *list = json_array();
    for (size_t i = 0; i < w->n; i++)
        json_array_append_new(list, json_pack("[s,I]", w->at[i].text, (json_int_t)w->at[i].n));
    char *text = pst_json_text(list);
    pst_buf_adds(out, text);
    free(text);
    json_decref(list);
}

static int add_counts(learn_words *sum, const pst_buf *from, pst_err *err)
{
    json_t *list = NULL, *pair;
    size_t i;
    int rc = pst_json_parse(from->data, from->len, "another rank's words", &list, err);
    json_array_foreach(list, i, pair)
    {
        const char *text = json_string_value(json_array_get(pair, 0));
        if (!text)
            continue;
        uintptr_t known = (uintptr_t)pst_map_get(&sum->numbers, text);
        if (!known) {
            add(sum, text);
            known = sum->n;
        }
        sum->at[known - 1].n += json_integer_value(json_array_get(pair, 1));
    }
    json_decref(list);
    return rc;
}

/* Counts of all ranks, into `sum`. */
static int pool_counts(const learn_data *d, const learn_words *w, learn_words *sum, pst_err *err)
{
    pst_buf mine = {0};
    const pst_buf *all;
    put_counts(w, &mine);
    int rc = d->pool ? learn_pool_gather(d->pool, mine.data, mine.len, false, &all, err) : add_counts(sum, &mine, err);
    for (int rank = 0; !rc && d->pool && rank < d->pool->world; rank++)
        rc = add_counts(sum, &all[rank], err);
    pst_buf_done(&mine);
    return rc;
}

static int choose(const learn_data *d, learn_words *w, pst_learn_feature *f, pst_err *err)
{
    learn_words sum = {.feature = f};
    int rc = pool_counts(d, w, &sum, err);
    w->seen = sum.n;
    if (!rc && !sum.n)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
                         "none of the records has a word for the feature %s; is its name right? leave it out if none is to have it",
                         f->field);
    if (!rc) {
        qsort(sum.at, sum.n, sizeof *sum.at, most_frequent_first);
        f->n_words = sum.n < (size_t)f->words_max ? (int)sum.n : f->words_max;
        f->words = pst_alloc(((size_t)f->n_words + 1) * sizeof *f->words);
        for (int i = 0; i < f->n_words; i++)
            f->words[i] = pst_strdup(sum.at[i].text);
        qsort(f->words, (size_t)f->n_words, sizeof *f->words, by_text);
    }
    for (size_t i = 0; i < sum.n; i++)
        free(sum.at[i].text);
    pst_map_done(&sum.numbers, NULL);
    free(sum.at);
    return rc;
}

/* A list of which no record has a word is written otherwise than the records are: trained with nothing in its slots, the model would know less than was
 * asked for, and nobody would be told. */
static int look_at_list(const learn_data *d, learn_words *w, const pst_learn_feature *f, pst_err *err)
{
    double *n = pst_alloc((w->n + 1) * sizeof *n);
    for (size_t i = 0; i < w->n; i++)
        n[i] = (double)w->at[i].n;
    int rc = d->pool ? learn_pool_sum(d->pool, n, w->n, err) : 0;
    w->seen = 0;
    for (size_t i = 0; i < w->n; i++)
        w->seen += n[i] > 0;
    free(n);
    if (rc < 0 || w->seen || !*w->other)
        return rc;
    return pst_err_set(
        err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
        "none of the records has any of the words listed as one_hot of %s; the first has \"%s\": write them as the records do, "
        "or take the records' own by one_hot: learn",
        f->field, w->other);
}

/* ---- columns -------------------------------------------------------------------------------------------------------------------- */

/* Dictionary number → slot of the feature, -1 where its word was not taken. */
static int32_t *slots_of(const learn_words *w, const pst_learn_feature *f)
{
    int32_t *slot = pst_alloc((w->n + 1) * sizeof *slot);
    for (size_t i = 0; i < w->n; i++)
        slot[i] = -1;
    for (int i = 0; i < f->n_words; i++) {
        uintptr_t known = (uintptr_t)pst_map_get(&w->numbers, f->words[i]);
        if (known)
            slot[known - 1] = i;
    }
    return slot;
}

static void widen_row(const learn_data *d, const pst_learn_settings *s, int32_t *const *slots, const float *from, float *to)
{
    for (int i = 0; i < s->n_features; i++) {
        const pst_learn_feature *f = &s->features[i];
        if (!d->words[i]) {
            memcpy(to, from, (size_t)f->slots * sizeof *to);
            from += f->slots;
            to += f->slots;
            continue;
        }
        memset(to, 0, (size_t)f->slots * sizeof *to);
        int32_t at = *from >= 0 ? slots[i][(size_t)*from] : -1;
        bool unknown = at < 0 && *from != (float)LEARN_WORD_MISSING;
        if (unknown && f->unknown == PST_LEARN_UNKNOWN_OTHER)
            at = f->n_words; /* the slot behind the words */
        if (at >= 0)
            to[at] = 1;
        from++;
        to += f->slots;
    }
}

static int widen(learn_data *d, const pst_learn_settings *s, int columns, pst_err *err)
{
    size_t row = ((size_t)columns + 1) * sizeof(float), was = (size_t)d->columns;
    if (d->rows && d->rows > d->bytes_max / row)
        return pst_err_set(
            err, PST_ELIMIT, PST_CLASS_DATA, "learner", 0,
            "%zu records of %d numbers, with a column for each word, do not fit into the %zu MiB that this job may use; lower "
            "words_max, raise `memory` in the manifest, or narrow the range (from, to, records of the data store)",
            d->rows, columns, d->bytes_max >> 20);
    int32_t **slots = pst_alloc(((size_t)s->n_features + 1) * sizeof *slots);
    for (int i = 0; i < s->n_features; i++)
        slots[i] = d->words[i] ? slots_of(d->words[i], &s->features[i]) : NULL;
    float *x = pst_alloc((d->rows + 1) * (size_t)columns * sizeof *x);
    for (size_t r = 0; r < d->rows; r++)
        widen_row(d, s, slots, d->x + r * was, x + r * (size_t)columns);
    for (int i = 0; i < s->n_features; i++)
        free(slots[i]);
    free(slots);
    free(d->x);
    d->x = x;
    d->cap = d->rows;
    d->columns = columns;
    return 0;
}

int learn_words_settle(learn_data *d, pst_learn_settings *s, pst_err *err)
{
    bool any = false;
    int64_t columns = 0;
    for (int i = 0; i < s->n_features; i++) {
        pst_learn_feature *f = &s->features[i];
        any = any || f->one_hot;
        int rc = !f->one_hot ? 0 : f->learn_words && !f->n_words ? choose(d, d->words[i], f, err) : look_at_list(d, d->words[i], f, err);
        if (rc < 0)
            return rc;
        f->slots = f->one_hot ? f->n_words + (f->unknown == PST_LEARN_UNKNOWN_OTHER) : f->slots;
        columns += f->slots;
    }
    PST_ASSERT(columns <= PST_LEARN_COLUMNS_MAX); /* the settings count words_max for words that are learnt */
    return any ? widen(d, s, (int)columns, err) : 0;
}
