/* windowed.c - the pipeline's features with windows → the plan of keyed.h. The fingerprint is of what decides which values are kept, not of what is made of
 * them: another `of` over the same values may go on with the state there is. */
#include "inference/core/windowed.h"

#include "common/base/array.h"
#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct part {
    int32_t partition;
    pst_keyed *keyed;
    int64_t mark;
} part;

struct pst_windowed {
    pst_keyed_plan plan;
    pst_window *windows;
    part *parts;
    size_t n_parts;
    pst_keyed_counts gone; /* what partitions that are not here any more had counted */
};

static pst_window window_of(const pst_feature_window *f)
{
    return (pst_window){.series = f->series, .of = (pst_window_of)f->of, .last = f->last, .ms = f->ms, .self = f->self};
}

static uint64_t fingerprint(const pst_pipeline *p, const pst_keyed_plan *plan)
{
    pst_buf text = {0};
    const struct pst_pipeline_state *s = &p->state;
    pst_buf_printf(&text, "1\nkey %s\ntime %s\nmost %zu\n", s->key ? s->key : "", s->time ? s->time : "", s->values_max);
    for (size_t i = 0, next = 0; i < p->n_features; i++) {
        const pst_feature *f = &p->features[i];
        if (!f->window.there || f->window.series != next)
            continue;
        pst_buf_printf(&text, "%s %u %lld\n", f->field, plan->series[next].last, (long long)plan->series[next].ms);
        next++;
    }
    uint64_t h = pst_fnv1a(text.data, text.len);
    pst_buf_done(&text);
    return h;
}

pst_windowed *pst_windowed_new(const pst_pipeline *p)
{
    const struct pst_pipeline_state *s = &p->state;
    if (!s->there)
        return NULL;
    _Static_assert(PST_PIPELINE_SERIES_MAX == PST_KEYED_SERIES_MAX && PST_PIPELINE_STATE_BYTES == PST_KEYED_RECORD_MAX, "one limit");
    pst_windowed *w = pst_alloc(sizeof(*w));
    w->windows = pst_alloc((s->n_windows + 1) * sizeof(*w->windows));
    w->plan = (pst_keyed_plan){.windows = w->windows,
                               .n_windows = s->n_windows,
                               .n_series = s->n_series,
                               .keys_max = s->keys_max,
                               .bytes_max = s->bytes_max,
                               .idle_ms = s->idle_ms};
    for (size_t i = 0; i < s->n_series; i++)
        w->plan.series[i].most = (uint32_t)s->values_max;
    for (size_t i = 0; i < p->n_features; i++) {
        const pst_feature_window *f = &p->features[i].window;
        if (!f->there)
            continue;
        w->windows[f->index] = window_of(f);
        pst_series_keeps_add(&w->plan.series[f->series], &w->windows[f->index]);
    }
    w->plan.fingerprint = fingerprint(p, &w->plan);
    return w;
}

void pst_windowed_free(pst_windowed *w)
{
    if (!w)
        return;
    pst_windowed_drop_all(w);
    free(w->parts);
    free(w->windows);
    free(w);
}

pst_keyed *pst_windowed_at(const pst_windowed *w, int32_t partition)
{
    for (size_t i = 0; w && i < w->n_parts; i++)
        if (w->parts[i].partition == partition)
            return w->parts[i].keyed;
    return NULL;
}

pst_keyed *pst_windowed_add(pst_windowed *w, int32_t partition)
{
    PST_ASSERT(w && !pst_windowed_at(w, partition));
    w->parts = pst_array_one_more(w->parts, w->n_parts, sizeof(*w->parts));
    w->parts[w->n_parts] = (part){.partition = partition, .keyed = pst_keyed_new(&w->plan), .mark = -1};
    return w->parts[w->n_parts++].keyed;
}

static void add_counts(pst_keyed_counts *sum, pst_keyed_counts c)
{
    sum->keys += c.keys;
    sum->bytes += c.bytes;
    sum->forgotten += c.forgotten;
    sum->idle += c.idle;
    sum->cut += c.cut;
}

void pst_windowed_drop(pst_windowed *w, int32_t partition)
{
    for (size_t i = 0; w && i < w->n_parts; i++) {
        if (w->parts[i].partition != partition)
            continue;
        pst_keyed_undo(w->parts[i].keyed, 0);
        add_counts(&w->gone, pst_keyed_count(w->parts[i].keyed));
        w->gone.keys = w->gone.bytes = 0;
        pst_keyed_free(w->parts[i].keyed);
        w->parts[i] = w->parts[--w->n_parts];
        return;
    }
}

void pst_windowed_drop_all(pst_windowed *w)
{
    while (w && w->n_parts)
        pst_windowed_drop(w, w->parts[0].partition);
}

pst_keyed *pst_windowed_each(const pst_windowed *w, size_t i, int32_t *ret_partition)
{
    if (!w || i >= w->n_parts)
        return NULL;
    *ret_partition = w->parts[i].partition;
    return w->parts[i].keyed;
}

void pst_windowed_mark(pst_windowed *w)
{
    for (size_t i = 0; w && i < w->n_parts; i++)
        w->parts[i].mark = pst_keyed_offset(w->parts[i].keyed);
}

void pst_windowed_back(pst_windowed *w)
{
    for (size_t i = 0; w && i < w->n_parts; i++)
        pst_keyed_undo(w->parts[i].keyed, w->parts[i].mark + 1);
}

void pst_windowed_undo(pst_windowed *w)
{
    for (size_t i = 0; w && i < w->n_parts; i++)
        pst_keyed_undo(w->parts[i].keyed, 0);
}

void pst_windowed_settle(pst_windowed *w)
{
    for (size_t i = 0; w && i < w->n_parts; i++)
        pst_keyed_settle(w->parts[i].keyed);
}

pst_keyed_counts pst_windowed_count(const pst_windowed *w)
{
    pst_keyed_counts sum = w ? w->gone : (pst_keyed_counts){0};
    for (size_t i = 0; w && i < w->n_parts; i++)
        add_counts(&sum, pst_keyed_count(w->parts[i].keyed));
    return sum;
}

char *pst_windowed_explain(const pst_pipeline *p)
{
    pst_buf out = {0};
    const struct pst_pipeline_state *s = &p->state;
    if (s->there)
        pst_buf_printf(&out, "state: %zu windows over %zu fields, by %s%s, at the time of %s%s, kept in topic %s\n", s->n_windows,
                       s->n_series, s->key ? "field " : "the record's key", s->key ? s->key : "",
                       s->time ? "field " : "the record's timestamp", s->time ? s->time : "", s->topic);
    for (size_t i = 0; i < p->n_features; i++) {
        const pst_feature *f = &p->features[i];
        if (!f->window.there)
            continue;
        pst_buf_printf(&out, "  %s of %s", pst_window_of_name((pst_window_of)f->window.of), f->field);
        if (f->window.last)
            pst_buf_printf(&out, ", last %u", f->window.last);
        if (f->window.ms)
            pst_buf_printf(&out, ", %g seconds", (double)f->window.ms / 1000);
        pst_buf_printf(&out, "%s, missing: %s\n", f->window.self ? "" : ", without the record itself", pst_missing_name(f->missing));
    }
    return pst_buf_steal(&out);
}
