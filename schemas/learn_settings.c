/* learn_settings.c - the settings of the built-in learner: each value by its row of manifest_keys.c, every violation said, then what no row can
 * see alone (a target that is also a feature, a loss that does not go with classes). */
#include "schemas/learn_settings.h"

#include "common/base/fs.h"
#include "common/base/buf.h"
#include "common/base/hash.h"
#include "schemas/manifest_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 32 }; /* of one section */

typedef struct reader {
    const json_t *obj;
    const char *path;    /* in the file, for complaints: "framework.command" as well */
    const char *section; /* of the keys' rows */
    pst_complaints *errors;
} reader;

static void wrong(const reader *r, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void wrong(const reader *r, const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pst_buf text = {0};
    pst_buf_vprintf(&text, fmt, ap);
    va_end(ap);
    char *field = pst_sprintf("%s%s%s", r->path, *r->path && *key ? "." : "", key);
    pst_complain(r->errors, field, 0, "%s", text.data);
    free(field);
    pst_buf_done(&text);
}

static const char *found(const json_t *v, char buf[80])
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(buf, 80, "%.60s%s", text ? text : "?", text && strlen(text) > 60 ? "…" : "");
    free(text);
    return buf;
}

static const json_t *value_of(const reader *r, const char *key)
{
    const json_t *v = json_object_get(r->obj, key);
    return json_is_null(v) ? NULL : v;
}

/* The row of a key that the code reads: there is one, or the code and the table are not about the same file. */
static const pst_key *row_of(const reader *r, const char *key)
{
    const pst_key *k = pst_keys_find(&pst_manifest_keys, r->section, key);
    PST_ASSERT(k);
    return k;
}

/* Index among the row's words. otherwise: where the row has no default, because it depends on other keys. */
static int get_word(const reader *r, const char *key, int otherwise)
{
    char what[80];
    const pst_key *k = row_of(r, key);
    const int def = k->def ? pst_key_word(k, k->def) : otherwise;
    const json_t *v = value_of(r, key);
    if (!v)
        return def;
    const char *t = json_string_value(v);
    int at = t ? pst_key_word(k, t) : -1;
    if (at >= 0)
        return at;
    pst_buf list = {0};
    size_t n = 0;
    for (; k->words[n]; n++)
        pst_buf_printf(&list, "%s%s", n ? ", " : "", k->words[n]);
    const char *near = t ? pst_nearest(t, k->words, n) : NULL;
    wrong(r, key, "must be one of %s, found %s%s%s%s", list.data, found(v, what), near ? "; did you mean " : "", near ? near : "",
          near ? "?" : "");
    pst_buf_done(&list);
    return def;
}

static int64_t get_int(const reader *r, const char *key)
{
    char what[80];
    const pst_key *k = row_of(r, key);
    const int64_t min = (int64_t)k->lo, max = pst_key_hi(k), def = k->def ? strtoll(k->def, NULL, 10) : 0;
    const json_t *v = value_of(r, key);
    if (!v)
        return def;
    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max)
        return json_integer_value(v);
    wrong(r, key, "must be a whole number from %lld to %lld, found %s", (long long)min, (long long)max, found(v, what));
    return def;
}

static double get_num(const reader *r, const char *key)
{
    char what[80];
    const pst_key *k = row_of(r, key);
    const double def = k->def ? strtod(k->def, NULL) : 0;
    const json_t *v = value_of(r, key);
    if (!v)
        return def;
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if ((k->above ? x > k->lo : x >= k->lo) && x <= k->hi)
        return x;
    wrong(r, key, "must be a number %s %g and at most %g, found %s", k->above ? "above" : "from", k->lo, k->hi, found(v, what));
    return def;
}

static char *get_text(const reader *r, const char *key)
{
    char what[80];
    const json_t *v = value_of(r, key);
    if (!v)
        return NULL;
    if (json_is_string(v) && json_string_length(v) > 0 && json_string_length(v) <= 1000 &&
        strlen(json_string_value(v)) == json_string_length(v))
        return pst_strdup(json_string_value(v));
    wrong(r, key, "must be a text, found %s", found(v, what));
    return NULL;
}

