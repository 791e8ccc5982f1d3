/* decoder.c - user records → rows. Avro goes through a column plan (schemas/), JSON through Jansson with the same dotted paths. */
#include "inference/core/decoder.h"

#include "inference/core/words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a text needs to fill a numeric input. */
#define WORDS_CURE                                                                                                                           \
    "a field of words needs one_hot: [word, …] (a slot each), vocabulary: [word, …] or {word: number, …} (a number each), or a model " \
    "that knows its categories by name"

struct pst_decoder {
    const pst_pipeline *pipeline;
    pst_binding *binding;
    const pst_feature *features;
    size_t n_features, n_pass;
    pst_columns *columns; /* NULL = JSON */
    score_layout *layout; /* JSON: made at the first record */
    bool words;           /* some features are text, or key or time are read, too: numbers are not dense in columns' output */
    bool windowed;
    pst_decode_windows *windows; /* borrowed; NULL = none are kept */
    double *numbers;             /* columns' output when it is not the row itself */
    uint8_t *missing;            /* features, then pass-through */
    pst_slice *texts;            /* the same */
    char (*digits)[32];          /* JSON: numbers where a text is wanted */
    bool *arrays;
};

static bool is_words(const pst_feature *f)
{
    return f->has_vocabulary || f->text;
}

/* How its field is read. */
static pst_want_kind want_of(const pst_feature *f)
{
    return f->has_vocabulary ? PST_WANT_WORD : f->text ? PST_WANT_TEXT : PST_WANT_NUMBER;
}

/* Numbers that the columns give for it: words that are numbers stand in the first of its slots until they are looked up. */
static size_t numbers_of(const score_layout *l, const pst_feature *f, size_t i)
{
    return f->has_vocabulary ? 1 : f->text ? 0 : score_layout_slots(l, i);
}

/* As far as the pipeline file goes: one number, or as many as it says. */
static size_t slots_said(const pst_feature *f)
{
    return f->slots ? f->slots : 1;
}

/* Nothing but a text, or a null. */
static bool is_text_schema(const json_t *j)
{
    const char *t = json_is_object(j) ? json_string_value(json_object_get(j, "type")) : json_string_value(j);
    bool yes = t && (!strcmp(t, "string") || !strcmp(t, "enum"));
    for (size_t i = 0, n = json_array_size(j); i < n; i++) {
        const json_t *branch = json_array_get(j, i);
        const char *name = json_string_value(branch);
        if (!is_text_schema(branch) && (!name || strcmp(name, "null") != 0))
            return false;
        yes |= is_text_schema(branch);
    }
    return yes;
}

/* A text among features that do not fill the model's input: it is the likelier cause than the count. */
static int check_text(const pst_feature *f, const char *schema, pst_err *err)
{
    json_t *j = schema ? json_loads(schema, JSON_DECODE_ANY, NULL) : NULL;
    bool text = is_text_schema(j);
    json_decref(j);
    return !text ? 0
                 : pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "features", 0,
                               "field %s: a number is wanted, but its type is %.100s; %s", f->field, schema, WORDS_CURE);
}

/* Is this field an array, or a nullable one? */
static bool is_array_schema(const char *text)
{
    json_t *j = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    bool yes = false;
    if (json_is_object(j)) {
        const char *t = json_string_value(json_object_get(j, "type"));
        yes = t && !strcmp(t, "array");
    }
    for (size_t i = 0; json_is_array(j) && i < json_array_size(j); i++) {
        const char *t = json_string_value(json_object_get(json_array_get(j, i), "type"));
        yes |= t && !strcmp(t, "array");
    }
    json_decref(j);
    return yes;
}

static int no_such_field(const pst_schema *writer, const pst_feature *f, pst_err *err)
{
    return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "features", 0,
                       "the records' schema %s has no field %s and its missing policy is reject; say missing: value, nan or mean to "
                       "score without it",
                       pst_schema_name(writer), f->field);
}

