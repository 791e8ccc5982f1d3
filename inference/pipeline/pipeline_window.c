/* pipeline_window.c - windows and the state they are made of, as the file says them. What could only end in a letter for the first record of every key, or in
 * a window that is quietly shorter than it says, is refused here. */
#include "inference/pipeline/pipeline_window.h"

#include "inference/pipeline/pipeline_keys.h"
#include "inference/pipeline/pipeline_published.h"

#include <math.h>
#include <string.h>

/* ---- a feature ------------------------------------------------------------------------------------------------------------- */

/* Words that need something of their own; in the order of pipeline_window_words. */
enum { OF_COUNT, OF_MEAN, OF_DEVIATION, OF_MIN, OF_MAX, OF_SUM, OF_RATE, OF_LAG, OF_SINCE };

static int check_length(pipeline_reader *r, int line, const pst_feature *f)
{
    const pst_feature_window *w = &f->window;
    const char *name = pipeline_window_words[w->of];
    if (w->of == OF_SINCE)
        return w->last || w->ms ? pipeline_reader_fail(r, line,
                                                       "features: window of %s: since takes neither last nor seconds: it is the time "
                                                       "from the value before the record",
                                                       f->field)
                                : 0;
    if (w->of == OF_LAG || w->of == OF_RATE) {
        bool by_last = w->of == OF_LAG;
        return (by_last ? w->last && !w->ms : w->ms && !w->last)
                   ? 0
                   : pipeline_reader_fail(r, line, "features: window of %s: %s needs %s", f->field, name,
                                          by_last ? "last: N, how many values before the record"
                                                  : "seconds: S, over which values are counted");
    }
    return !w->last == !w->ms
               ? pipeline_reader_fail(r, line, "features: window of %s: give last (a number of values) or seconds, one of them", f->field)
               : 0;
}

/* Of a key's first record it has nothing to say. */
static bool starts_empty(const pst_feature_window *w)
{
    bool counts = w->of == OF_COUNT || w->of == OF_RATE || w->of == OF_SUM;
    return w->of == OF_LAG || w->of == OF_SINCE || (!w->self && !counts);
}

static int check_feature(pipeline_reader *r, int line, pst_feature *f)
{
    const char *what = NULL;
    if (f->one_hot)
        what = "one_hot";
    else if (f->has_vocabulary)
        what = "a vocabulary";
    else if (f->slots > 1)
        what = "slots";
    else if (f->value_text && isnan(f->value))
        what = "a text as value";
    if (what)
        return pipeline_reader_fail(r, line, "features: %s: a window is of numbers, one a record: %s does not go with it", f->field, what);
    if (f->missing == PST_MISSING_MEAN && !f->n_means)
        return pipeline_reader_fail(
            r, line, "features: %s: missing: mean of a window needs mean: NUMBER; the model knows the mean of the field", f->field);
    if (f->missing == PST_MISSING_REJECT && starts_empty(&f->window))
        return pipeline_reader_fail(
            r, line,
            "features: window of %s: %s%s has no value for a key's first record, which would be a dead letter and leave "
            "the next one the first; say missing: value, nan or mean",
            f->field, pipeline_window_words[f->window.of], f->window.self ? "" : " without the record itself");
    f->slots = 1;
    return 0;
}

/* What `of` needs or cannot have is refused here, where the line is known; length and feature are looked at once the window is whole. */
int pipeline_window_read(pipeline_reader *r, const json_t *feature, pst_feature *f)
{
    json_t *o = json_object_get(feature, "window");
    pst_feature_window *w = &f->window;
    int64_t last = 0;
    double seconds = 0;
    int rc, of = -1;
    if (!o || json_is_null(o))
        return 0;
    int line = pst_yaml_key_line(&r->y, feature, "window");
    if (!f->line)
        return pipeline_reader_fail(r, line, "features: %s: a model's own mapping has no windows; list the features in the pipeline file",
                                    f->field);
    if (!json_is_object(o))
        return pipeline_reader_fail(r, line, "features: window of %s: expected a mapping, such as {last: 20, of: mean}", f->field);
    if ((rc = pipeline_reader_check_keys(r, o, "features.window")) < 0 ||
        (rc = pipeline_reader_word(r, o, "features.window", "of", &of)) < 0 ||
        (rc = pipeline_reader_whole(r, o, "features.window", "last", &last)) < 0 ||
        (rc = pipeline_reader_num(r, o, "features.window", "seconds", &seconds)) < 0)
        return rc;
    const json_t *self = json_object_get(o, "self");
    if (self && !json_is_boolean(self))
        return pipeline_reader_fail(r, line, "features: window of %s: self: expected true or false", f->field);
    if (of < 0)
        return pipeline_reader_fail(r, line, "features: window of %s: of is missing, such as of: mean", f->field);
    bool before = of == OF_LAG || of == OF_SINCE;
    if (before && json_is_true(self))
        return pipeline_reader_fail(r, line, "features: window of %s: %s is of the values before the record; leave self out", f->field,
                                    pipeline_window_words[of]);
    *w = (pst_feature_window){
        .there = true, .self = !before && !json_is_false(self), .of = of, .last = (uint32_t)last, .ms = (int64_t)llround(seconds * 1000)};
    if ((rc = check_length(r, line, f)) < 0)
        return rc;
    return check_feature(r, line, f);
}

