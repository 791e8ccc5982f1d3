/* pipeline_feature.c - what a pipeline file, or a model's own mapping, says of one feature. Words are checked here, once: every one of them is
 * there once, is text as records can hold it, and it is said what becomes of the words that are not there. The numbers of a one-hot feature's
 * words are the slots they fill, counted from the feature's first, so that behind this file both kinds of words are one table. */
#include "inference/pipeline/pipeline_feature.h"

#include "common/base/map.h"
#include "inference/pipeline/pipeline_keys.h"
#include "inference/pipeline/pipeline_window.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ----------------------------------------------------------------------------------------------------------------- */

static bool said(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && !json_is_null(v);
}

/* A word as records hold it: numbers and booleans of a list stand for fields of numbers and booleans. NULL = it is none; free(). */
static char *word_of(const json_t *v)
{
    if (json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v))
        return pst_strdup(json_string_value(v));
    if (json_is_integer(v))
        return pst_sprintf("%lld", (long long)json_integer_value(v));
    if (json_is_boolean(v))
        return pst_strdup(json_is_true(v) ? "true" : "false");
    return NULL;
}

/* A list: words are numbered from 0, or from -1 where the first of them fills no slot. A null in it (one_hot alone) is the slot of a missing value. */
static int read_list(pipeline_reader *r, const json_t *list, const char *key, int line, double first, pst_feature *f)
{
    pst_map seen = {0};
    size_t i;
    json_t *v;
    int rc = 0;
    f->vocabulary = pst_alloc((json_array_size(list) + 1) * sizeof(*f->vocabulary));
    json_array_foreach(list, i, v)
    {
        double number = (double)i + first;
        if (f->one_hot && json_is_null(v) && !f->has_null) {
            f->has_null = true;
            f->fill_slot = (int32_t)number;
            continue;
        }
        char *word = word_of(v);
        if (!word) {
            rc = pipeline_reader_fail(r, line, "features: %s of %s: element %zu is no text%s", key, f->field, i + 1,
                                      json_is_null(v) && f->one_hot ? ", and null is there already" : "");
            break;
        }
        f->vocabulary[f->n_vocabulary++] = (pst_vocabulary_entry){word, number};
        const pst_vocabulary_entry *before = pst_map_put(&seen, word, &f->vocabulary[f->n_vocabulary - 1]);
        if (before) {
            rc = pipeline_reader_fail(r, line, "features: %s of %s: \"%.60s\" is there twice, as %.0f and as %zu", key, f->field, word,
                                      before->number - first, i);
            break;
        }
    }
    pst_map_done(&seen, NULL);
    return rc;
}

static int read_vocabulary(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    json_t *v = json_object_get(o, "vocabulary");
    if (!v || json_is_null(v))
        return 0;
    int line = pst_yaml_key_line(&r->y, o, "vocabulary");
    f->has_vocabulary = true;
    if ((json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v)))
        return pipeline_reader_fail(r, line, "features: vocabulary of %s is empty: every word would be a missing one; list the words",
                                    f->field);
    if (json_is_array(v))
        return read_list(r, v, "vocabulary", line, 0, f);
    if (!json_is_object(v))
        return pipeline_reader_fail(r, line, "features: vocabulary of %s: expected {word: number, …} or a list of words", f->field);
    f->vocabulary = pst_alloc((json_object_size(v) + 1) * sizeof(*f->vocabulary));
    const char *key;
    json_t *x;
    json_object_foreach(v, key, x)
    {
        double number;
        if (!pipeline_reader_number(x, &number))
            return pipeline_reader_fail(r, line, "features: vocabulary of %s: the number of \"%.60s\" is missing", f->field, key);
        f->vocabulary[f->n_vocabulary++] = (pst_vocabulary_entry){pst_strdup(key), number};
    }
    return 0;
}

static int read_drop_first(pipeline_reader *r, const json_t *o, const pst_feature *f, bool *ret)
{
    const json_t *v = json_object_get(o, "drop_first");
    if (!v || json_is_null(v))
        return 0;
    if (!f->one_hot || !json_is_boolean(v))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "drop_first"), "features: drop_first of %s: %s", f->field,
                                    f->one_hot ? "expected true or false" : "is for one_hot alone");
    *ret = json_is_true(v);
    return 0;
}