/* Which features are arrays in the writer's schema: asked only when plain scalars would not fill the model's input. */
static int find_arrays(pst_decoder *d, const pst_schema *writer, pst_err *err)
{
    size_t slots = 0, open = 0;
    for (size_t i = 0; i < d->n_features; i++) {
        slots += slots_said(&d->features[i]);
        open += !d->features[i].slots && !is_words(&d->features[i]);
    }
    if (!open || slots == pst_binding_width(d->binding))
        return 0;
    pst_want *wants = pst_alloc((d->n_features + 1) * sizeof(*wants));
    for (size_t i = 0; i < d->n_features; i++)
        wants[i] = (pst_want){d->features[i].field, PST_WANT_RAW, 1};
    pst_columns *look = NULL;
    int rc = pst_columns_new(writer, wants, d->n_features, &look, err);
    const pst_feature *gone = NULL;
    for (size_t i = 0; rc == 0 && i < d->n_features; i++) {
        const pst_feature *f = &d->features[i];
        bool countable = !f->slots && !is_words(f);
        d->arrays[i] = countable && is_array_schema(pst_columns_schema(look, i));
        if (!is_words(f) && (rc = check_text(f, pst_columns_schema(look, i), err)) < 0)
            break;
        if (pst_columns_absent(look, i)) {
            rc = f->missing == PST_MISSING_REJECT ? no_such_field(writer, f, err) : 0;
            gone = countable && !gone ? f : gone;
        }
    }
    /* A field that is not there is taken for one number; if it was to be the array, that is what went wrong, not the count. */
    size_t filled = 0, n_arrays = 0;
    for (size_t i = 0; i < d->n_features; i++) {
        n_arrays += d->arrays[i];
        if (!d->arrays[i])
            filled += slots_said(&d->features[i]);
    }
    if (rc == 0 && gone && !n_arrays && pst_binding_width(d->binding) && filled != pst_binding_width(d->binding))
        rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "features", 0,
                         "the records' schema %s has no field %s, so that its number of slots is not known; say slots: N there if it is an "
                         "array",
                         pst_schema_name(writer), gone->field);
    pst_columns_free(look);
    free(wants);
    return rc;
}

static int make_layout(pst_decoder *d, pst_err *err)
{
    score_layout *l = NULL;
    int rc = score_layout_new(d->features, d->n_features, d->arrays, pst_binding_width(d->binding), &l, err);
    if (rc == 0)
        rc = pst_binding_set_width(d->binding, score_layout_width(l), err);
    if (rc < 0)
        score_layout_free(l);
    else
        d->layout = l;
    return rc;
}

/* May a record's field of this type (no union) hold one of the feature's words? */
static bool type_holds_words(const json_t *type, const pst_feature *f, const score_words *w)
{
    const char *name = json_is_object(type) ? json_string_value(json_object_get(type, "type")) : json_string_value(type);
    double number;
    bool numeric = name && (!strcmp(name, "int") || !strcmp(name, "long") || !strcmp(name, "float") || !strcmp(name, "double"));
    if (!name || !strcmp(name, "null"))
        return false;
    if (!strcmp(name, "boolean"))
        return score_words_text(w, (pst_slice){"true", 4}, &number) || score_words_text(w, (pst_slice){"false", 5}, &number);
    if (strcmp(name, "enum") != 0)
        return !numeric || f->numbers_pass || score_words_have_numbers(w);
    const json_t *symbols = json_object_get(type, "symbols");
    for (size_t i = 0; i < json_array_size(symbols); i++) {
        const char *s = json_string_value(json_array_get(symbols, i));
        if (s && score_words_text(w, (pst_slice){s, strlen(s)}, &number))
            return true;
    }
    return false;
}

/* A field whose type cannot hold any of its words was given the words of another one: every record would be an unknown word. */
static int check_field_words(const pst_feature *f, const char *schema, pst_err *err)
{
    json_t *type = schema ? json_loads(schema, JSON_DECODE_ANY, NULL) : NULL;
    score_words *w = score_words_new(f->vocabulary, f->n_vocabulary);
    bool fits = type == NULL || type_holds_words(type, f, w);
    for (size_t i = 0; !fits && i < json_array_size(type); i++)
        fits = type_holds_words(json_array_get(type, i), f, w);
    if (!fits)
        pst_err_set(
            err, PST_EINCOMPAT, PST_CLASS_DATA, "features", 0,
            "field %s can hold none of its %zu words (the first is \"%.40s\"): its type is %.200s; words of a boolean are true and false, "
            "of a number the numbers",
            f->field, f->n_vocabulary, f->vocabulary[0].text, schema);
    score_words_free(w);
    json_decref(type);
    return fits ? 0 : PST_EINCOMPAT;
}