/* ---- the section ----------------------------------------------------------------------------------------------------------- */

int pipeline_state_read(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    struct pst_pipeline_state *s = &p->state;
    json_t *o;
    int64_t keys = 0, bytes = 0, values = 0, idle = 0;
    int rc = pipeline_reader_section(r, root, "state", &o);
    if (rc < 0)
        return rc;
    s->there = o != NULL;
    if (!o)
        return 0;
    if ((rc = pipeline_reader_check_keys(r, o, "state")) < 0 || (rc = pipeline_reader_str(r, o, "state", "key", &s->key)) < 0 ||
        (rc = pipeline_reader_str(r, o, "state", "time", &s->time)) < 0 ||
        (rc = pipeline_reader_str(r, o, "state", "topic", &s->topic)) < 0 ||
        (rc = pipeline_reader_whole(r, o, "state", "keys_max", &keys)) < 0 ||
        (rc = pipeline_reader_unit(r, o, "state", "bytes_max", &bytes)) < 0 ||
        (rc = pipeline_reader_whole(r, o, "state", "values_max", &values)) < 0 ||
        (rc = pipeline_reader_unit(r, o, "state", "idle", &idle)) < 0)
        return rc;
    s->keys_max = (size_t)keys;
    s->bytes_max = (size_t)bytes;
    s->values_max = (size_t)values;
    s->idle_ms = idle / 1000;
    if (p->published && bytes > PST_PUBLISHED_ARENA_MAX)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "bytes_max"), "state.bytes_max: at most 1 GiB in a published pipeline");
    if (!s->topic)
        s->topic = pst_sprintf("%s.state", p->name ? p->name : "");
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------- */

static int check_window(pipeline_reader *r, pst_pipeline *p, pst_feature *f)
{
    struct pst_pipeline_state *s = &p->state;
    size_t i = 0;
    if (!s->there)
        return pipeline_reader_fail(r, f->line,
                                    "features: %s has a window, so something is kept of each key: say so by state: {}, or "
                                    "state: {key: FIELD, …}",
                                    f->field);
    if (f->window.last > s->values_max)
        return pipeline_reader_fail(r, f->line,
                                    "features: window of %s: last: %u is more than the %zu values that are kept of a key; raise "
                                    "state.values_max",
                                    f->field, f->window.last, s->values_max);
    while (&p->features[i] != f && !(p->features[i].window.there && !strcmp(p->features[i].field, f->field)))
        i++;
    f->window.series = &p->features[i] != f ? p->features[i].window.series : (uint32_t)s->n_series++;
    f->window.index = (uint32_t)s->n_windows++;
    if (s->n_windows > PST_PIPELINE_WINDOWS_MAX || s->n_series > PST_PIPELINE_SERIES_MAX)
        return pipeline_reader_fail(r, f->line, "features: at most %d windows, over at most %d fields", PST_PIPELINE_WINDOWS_MAX,
                                    PST_PIPELINE_SERIES_MAX);
    return 0;
}

static int check_topic(pipeline_reader *r, int line, const pst_pipeline *p)
{
    const struct {
        const char *topic, *what;
    } others[] = {{p->n_topics ? p->topics[0] : NULL, "the input"},
                  {p->output_topic, "the output"},
                  {p->dlq_topic, "the dead letters'"},
                  {p->shadow_topic, "the shadow's output"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].topic && !strcmp(others[i].topic, p->state.topic))
            return pipeline_reader_fail(r, line, "state.topic: \"%.249s\" is %s too; choose another name", p->state.topic, others[i].what);
    return 0;
}

int pipeline_state_check(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    enum { VALUE_BYTES = 18 };
    const struct pst_pipeline_state *s = &p->state;
    int line = s->there ? pst_yaml_key_line(&r->y, root, "state") : 0, rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n_features; i++)
        if (p->features[i].window.there)
            rc = check_window(r, p, &p->features[i]);
    if (rc < 0 || !s->there)
        return rc;
    if (!s->n_windows)
        return pipeline_reader_fail(r, line, "state: no feature has a window, so nothing would be kept; give one, or leave state out");
    if (!p->exactly_once)
        return pipeline_reader_fail(r, line,
                                    "state: needs guarantee: exactly_once; under at_least_once a record that comes twice would count "
                                    "twice in every window of its key");
    if (p->n_topics > 1)
        return pipeline_reader_fail(r, line,
                                    "state: is kept for one input topic, and input.topics has %zu: in which order two topics are read "
                                    "follows from nothing, so no window could be made again; write a pipeline for each",
                                    p->n_topics);
    if (s->n_series * s->values_max * VALUE_BYTES > PST_PIPELINE_STATE_BYTES)
        return pipeline_reader_fail(r, line,
                                    "state.values_max: %zu values of %zu fields may be %zu bytes a key, more than the %d of a record in "
                                    "the changelog; set it to %zu",
                                    s->values_max, s->n_series, s->n_series * s->values_max * VALUE_BYTES, PST_PIPELINE_STATE_BYTES,
                                    PST_PIPELINE_STATE_BYTES / VALUE_BYTES / s->n_series);
    return check_topic(r, line, p);
}