static void check_keys(const reader *r)
{
    const char *key, *known[KEYS_MAX];
    json_t *v;
    size_t n = pst_keys_names(&pst_manifest_keys, r->section, known, KEYS_MAX);
    json_object_foreach((json_t *)r->obj, key, v)
    {
        bool is_known = pst_keys_find(&pst_manifest_keys, r->section, key) != NULL;
        const char *near = is_known ? NULL : pst_nearest(key, known, n);
        if (!is_known && near)
            wrong(r, key, "is not a known key; did you mean %s?", near);
        else if (!is_known)
            wrong(r, key, "is not a known key");
    }
}

/* ---- parts --------------------------------------------------------------------------------------------------------------------- */

/* "" for what cannot be one. */
static char *class_name(const json_t *c)
{
    if (json_is_integer(c))
        return pst_sprintf("%lld", (long long)json_integer_value(c));
    if (json_is_boolean(c))
        return pst_strdup(json_is_true(c) ? "true" : "false");
    return pst_strdup(json_is_string(c) ? json_string_value(c) : "");
}

static const char *const of_numbers[] = {"scale", "offset", "value", "slots", "noise"};

/* `one_hot: learn`, or the list of the words. */
static void read_words(const reader *r, pst_learn_feature *f)
{
    char what[80];
    const json_t *v = value_of(r, "one_hot");
    size_t n = json_array_size(v);
    if (json_is_string(v) && !strcmp(json_string_value(v), "learn")) {
        f->learn_words = true;
        return;
    }
    if (!json_is_array(v) || n < 1 || n > PST_LEARN_WORDS_MAX) {
        wrong(r, "one_hot", "must be a list of 1 to %d words, or learn, found %s", PST_LEARN_WORDS_MAX, found(v, what));
        return;
    }
    f->words = pst_alloc(n * sizeof *f->words);
    for (size_t i = 0; i < n; i++) {
        const json_t *w = json_array_get(v, i);
        char *name = class_name(w);
        f->words[f->n_words++] = name;
        if (!*name)
            wrong(r, "one_hot", "word %zu must be a text, a whole number or a boolean, found %s", i, found(w, what));
        for (size_t k = 0; k < i; k++)
            if (*name && !strcmp(f->words[k], name))
                wrong(r, "one_hot", "%s is there twice", name);
    }
}

/* Of the keys beside one_hot: what is for words alone, what for numbers alone, and what of both goes together. */
static void read_one_hot(const reader *r, pst_learn_feature *f)
{
    f->one_hot = value_of(r, "one_hot") != NULL;
    f->unknown = (pst_learn_unknown)get_word(r, "unknown", 0);
    f->words_max = (int)get_int(r, "words_max");
    if (f->one_hot)
        read_words(r, f);
    if (value_of(r, "unknown") && !f->one_hot)
        wrong(r, "unknown", "is for words: it needs one_hot");
    if (value_of(r, "words_max") && !f->learn_words)
        wrong(r, "words_max", "is for words that are learnt: it needs one_hot: learn");
    if (f->missing == PST_LEARN_MISSING_ZEROS && !f->one_hot)
        wrong(r, "missing", "zeros is for one_hot; for a number write value: 0");
    if (!f->one_hot)
        return;
    for (size_t i = 0; i < sizeof of_numbers / sizeof *of_numbers; i++)
        if (value_of(r, of_numbers[i]))
            wrong(r, of_numbers[i], "is for numbers; one_hot makes slots of 0 and 1");
    if (f->learn_words && f->unknown == PST_LEARN_UNKNOWN_REJECT)
        wrong(r, "unknown", "reject goes with a list of words; where they are learnt, those beyond words_max are zeros or other");
    if (!value_of(r, "missing"))
        f->missing = PST_LEARN_MISSING_ZEROS;
    else if (f->missing != PST_LEARN_MISSING_ZEROS && f->missing != PST_LEARN_MISSING_REJECT)
        wrong(r, "missing", "must be zeros or reject: there is no %s of words", f->missing == PST_LEARN_MISSING_MEAN ? "mean" : "number");
}

/* Slots that a feature will fill at most. */
static int64_t width_of(const pst_learn_feature *f)
{
    if (!f->one_hot)
        return f->slots;
    return (f->learn_words ? f->words_max : f->n_words) + (f->unknown == PST_LEARN_UNKNOWN_OTHER);
}