static int check_words(const pst_decoder *d, const pst_schema *writer, pst_err *err)
{
    pst_columns *look = NULL;
    pst_want *wants = pst_alloc((d->n_features + 1) * sizeof(*wants));
    size_t n = 0;
    for (size_t i = 0; i < d->n_features; i++)
        if (d->features[i].has_vocabulary)
            wants[n++] = (pst_want){d->features[i].field, PST_WANT_RAW, 1};
    int rc = n ? pst_columns_new(writer, wants, n, &look, err) : 0;
    n = 0;
    for (size_t i = 0; rc == 0 && look && i < d->n_features; i++)
        if (d->features[i].has_vocabulary)
            rc = check_field_words(&d->features[i], pst_columns_schema(look, n++), err);
    pst_columns_free(look);
    free(wants);
    return rc;
}

/* A field that does not fit its feature was refused; where that is a text, the refusal is to say what a text needs. */
static void name_text(const pst_decoder *d, const pst_schema *writer, pst_err *err)
{
    for (size_t i = 0; i < d->n_features; i++) {
        pst_columns *look = NULL;
        pst_err e = {0};
        if (!is_words(&d->features[i]) &&
            pst_columns_new(writer, &(pst_want){d->features[i].field, PST_WANT_RAW, 1}, 1, &look, NULL) == 0 &&
            check_text(&d->features[i], pst_columns_schema(look, 0), &e) < 0 && err)
            *err = e;
        pst_columns_free(look);
        if (e.code)
            return;
    }
}

/* The fields of state.key and state.time, behind all others. Returns how many wants there are. */
static size_t want_state(const pst_decoder *d, pst_want *wants, size_t n)
{
    const struct pst_pipeline_state *s = &d->pipeline->state;
    if (s->key)
        wants[n++] = (pst_want){s->key, PST_WANT_WORD, 1};
    if (s->time)
        wants[n++] = (pst_want){s->time, PST_WANT_NUMBER, 1};
    return n;
}

static int check_state(const pst_decoder *d, const pst_schema *writer, pst_err *err)
{
    const struct pst_pipeline_state *s = &d->pipeline->state;
    size_t at = d->n_features + d->n_pass;
    bool no_key = s->key && pst_columns_absent(d->columns, at), no_time = s->time && pst_columns_absent(d->columns, at + (s->key != NULL));
    return no_key || no_time
               ? pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "state", 0, "the records' schema %s has no field %s, which state.%s names",
                             pst_schema_name(writer), no_key ? s->key : s->time, no_key ? "key" : "time")
               : 0;
}

static int plan_columns(pst_decoder *d, const pst_schema *writer, pst_err *err)
{
    int rc = find_arrays(d, writer, err);
    if (rc < 0 || (rc = make_layout(d, err)) < 0)
        return rc;
    pst_want *wants = pst_alloc((d->n_features + d->n_pass + 3) * sizeof(*wants));
    for (size_t i = 0; i < d->n_features; i++) {
        const pst_feature *f = &d->features[i];
        wants[i] = (pst_want){f->field, want_of(f), score_layout_slots(d->layout, i)};
    }
    for (size_t i = 0; i < d->n_pass; i++)
        wants[d->n_features + i] = (pst_want){d->pipeline->passthrough[i], PST_WANT_RAW, 1};
    size_t n_wants = want_state(d, wants, d->n_features + d->n_pass);
    rc = pst_columns_new(writer, wants, n_wants, &d->columns, err);
    free(wants);
    if (rc == PST_EINCOMPAT)
        name_text(d, writer, err);
    for (size_t i = 0; rc == 0 && i < d->n_features; i++) {
        if (pst_columns_absent(d->columns, i) && d->features[i].missing == PST_MISSING_REJECT)
            rc = no_such_field(writer, &d->features[i], err);
    }
    if (rc == 0)
        rc = check_state(d, writer, err);
    return rc < 0 ? rc : check_words(d, writer, err);
}