static int read_one_hot(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    json_t *v = json_object_get(o, "one_hot");
    bool drop_first = false;
    int line = pst_yaml_key_line(&r->y, o, "one_hot"), rc;
    f->one_hot = v && !json_is_null(v);
    if ((rc = read_drop_first(r, o, f, &drop_first)) < 0 || !f->one_hot)
        return rc;
    if (f->has_vocabulary)
        return pipeline_reader_fail(r, line,
                                    "features: %s has a vocabulary, which fills one slot, and one_hot, which fills one a word: "
                                    "leave out one of them",
                                    f->field);
    f->has_vocabulary = true;
    if (!json_is_array(v) || !json_array_size(v) || json_array_size(v) > PST_FEATURE_SLOTS_MAX)
        return pipeline_reader_fail(r, line, "features: one_hot of %s: expected a list of 1 to %d words, a slot each", f->field,
                                    PST_FEATURE_SLOTS_MAX);
    if (drop_first && json_is_null(json_array_get(v, 0)))
        return pipeline_reader_fail(
            r, line, "features: one_hot of %s: drop_first drops a word, and null is the first; put it behind the words", f->field);
    if ((rc = read_list(r, v, "one_hot", line, drop_first ? -1 : 0, f)) < 0)
        return rc;
    f->slots = (uint32_t)(json_array_size(v) - drop_first + (f->unknown == PST_UNKNOWN_OTHER));
    if (!f->n_vocabulary || !f->slots)
        return pipeline_reader_fail(r, line, "features: one_hot of %s: no word is left that fills a slot", f->field);
    return 0;
}

/* What becomes of words that are not in the list, and of missing values: said, or the record is a dead letter. */
static int check_words(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    int line = pst_yaml_key_line(&r->y, o, "unknown"), missing = pst_yaml_key_line(&r->y, o, "missing");
    if (!f->one_hot && (f->unknown == PST_UNKNOWN_ZEROS || f->unknown == PST_UNKNOWN_OTHER))
        return pipeline_reader_fail(r, line, "features: unknown of %s: zeros and other are for one_hot; others take missing or reject",
                                    f->field);
    if (!f->one_hot && f->missing == PST_MISSING_ZEROS)
        return pipeline_reader_fail(r, missing, "features: missing of %s: zeros is for one_hot; write value: 0", f->field);
    if (f->has_null && !said(o, "unknown"))
        return pipeline_reader_fail(
            r, f->line,
            "features: %s: one_hot has a slot for null: say what an unknown word is: unknown: zeros, other, reject, "
            "or missing (as null)",
            f->field);
    return 0;
}

/* missing: value of a one-hot feature: one of its words, whose slot (-1: none, the first was dropped) a missing value fills. */
static int take_word(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    f->value_text = word_of(json_object_get(o, "value"));
    for (size_t i = 0; f->value_text && i < f->n_vocabulary; i++)
        if (!strcmp(f->vocabulary[i].text, f->value_text)) {
            f->fill_slot = (int32_t)f->vocabulary[i].number;
            return 0;
        }
    return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "value"),
                                "features: value of %s: expected one of the words in one_hot; missing: zeros is none of them", f->field);
}

/* ---- numbers --------------------------------------------------------------------------------------------------------------- */

static int read_means(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    json_t *v = json_object_get(o, "mean");
    if (!v || json_is_null(v))
        return 0;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n == 0 || n > PST_FEATURE_SLOTS_MAX)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "mean"), "features: mean of %s: expected a number or a list of numbers",
                                    f->field);
    f->means = pst_alloc(n * sizeof(double));
    f->n_means = n;
    for (size_t i = 0; i < n; i++) {
        if (!pipeline_reader_number(json_is_array(v) ? json_array_get(v, i) : v, &f->means[i]) || !isfinite(f->means[i]))
            return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "mean"),
                                        "features: mean of %s: expected a number or a list of numbers", f->field);
    }
    return 0;
}

/* A number, or for inputs of strings a text; of a one-hot feature one of its words. */
static int read_value(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    const json_t *v = json_object_get(o, "value");
    double x;
    if (f->one_hot)
        return said(o, "value") ? take_word(r, o, f) : 0;
    if (!json_is_string(v))
        return pipeline_reader_num(r, o, "features", "value", &f->value);
    f->value_text = pst_strdup(json_string_value(v));
    if (pipeline_reader_number(v, &x) && isfinite(x))
        f->value = x;
    return 0;
}

/* Limits after scaling. */
static int read_clip(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    const json_t *clip = json_object_get(o, "clip");
    if (!clip || json_is_null(clip))
        return 0;
    if (json_array_size(clip) != 2 || !pipeline_reader_number(json_array_get(clip, 0), &f->clip_lo) ||
        !pipeline_reader_number(json_array_get(clip, 1), &f->clip_hi) || !(f->clip_lo <= f->clip_hi))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "clip"), "features: clip of %s: expected [low, high]", f->field);
    f->has_clip = true;
    return 0;
}

/* A value and missing: value belong together; a value alone says what it is for. */
static int check_value(pipeline_reader *r, const json_t *o, pst_feature *f)
{
    bool value = !isnan(f->value) || f->value_text;
    if (f->has_null) { /* fill_slot is its slot */
        f->missing = PST_MISSING_VALUE;
        return value || said(o, "missing")
                   ? pipeline_reader_fail(r, f->line,
                                          "features: %s: the null in one_hot is the slot of a missing value; leave out "
                                          "null, or missing",
                                          f->field)
                   : 0;
    }
    if (f->missing == PST_MISSING_VALUE && !value)
        return pipeline_reader_fail(r, f->line, "features: %s has missing: value, but no value: %s", f->field,
                                    f->one_hot ? "WORD" : "NUMBER");
    if (f->missing != PST_MISSING_VALUE && value && said(o, "missing"))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "value"), "features: %s: value is used only with missing: value",
                                    f->field);
    if (value)
        f->missing = PST_MISSING_VALUE;
    return 0;
}