static void read_feature(const reader *r, const json_t *v, pst_learn_feature *f)
{
    *f = (pst_learn_feature){.scale = 1, .slots = 1};
    if (json_is_string(v)) {
        reader one = {json_pack("{s:O}", "field", (json_t *)v), r->path, r->section, r->errors};
        f->field = get_text(&one, "field");
        json_decref((json_t *)one.obj);
        return;
    }
    if (!json_is_object(v)) {
        wrong(r, "", "must be a field's name or {field, scale, offset, missing, value, slots, noise, one_hot, words_max, unknown}");
        return;
    }
    reader o = {v, r->path, r->section, r->errors};
    check_keys(&o);
    f->field = get_text(&o, "field");
    if (!f->field && !value_of(&o, "field"))
        wrong(&o, "field", "is missing");
    f->scale = get_num(&o, "scale");
    f->offset = get_num(&o, "offset");
    f->missing = (pst_learn_missing)get_word(&o, "missing", PST_LEARN_MISSING_MEAN);
    f->noise = get_num(&o, "noise");
    f->slots = (int)get_int(&o, "slots");
    if (f->scale == 0)
        wrong(&o, "scale", "is 0: the model would see the same number for every record");
    if (value_of(&o, "value")) {
        f->value = get_num(&o, "value");
        if (f->missing != PST_LEARN_MISSING_VALUE && value_of(&o, "missing"))
            wrong(&o, "value", "is used only with missing: value");
        f->missing = PST_LEARN_MISSING_VALUE; /* a value alone says what it is for */
    } else if (f->missing == PST_LEARN_MISSING_VALUE)
        wrong(&o, "value", "is missing: missing: value needs the number that stands for a missing one");
    read_one_hot(&o, f);
}

/* All that is wrong is complained of at once, with its place; a feature that is counted is one that can be freed, right or wrong. Called after
 * read_target: a feature must not be the target. */
static void read_features(const reader *r, pst_learn_settings *s)
{
    char what[80];
    const json_t *list = value_of(r, "features");
    if (!list)
        return;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || !n || n > PST_LEARN_COLUMNS_MAX) {
        wrong(r, "features", "must be a list of 1 to %d fields, or be left out for every number of the records; found %s",
              PST_LEARN_COLUMNS_MAX, found(list, what));
        return;
    }
    s->features = pst_alloc(n * sizeof *s->features);
    int64_t columns = 0;
    for (size_t i = 0; i < n; i++) {
        char *path = pst_sprintf("%s.features[%zu]", r->path, i);
        reader one = {NULL, path, "penstock.learner.features[]", r->errors};
        pst_learn_feature *f = &s->features[s->n_features++];
        read_feature(&one, json_array_get(list, i), f);
        columns += width_of(f);
        for (size_t k = 0; k < i && f->field; k++)
            if (s->features[k].field && !strcmp(s->features[k].field, f->field)) {
                wrong(&one, "", "%s is there twice", f->field);
                break;
            }
        if (f->field && s->target && !strcmp(f->field, s->target))
            wrong(&one, "", "%s is the target: the model would be given what it shall find out", f->field);
        free(path);
    }
    if (columns > PST_LEARN_COLUMNS_MAX)
        wrong(r, "features", "fill %lld slots, at most %d are allowed", (long long)columns, PST_LEARN_COLUMNS_MAX);
}

static void read_classes(const reader *r, pst_learn_settings *s)
{
    char what[80];
    const json_t *v = value_of(r, "classes");
    if (!v)
        return;
    if (json_is_integer(v)) {
        s->n_classes = (int)get_int(r, "classes");
        return;
    }
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n < 2 || n > PST_LEARN_CLASSES_MAX) {
        wrong(r, "classes", "must be their number or the list of their names, 2 to %d, found %s", PST_LEARN_CLASSES_MAX, found(v, what));
        return;
    }
    s->classes = pst_alloc(n * sizeof *s->classes);
    for (size_t i = 0; i < n; i++) {
        const json_t *c = json_array_get(v, i);
        char *name = class_name(c);
        s->classes[s->n_classes++] = name;
        if (!*name)
            wrong(r, "classes", "the name of class %zu must be a text or a whole number, found %s", i, found(c, what));
        for (size_t k = 0; k < i; k++)
            if (*name && !strcmp(s->classes[k], name))
                wrong(r, "classes", "%s is there twice", name);
    }
}