int pst_decoder_new(const pst_pipeline *p, pst_binding *b, const pst_schema *writer, pst_decoder **ret_decoder, pst_err *err)
{
    pst_decoder *d = pst_alloc(sizeof(*d));
    d->pipeline = p;
    d->binding = b;
    d->features = pst_binding_features(b, &d->n_features);
    d->n_pass = p->n_passthrough;
    d->arrays = pst_alloc((d->n_features + 1) * sizeof(bool));
    d->windowed = p->state.there;
    d->missing = pst_alloc(d->n_features + d->n_pass + 3);
    d->texts = pst_alloc((d->n_features + d->n_pass + 3) * sizeof(*d->texts));
    d->digits = pst_alloc((d->n_features + 1) * sizeof(*d->digits));
    for (size_t i = 0; i < d->n_features; i++)
        d->words |= is_words(&d->features[i]);
    d->words |= d->windowed;
    int rc = writer ? plan_columns(d, writer, err) : 0;
    if (rc == 0 && d->layout)
        d->numbers = pst_alloc((score_layout_width(d->layout) + 3) * sizeof(double));
    if (rc < 0) {
        pst_decoder_free(d);
        return rc;
    }
    *ret_decoder = d;
    return 0;
}

void pst_decoder_free(pst_decoder *d)
{
    if (!d)
        return;
    pst_columns_free(d->columns);
    score_layout_free(d->layout);
    free(d->numbers);
    free(d->missing);
    free(d->texts);
    free(d->digits);
    free(d->arrays);
    free(d);
}

const char *pst_decoder_pass_schema(const pst_decoder *d, size_t i)
{
    return d->columns ? pst_columns_schema(d->columns, d->n_features + i) : NULL;
}

bool pst_decoder_is_json(const pst_decoder *d)
{
    return !d->columns;
}

bool pst_decoder_is_laid_out(const pst_decoder *d)
{
    return d->layout != NULL;
}

bool pst_decoder_has_no_field(const pst_decoder *d)
{
    size_t absent = 0;
    while (d->columns && absent < d->n_features && pst_columns_absent(d->columns, absent))
        absent++;
    return d->n_features && absent == d->n_features;
}

static int fault(pst_decode_fault *f, int code, const char *stage, const char *reason)
{
    *f = (pst_decode_fault){stage, reason};
    return code;
}

/* ---- windows --------------------------------------------------------------------------------------------------------------- */

void pst_decoder_windows(pst_decoder *d, pst_decode_windows *w)
{
    d->windows = w;
}

static int no_key(const pst_decoder *d, const char *what, pst_decode_fault *ret_fault, pst_err *err)
{
    const char *field = d->pipeline->state.key;
    pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "state", 0, "%s%s %s, so that it is not known whose windows are to be read%s",
                field ? "field " : "the record's key", field ? field : "", what, field ? "" : "; state.key names a field instead");
    return fault(ret_fault, PST_EINVAL, "MAP", "no-key");
}

/* text: of the field, data NULL where it holds a number. */
static int take_key(pst_decoder *d, pst_slice text, double number, bool missing, pst_decode_fault *ret_fault, pst_err *err)
{
    pst_decode_windows *w = d->windows;
    if (!d->pipeline->state.key) {
        text = (pst_slice){w->record->key, w->record->key_len};
        missing = !text.data;
    } else if (!missing && !text.data) {
        if (!(fabs(number) <= 0x1p53) || number != floor(number))
            return no_key(d, "is no text and no whole number up to 2^53", ret_fault, err);
        text = (pst_slice){w->room, (size_t)snprintf(w->room, sizeof(w->room), "%.0f", number)};
    }
    if (missing)
        return no_key(d, "is null or absent", ret_fault, err);
    if (text.len > PST_KEYED_KEY_MAX) {
        pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "state", 0, "a key of %zu bytes is longer than the limit of %d", text.len,
                    PST_KEYED_KEY_MAX);
        return fault(ret_fault, PST_ELIMIT, "MAP", "limits");
    }
    if (d->pipeline->state.key && text.data != w->room && text.len)
        memcpy(w->room, text.data, text.len);
    w->key = (pst_slice){d->pipeline->state.key ? w->room : text.data, text.len};
    return 0;
}