static int check_slots(pipeline_reader *r, int64_t slots, pst_feature *f)
{
    if (f->one_hot && slots && slots != f->slots)
        return pipeline_reader_fail(r, f->line, "features: %s: one_hot fills %u slots, slots says %lld; leave slots out", f->field,
                                    f->slots, (long long)slots);
    if (!f->one_hot)
        f->slots = (uint32_t)slots;
    if (f->has_vocabulary && !f->one_hot && f->slots > 1)
        return pipeline_reader_fail(r, f->line, "features: %s: a vocabulary fills one slot", f->field);
    return 0;
}

int pipeline_feature_read(pipeline_reader *r, const json_t *o, int line, pst_feature *f)
{
    int rc, missing = PST_MISSING_REJECT, unknown = PST_UNKNOWN_MISSING, codes = 0;
    int64_t slots = 0;
    f->scale = 1;
    f->value = NAN;
    f->line = line;
    if (json_is_string(o)) { /* `- cpu.user`: just the field */
        f->field = pst_strdup(json_string_value(o));
        return *f->field ? 0 : pipeline_reader_fail(r, line, "features: an empty field name");
    }
    if (!json_is_object(o))
        return pipeline_reader_fail(r, line, "features: expected {field: name, …} or a field name");
    if ((rc = pipeline_reader_check_keys(r, o, "features")) < 0 || (rc = pipeline_reader_str(r, o, "features", "field", &f->field)) < 0)
        return rc;
    if (!f->field)
        return pipeline_reader_fail(r, line, "features: field is missing");
    if ((rc = pipeline_reader_num(r, o, "features", "scale", &f->scale)) < 0 ||
        (rc = pipeline_reader_num(r, o, "features", "offset", &f->offset)) < 0 ||
        (rc = pipeline_reader_word(r, o, "features", "missing", &missing)) < 0 ||
        (rc = pipeline_reader_word(r, o, "features", "unknown", &unknown)) < 0 ||
        (rc = pipeline_reader_word(r, o, "features", "categories", &codes)) < 0 ||
        (rc = pipeline_reader_whole(r, o, "features", "slots", &slots)) < 0 ||
        (rc = pipeline_reader_str(r, o, "features", "input", &f->input)) < 0)
        return rc;
    f->missing = (pst_missing)missing;
    f->unknown = (pst_unknown_word)unknown;
    f->codes = codes == 1;
    if ((rc = read_vocabulary(r, o, f)) < 0 || (rc = read_one_hot(r, o, f)) < 0 || (rc = read_value(r, o, f)) < 0 ||
        (rc = read_means(r, o, f)) < 0)
        return rc;
    if (line && f->scale == 0) /* a model's own mapping may have one, of a field that never changed */
        return pipeline_reader_fail(
            r, line, "features: scale of %s is 0, which makes every value the same; leave the field out, or give its scale", f->field);
    if ((rc = check_value(r, o, f)) < 0 || (rc = check_slots(r, slots, f)) < 0 || (rc = check_words(r, o, f)) < 0)
        return rc;
    if ((rc = read_clip(r, o, f)) < 0)
        return rc;
    return pipeline_window_read(r, o, f);
}

int pst_feature_from_json(const json_t *obj, pst_feature *ret_feature, pst_err *err)
{
    pipeline_reader r = {.err = err, .keys = &pst_pipeline_keys, .y = {.file = (char *)"the model's mapping"}};
    pst_feature f = {0};
    int rc = pipeline_feature_read(&r, obj, 0, &f);
    if (rc < 0) {
        pst_feature_done(&f);
        if (err)
            err->cls = PST_CLASS_DATA;
        return rc;
    }
    *ret_feature = f;
    return 0;
}

void pst_feature_done(pst_feature *f)
{
    free(f->field);
    free(f->input);
    free(f->value_text);
    for (size_t i = 0; i < f->n_vocabulary; i++)
        free(f->vocabulary[i].text);
    free(f->vocabulary);
    free(f->means);
    memset(f, 0, sizeof(*f));
}

void pst_feature_copy(const pst_feature *f, pst_feature *ret_copy)
{
    pst_feature c = *f;
    c.field = pst_strdup(f->field);
    c.input = pst_strdup(f->input);
    c.value_text = pst_strdup(f->value_text);
    c.vocabulary = f->n_vocabulary ? pst_alloc(f->n_vocabulary * sizeof(*c.vocabulary)) : NULL;
    for (size_t i = 0; i < f->n_vocabulary; i++)
        c.vocabulary[i] = (pst_vocabulary_entry){pst_strdup(f->vocabulary[i].text), f->vocabulary[i].number};
    c.means = NULL;
    if (f->n_means) {
        c.means = pst_alloc(f->n_means * sizeof(double));
        memcpy(c.means, f->means, f->n_means * sizeof(double));
    }
    *ret_copy = c;
}