static void read_hidden(const reader *r, pst_learn_settings *s)
{
    char what[80];
    const json_t *v = value_of(r, "hidden");
    if (!v) {
        static const int layers[2][3] = {{8, 4, 8}, {16, 16, 0}};
        s->n_hidden = s->autoencoder ? 3 : 2;
        memcpy(s->hidden, layers[!s->autoencoder], sizeof layers[0]);
        return;
    }
    bool good = json_is_array(v) && json_array_size(v) <= PST_LEARN_HIDDEN_MAX && (json_array_size(v) || !s->autoencoder);
    for (size_t i = 0; good && i < json_array_size(v); i++) {
        const json_t *w = json_array_get(v, i);
        good = json_is_integer(w) && json_integer_value(w) >= 1 && json_integer_value(w) <= PST_LEARN_WIDTH_MAX;
        if (good)
            s->hidden[s->n_hidden++] = (int)json_integer_value(w);
    }
    if (!good)
        wrong(r, "hidden", "must be a list of %d to %d widths from 1 to %d, such as [8, 4, 8], found %s", s->autoencoder ? 1 : 0,
              PST_LEARN_HIDDEN_MAX, PST_LEARN_WIDTH_MAX, found(v, what));
}

static void read_target(const reader *r, pst_learn_settings *s)
{
    s->target = get_text(r, "target");
    read_classes(r, s);
    s->leave_out_others = get_word(r, "other_classes", 0) == 1;
    if (value_of(r, "other_classes") && !value_of(r, "classes"))
        wrong(r, "other_classes", "needs classes: it says what becomes of records that have none of them");
    if (s->autoencoder) {
        if (value_of(r, "target"))
            wrong(r, "target", "an autoencoder has no target: it learns to give back its features; use model: mlp");
        if (value_of(r, "classes"))
            wrong(r, "classes", "an autoencoder has no classes; use model: mlp");
    } else if (!value_of(r, "target"))
        wrong(r, "target", "is missing: the field that model: mlp learns to tell from the features");
    s->loss = (pst_loss)get_word(r, "loss", s->n_classes ? PST_LOSS_CROSS_ENTROPY : PST_LOSS_MSE);
    if (s->loss == PST_LOSS_CROSS_ENTROPY && !s->n_classes && !value_of(r, "classes"))
        wrong(r, "loss", "cross_entropy needs classes: their number or names");
    if (s->loss == PST_LOSS_MSE && s->n_classes)
        wrong(r, "loss", "mse does not go with classes; leave loss out, or take cross_entropy");
}

/* Order matters: model says whether there is a target, the target's classes say the loss, and features are checked against the target. Whatever is
 * wrong, *ret_settings can be freed afterwards. */
int pst_learn_settings_parse(const json_t *settings, const char *path, pst_learn_settings *ret_settings, pst_complaints *errors)
{
    pst_learn_settings *s = ret_settings;
    *s = (pst_learn_settings){0};
    size_t before = errors->n;
    json_t *empty = json_object();
    reader r = {settings ? settings : empty, path, "penstock.learner", errors};
    if (!json_is_object(r.obj)) {
        wrong(&r, "", "must be a mapping: model, features, hidden, epochs, …");
        json_decref(empty);
        return PST_EINVAL;
    }
    check_keys(&r);
    s->autoencoder = get_word(&r, "model", value_of(&r, "target") ? 1 : 0) == 0;
    read_target(&r, s);
    read_features(&r, s);
    read_hidden(&r, s);
    s->activation = (pst_activation)get_word(&r, "activation", s->autoencoder ? PST_ACTIVATION_TANH : PST_ACTIVATION_RELU);
    s->epochs = get_int(&r, "epochs");
    s->batch = (int)get_int(&r, "batch");
    s->learning_rate = get_num(&r, "learning_rate");
    s->weight_decay = get_num(&r, "weight_decay");
    s->validation = get_num(&r, "validation");
    s->seed = (uint64_t)get_int(&r, "seed");
    s->patience = get_int(&r, "patience");
    s->checkpoint_every = get_int(&r, "checkpoint_every");
    s->staleness = get_int(&r, "staleness");
    s->peer_timeout = (int)get_int(&r, "peer_timeout");
    s->data = get_text(&r, "data");
    if (s->patience && s->validation == 0)
        wrong(&r, "patience", "needs a validation part to watch; give validation: 0.1, say");
    json_decref(empty);
    return errors->n == before ? 0 : PST_EINVAL;
}