static int take_time(pst_decoder *d, double number, bool missing, pst_decode_fault *ret_fault, pst_err *err)
{
    const char *field = d->pipeline->state.time;
    double ms = field ? number : (double)d->windows->record->timestamp_ms;
    if (field && (missing || !(ms >= 0))) {
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "state", 0, "field %s, which state.time names, %s", field,
                    missing ? "is null or absent" : "is no time in milliseconds");
        return fault(ret_fault, PST_EINVAL, "MAP", "bad-input");
    }
    if (ms > (double)PST_KEYED_TIME_MAX) {
        pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "state", 0, "the record's time, %.17g ms, is beyond all times", ms);
        return fault(ret_fault, PST_ELIMIT, "MAP", "limits");
    }
    d->windows->time_ms = ms < 0 ? -1 : (int64_t)ms;
    return 0;
}

/* The row holds what the record has for each field; a window's slot gets what the window has to say. */
static void read_windows(pst_decoder *d, double *row, uint8_t *missing)
{
    pst_decode_windows *w = d->windows;
    for (size_t i = 0; w && i < d->n_features; i++)
        if (d->features[i].window.there)
            w->x[d->features[i].window.series] = missing[i] ? NAN : row[score_layout_start(d->layout, i)];
    if (w)
        pst_keyed_read(w->keyed, w->key, w->time_ms, w->x, w->values);
    for (size_t i = 0; i < d->n_features; i++) {
        if (!d->features[i].window.there)
            continue;
        double v = w ? w->values[d->features[i].window.index] : 0;
        missing[i] = isnan(v);
        row[score_layout_start(d->layout, i)] = v;
    }
}

/* ---- Avro ------------------------------------------------------------------------------------------------------------------ */

/* numbers: behind those of the features. */
static int take_state(pst_decoder *d, const double *numbers, pst_decode_fault *ret_fault, pst_err *err)
{
    const struct pst_pipeline_state *s = &d->pipeline->state;
    size_t key = d->n_features + d->n_pass, time = key + (s->key != NULL);
    int rc = take_key(d, d->texts[key], numbers[0], s->key && d->missing[key], ret_fault, err);
    return rc < 0 ? rc : take_time(d, numbers[s->key != NULL], s->time && d->missing[time], ret_fault, err);
}

static int run_avro(pst_decoder *d, const void *bytes, size_t len, double *row, uint8_t *ret_missing, pst_slice *ret_pass,
                    pst_decode_fault *ret_fault, pst_err *err)
{
    double *numbers = d->words ? d->numbers : row;
    int rc = pst_columns_run(d->columns, bytes, len, numbers, d->missing, d->texts, err);
    if (rc < 0)
        return fault(ret_fault, rc, "DECODE", rc == PST_ELIMIT ? "limits" : "bad-input");
    if (d->words) {
        size_t from = 0;
        for (size_t i = 0; i < d->n_features; i++) {
            size_t n = numbers_of(d->layout, &d->features[i], i);
            memcpy(row + score_layout_start(d->layout, i), numbers + from, n * sizeof(double));
            from += n;
        }
        if (d->windows && (rc = take_state(d, numbers + from, ret_fault, err)) < 0)
            return rc;
    }
    memcpy(ret_missing, d->missing, d->n_features);
    for (size_t i = 0; i < d->n_pass; i++)
        ret_pass[i] = d->missing[d->n_features + i] ? (pst_slice){0} : d->texts[d->n_features + i];
    return 0;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------ */

/* "cpu.user": a top-level key of that very name, else the way down. */
static const json_t *find(const json_t *root, const char *path)
{
    const json_t *v = json_object_get(root, path);
    if (v)
        return v;
    const json_t *at = root;
    char part[256];
    while (at) {
        const char *dot = strchr(path, '.');
        size_t n = dot ? (size_t)(dot - path) : strlen(path);
        if (n >= sizeof(part))
            return NULL;
        memcpy(part, path, n);
        part[n] = 0;
        at = json_object_get(at, part);
        if (!dot)
            return at;
        path = dot + 1;
        if (at && (v = json_object_get(at, path))) /* "a.b.c": key "b.c" inside a */
            return v;
    }
    return NULL;
}

static bool json_to_number(const json_t *v, double *ret)
{
    if (json_is_number(v))
        *ret = json_number_value(v);
    else if (json_is_boolean(v))
        *ret = json_is_true(v);
    else
        return false;
    return true;
}

static int bad_field(const pst_feature *f, const char *wanted, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "field %s is no %s", f->field, wanted);
}

static int no_number(const pst_feature *f, const json_t *v, pst_err *err)
{
    if (!json_is_string(v))
        return bad_field(f, "number", err);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "field %s is text, and no number; %s", f->field, WORDS_CURE);
}

static int json_feature(pst_decoder *d, const json_t *v, size_t i, double *x, pst_err *err)
{
    const pst_feature *f = &d->features[i];
    uint32_t slots = score_layout_slots(d->layout, i);
    if (f->text && json_is_integer(v)) { /* a code that the model knows as text */
        int n = snprintf(d->digits[i], sizeof(d->digits[i]), "%lld", (long long)json_integer_value(v));
        d->texts[i] = (pst_slice){d->digits[i], (size_t)n};
        return 0;
    }
    if (is_words(f)) {
        d->texts[i] = (pst_slice){0};
        if (f->has_vocabulary && json_is_number(v)) {
            *x = json_number_value(v);
            return 0;
        }
        if (f->has_vocabulary && json_is_boolean(v)) {
            d->texts[i] = json_is_true(v) ? (pst_slice){"true", 4} : (pst_slice){"false", 5};
            return 0;
        }
        if (!json_is_string(v))
            return bad_field(f, f->has_vocabulary ? "text, number or boolean" : "text", err);
        d->texts[i] = (pst_slice){json_string_value(v), json_string_length(v)};
        return 0;
    }
    if (!json_is_array(v)) {
        if (slots != 1 && !json_is_string(v))
            return bad_field(f, "list of numbers", err);
        return json_to_number(v, x) ? 0 : no_number(f, v, err);
    }
    if (json_array_size(v) != slots)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "field %s has %zu elements, %u are wanted", f->field,
                           json_array_size(v), slots);
    for (uint32_t s = 0; s < slots; s++) {
        const json_t *e = json_array_get(v, s);
        if (json_is_null(e))
            x[s] = NAN;
        else if (!json_to_number(e, &x[s]))
            return bad_field(f, "list of numbers", err);
    }
    return 0;
}

/* One value as Avro of PST_JSON_PASS_SCHEMA. */
static void json_pass(const json_t *v, pst_buf *out)
{
    if (json_is_boolean(v)) {
        pst_avro_put_long(out, 1);
        pst_buf_addc(out, json_is_true(v) ? 1 : 0);
    } else if (json_is_integer(v)) {
        pst_avro_put_long(out, 2);
        pst_avro_put_long(out, json_integer_value(v));
    } else if (json_is_real(v)) {
        pst_avro_put_long(out, 3);
        pst_avro_put_double(out, json_real_value(v));
    } else if (json_is_string(v)) {
        pst_avro_put_long(out, 4);
        pst_avro_put_bytes(out, json_string_value(v), json_string_length(v));
    } else {
        char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
        pst_avro_put_long(out, 4);
        pst_avro_put_bytes(out, text ? text : "", text ? strlen(text) : 0);
        free(text);
    }
}