static int settings_of(const pst_manifest *m, pst_learn_settings *ret_settings, pst_complaints *errors)
{
    size_t before = errors->n;
    bool command = m->command && m->command[strspn(m->command, " \t\r\n")];
    if (m->settings || !command) {
        if (command)
            pst_complain(errors, "framework.command", 0,
                         "holds settings of the built-in learner, and so does penstock.learner; keep one of them");
        pst_learn_settings_parse(m->settings, "penstock.learner", ret_settings, errors);
        return errors->n == before ? 0 : PST_EINVAL;
    }
    pst_yaml y = {0};
    pst_err err = {0};
    *ret_settings = (pst_learn_settings){0};
    if (pst_yaml_parse(m->command, strlen(m->command), "framework.command", &y, &err) < 0) {
        pst_complain(errors, "framework.command", 0, "%s", err.text);
        return PST_EINVAL;
    }
    int rc = pst_learn_settings_parse(y.root, "framework.command", ret_settings, errors);
    pst_yaml_done(&y);
    return rc;
}

int pst_learn_settings_of(const pst_manifest *m, pst_learn_settings *ret_settings, pst_complaints *errors)
{
    bool servers = false;
    int rc = settings_of(m, ret_settings, errors);
    for (size_t i = 0; i < m->n_roles; i++)
        servers = servers || !strcmp(m->roles[i].name, "ps");
    if (rc || !ret_settings->staleness || servers)
        return rc;
    pst_complain(errors, m->settings ? "penstock.learner.staleness" : "framework.command.staleness", 0,
                 "needs parameter servers: give penstock.roles.ps how many; around a ring all learners step together");
    return PST_EINVAL;
}

static void feature_done(pst_learn_feature *f)
{
    for (int i = 0; i < f->n_words; i++)
        free(f->words[i]);
    free(f->words);
    free(f->field);
}

void pst_learn_feature_take_words(pst_learn_feature *f, const char *const *words, int n)
{
    PST_ASSERT(f->one_hot && n > 0);
    for (int i = 0; i < f->n_words; i++)
        free(f->words[i]);
    free(f->words);
    f->words = pst_alloc((size_t)n * sizeof *f->words);
    f->n_words = n;
    for (int i = 0; i < n; i++)
        f->words[i] = pst_strdup(words[i]);
}

void pst_learn_settings_done(pst_learn_settings *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_features; i++)
        feature_done(&s->features[i]);
    for (int i = 0; s->classes && i < s->n_classes; i++)
        free(s->classes[i]);
    free(s->features);
    free(s->classes);
    free(s->target);
    free(s->data);
    *s = (pst_learn_settings){0};
}

void pst_learn_settings_take_fields(pst_learn_settings *s, const char *const *fields, int n)
{
    for (int i = 0; i < s->n_features; i++)
        feature_done(&s->features[i]);
    free(s->features);
    s->features = pst_alloc(((size_t)n + 1) * sizeof *s->features);
    s->n_features = n;
    for (int i = 0; i < n; i++)
        s->features[i] = (pst_learn_feature){.field = pst_strdup(fields[i]), .scale = 1, .slots = 1};
}

int pst_learn_columns(const pst_learn_settings *s)
{
    int n = 0;
    for (int i = 0; i < s->n_features; i++)
        n += s->features[i].slots;
    return n;
}

/* epochs, patience and checkpoint_every are left out: a job may be resumed with more of them. */
char *pst_learn_settings_digest(const pst_learn_settings *s)
{
    pst_buf b = {0};
    char hex[65];
    pst_buf_printf(&b, "%d|%s|%d|%d|%d|%d|%.17g|%.17g|%.17g|%llu|", s->autoencoder, s->target ? s->target : "", s->n_classes, (int)s->loss,
                   (int)s->activation, s->batch, s->learning_rate, s->weight_decay, s->validation, (unsigned long long)s->seed);
    for (int i = 0; i < s->n_hidden; i++)
        pst_buf_printf(&b, "%d,", s->hidden[i]);
    for (int i = 0; s->classes && i < s->n_classes; i++)
        pst_buf_printf(&b, "|%s", s->classes[i]);
    pst_sha256_hex(b.data, b.len, hex);
    pst_buf_done(&b);
    return pst_strdup(hex);
}

const char *pst_learn_missing_name(pst_learn_missing m)
{
    return av_learn_missing_words[m];
}

const char *pst_learn_unknown_name(pst_learn_unknown u)
{
    return av_learn_unknown_words[u];
}

const char *pst_activation_name(pst_activation a)
{
    return av_activation_words[a];
}