static int take_json_state(pst_decoder *d, const json_t *root, pst_decode_fault *ret_fault, pst_err *err)
{
    const struct pst_pipeline_state *s = &d->pipeline->state;
    const json_t *key = s->key ? find(root, s->key) : NULL, *time = s->time ? find(root, s->time) : NULL;
    pst_slice text = {json_string_value(key), json_string_length(key)};
    if (json_is_boolean(key))
        text = json_is_true(key) ? (pst_slice){"true", 4} : (pst_slice){"false", 5};
    int rc = take_key(d, text, json_is_number(key) ? json_number_value(key) : NAN, !key || json_is_null(key), ret_fault, err);
    return rc < 0 ? rc : take_time(d, json_is_number(time) ? json_number_value(time) : NAN, !time || json_is_null(time), ret_fault, err);
}

static int run_json(pst_decoder *d, const json_t *root, double **row, uint8_t *ret_missing, pst_slice *ret_pass, pst_buf *arena,
                    pst_decode_fault *ret_fault, pst_err *err)
{
    int rc;
    if (!d->layout) {
        for (size_t i = 0; i < d->n_features; i++)
            d->arrays[i] = !d->features[i].slots && json_is_array(find(root, d->features[i].field));
        if ((rc = make_layout(d, err)) < 0)
            return fault(ret_fault, rc, "MAP", "bad-input");
        *row = pst_binding_scratch(d->binding, score_layout_width(d->layout));
    }
    for (size_t i = 0; i < d->n_features; i++) {
        const json_t *v = find(root, d->features[i].field);
        ret_missing[i] = !v || json_is_null(v);
        rc = ret_missing[i] ? 0 : json_feature(d, v, i, *row + score_layout_start(d->layout, i), err);
        if (rc < 0)
            return fault(ret_fault, rc, "DECODE", "bad-input");
    }
    if (d->windows && (rc = take_json_state(d, root, ret_fault, err)) < 0)
        return rc;
    for (size_t i = 0; i < d->n_pass; i++) {
        const json_t *v = find(root, d->pipeline->passthrough[i]);
        ret_pass[i] = (pst_slice){0};
        if (!v || json_is_null(v))
            continue;
        size_t at = arena->len;
        json_pass(v, arena);
        ret_pass[i] = (pst_slice){(const void *)(uintptr_t)(at + 1), arena->len - at};
    }
    return 0;
}

static int parse_json(const void *bytes, size_t len, json_t **ret, pst_decode_fault *ret_fault, pst_err *err)
{
    json_error_t e;
    if (len > PST_AVRO_BYTES_MAX)
        return fault(
            ret_fault,
            pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "json", 0, "%zu bytes are more than the limit of %u", len, PST_AVRO_BYTES_MAX),
            "DECODE", "limits");
    json_t *j = json_loadb(bytes, len, 0, &e);
    if (!j)
        return fault(ret_fault,
                     pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "json", 0, "is no JSON: %.120s at byte %d", e.text, e.position), "DECODE",
                     "bad-envelope");
    if (!json_is_object(j)) {
        json_decref(j);
        return fault(ret_fault, pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "json", 0, "is JSON, but no object with fields"), "DECODE",
                     "bad-input");
    }
    *ret = j;
    return 0;
}

static int put_texts(pst_decoder *d, size_t row, const uint8_t *missing, pst_decode_fault *ret_fault, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && d->words && i < d->n_features; i++)
        if (d->features[i].text)
            rc =
                pst_binding_put_text(d->binding, row, score_layout_start(d->layout, i),
                                     !missing[i]                 ? d->texts[i]
                                     : d->features[i].value_text ? (pst_slice){d->features[i].value_text, strlen(d->features[i].value_text)}
                                                                 : (pst_slice){0},
                                     err);
    return rc < 0 ? fault(ret_fault, rc, "MAP", "limits") : 0;
}

/* The row is in its place, as far as the model's type goes. */
static void tell_beyond(const pst_decoder *d, size_t slot, double x, pst_decode_fault *ret_fault, pst_err *err)
{
    size_t i = 0;
    while (i + 1 < d->n_features &&
           (slot < score_layout_start(d->layout, i) || slot >= score_layout_start(d->layout, i) + score_layout_slots(d->layout, i)))
        i++;
    *ret_fault = (pst_decode_fault){"MAP", PST_REASON_NON_FINITE};
    pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "features", 0, "field %s: %.17g is beyond the numbers of the model's input",
                d->features[i].field, x);
}

int pst_decoder_run(pst_decoder *d, const void *bytes, size_t len, size_t row, uint8_t *ret_missing, pst_slice *ret_pass, pst_buf *arena,
                    pst_decode_fault *ret_fault, pst_err *err)
{
    json_t *json = NULL;
    double *x = d->layout ? pst_binding_scratch(d->binding, score_layout_width(d->layout)) : NULL;
    int rc;
    PST_ASSERT(d->layout || !d->columns); /* only JSON is laid out by its first record */
    if (d->columns) {
        rc = run_avro(d, bytes, len, x, ret_missing, ret_pass, ret_fault, err);
    } else {
        rc = parse_json(bytes, len, &json, ret_fault, err);
        if (rc == 0)
            rc = run_json(d, json, &x, ret_missing, ret_pass, arena, ret_fault, err);
    }
    if (rc == 0) {
        const char *reason = NULL;
        if (d->windowed)
            read_windows(d, x, ret_missing);
        rc = score_layout_row(d->layout, x, ret_missing, d->texts, x, &reason, err);
        if (rc < 0) {
            fault(ret_fault, rc, "MAP", reason);
        } else {
            size_t slot = pst_binding_put(d->binding, row, x);
            rc = put_texts(d, row, ret_missing, ret_fault, err);
            if (rc == 0 && slot < score_layout_width(d->layout))
                tell_beyond(d, slot, x[slot], ret_fault, err);
        }
    }
    json_decref(json);
    return rc;
}

/* Slots and elements of one field; absent: a null, or nothing, may stand for any number of them. */
static int field_fills(const pst_feature *f, const json_t *v, uint32_t slots, pst_err *err)
{
    if (is_words(f) || !v || json_is_null(v))
        return 0;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n == slots)
        return 0;
    if (!json_is_array(v))
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "json", 0, "field %s is one number, a list of %u is wanted", f->field,
                           slots);
    return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "json", 0, "field %s has %zu elements, %u are wanted", f->field, n, slots);
}

/* Which lists a record has decides how many slots each field fills, so one record tells whether the model's width can be met. A field that
 * is not there is named first where that fails: it is the likelier cause. */
int pst_decoder_json_fills(const pst_decoder *d, const void *bytes, size_t len, pst_err *err)
{
    json_t *root = NULL;
    pst_decode_fault fault_at;
    score_layout *l = NULL;
    const char *absent = NULL, *text = NULL;
    int rc = parse_json(bytes, len, &root, &fault_at, err);
    if (rc < 0)
        return rc;
    bool *arrays = pst_alloc((d->n_features + 1) * sizeof(bool));
    for (size_t i = 0; i < d->n_features; i++) {
        const json_t *v = find(root, d->features[i].field);
        bool open = !d->features[i].slots && !is_words(&d->features[i]);
        arrays[i] = open && json_is_array(v);
        if (open && !absent && (!v || json_is_null(v)))
            absent = d->features[i].field;
        if (!is_words(&d->features[i]) && json_is_string(v))
            text = d->features[i].field;
    }
    if (score_layout_new(d->features, d->n_features, arrays, pst_binding_width(d->binding), &l, err) < 0) {
        if (text && err)
            pst_err_prefix(err, "field %s is text, and no number; %s", text, WORDS_CURE);
        else if (absent && err)
            pst_err_prefix(err, "there is no field %s", absent);
        rc = PST_EINCOMPAT;
    }
    for (size_t i = 0; rc == 0 && i < d->n_features; i++)
        rc = field_fills(&d->features[i], find(root, d->features[i].field), score_layout_slots(l, i), err);
    if (rc == PST_EINCOMPAT && err)
        err->code = rc;
    score_layout_free(l);
    free(arrays);
    json_decref(root);
    return rc;
}

char *pst_decoder_explain(const pst_decoder *d)
{
    return d->columns ? pst_columns_explain(d->columns) : pst_strdup("JSON objects by dotted paths\n");
}
