/* binding.c - features → model inputs, outputs → score type: everything that is decided when a model is bound. binding_run.c does the rest. */
#include "inference/core/binding_priv.h"

#include "engine/device_of.h"
#include "inference/core/model_run.h"

#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int score_binding_refuse(pst_err *err, const pst_binding *b, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "model", 0, "model %s: %s", b->name, text);
}

/* ---- features -------------------------------------------------------------------------------------------------------------- */

static int features_from_meta(pst_binding *b, const char *text, pst_err *err)
{
    json_t *list = NULL;
    int rc = pst_json_parse(text, strlen(text), "penstock.features", &list, err);
    if (rc < 0)
        return rc;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > PST_PIPELINE_FEATURES_MAX)
        rc = score_binding_refuse(err, b, "its metadata penstock.features is no list of features");
    b->features = pst_alloc((n + 1) * sizeof(*b->features));
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = pst_feature_from_json(json_array_get(list, i), &b->features[i], err);
        if (rc == 0)
            b->n_features++;
        else
            pst_err_prefix(err, "model %s", b->name);
    }
    json_decref(list);
    return rc;
}

/* Means of a feature of the pipeline file, as the model's own mapping knows them. */
static int borrow_means(pst_binding *b, pst_err *err)
{
    pst_binding own = {.name = b->name};
    const char *text = pst_model_meta(b->model, "penstock.features");
    int rc = text ? features_from_meta(&own, text, err) : 0;
    for (size_t i = 0; rc == 0 && i < b->n_features; i++) {
        pst_feature *f = &b->features[i];
        if (f->missing != PST_MISSING_MEAN || f->n_means)
            continue;
        for (size_t k = 0; k < own.n_features && !f->n_means; k++) {
            if (strcmp(own.features[k].field, f->field) != 0 || !own.features[k].n_means)
                continue;
            f->means = own.features[k].means;
            f->n_means = own.features[k].n_means;
            own.features[k].means = NULL;
            own.features[k].n_means = 0;
        }
        if (!f->n_means)
            rc = score_binding_refuse(
                err, b,
                "feature %s has missing: mean, but the model's metadata holds no mean of it; use missing: value, or give mean: NUMBER",
                f->field);
    }
    for (size_t i = 0; i < own.n_features; i++)
        pst_feature_done(&own.features[i]);
    free(own.features);
    return rc;
}

static int take_features(pst_binding *b, const pst_pipeline *p, pst_err *err)
{
    const char *text = pst_model_meta(b->model, "penstock.features");
    int rc = 0;
    if (p->has_features) {
        b->features = pst_alloc((p->n_features + 1) * sizeof(*b->features));
        for (; b->n_features < p->n_features; b->n_features++)
            pst_feature_copy(&p->features[b->n_features], &b->features[b->n_features]);
    } else if (text) {
        rc = features_from_meta(b, text, err);
    } else if (b->info->n_inputs > 1) { /* exported from a table: one input per column, named like it */
        b->features = pst_alloc((b->info->n_inputs + 1) * sizeof(*b->features));
        for (; b->n_features < b->info->n_inputs; b->n_features++)
            b->features[b->n_features] = (pst_feature){.field = pst_strdup(b->info->inputs[b->n_features].name), .scale = 1, .value = NAN};
    } else {
        rc = score_binding_refuse(
            err, b, "it carries no feature mapping (metadata penstock.features) and the pipeline file has no features; list them there");
    }
    return rc < 0 ? rc : borrow_means(b, err);
}

static bool same_name(const char *input_name, const char *field)
{
    for (;; input_name++, field++) {
        if (*input_name != *field && !(*input_name == '_' && *field == '.'))
            return false;
        if (!*field)
            return true;
    }
}

/* A feature of an input of strings: nothing that numbers have means anything there. */
static int make_text(pst_binding *b, pst_feature *f, pst_err *err)
{
    const char *what = NULL;
    if (f->window.there)
        what = "a window";
    else if (f->one_hot)
        what = "one_hot";
    else if (f->has_vocabulary)
        what = "a vocabulary";
    else if (f->scale != 1 || f->offset != 0)
        what = "scale or offset";
    else if (f->has_clip)
        what = "clip";
    else if (f->slots > 1)
        what = "slots";
    else if (f->missing == PST_MISSING_MEAN)
        what = "missing: mean";
    else if (f->missing == PST_MISSING_VALUE && !f->value_text)
        what = "a number as value (write a text)";
    if (what)
        return score_binding_refuse(err, b, "feature %s fills an input of strings with its text: %s does not go with that", f->field, what);
    f->text = true;
    return 0;
}

/* The others take numbers. */
static int check_values(pst_binding *b, pst_err *err)
{
    for (size_t i = 0; i < b->n_features; i++)
        if (b->features[i].window.there && b->features[i].has_vocabulary)
            return score_binding_refuse(err, b, "feature %s is a window, and fills a column of categories: a window gives a number",
                                        b->features[i].field);
    for (size_t i = 0; i < b->n_features; i++)
        if (!b->features[i].text && !b->features[i].one_hot && b->features[i].value_text && isnan(b->features[i].value))
            return score_binding_refuse(err, b, "feature %s fills an input of numbers, its value \"%.40s\" is none", b->features[i].field,
                                        b->features[i].value_text);
    return 0;
}

/* Orders the features by model input; the order inside one input is the file's. */
static int group_features(pst_binding *b, pst_err *err)
{
    if (b->n_inputs == 1) {
        const char *in = b->inputs[0].info->name;
        int one = 0;
        for (size_t i = 0; i < b->n_features; i++)
            if (b->features[i].input && strcmp(b->features[i].input, in) != 0)
                return score_binding_refuse(err, b, "feature %s is for the input %.80s, its only input is %s", b->features[i].field,
                                            b->features[i].input, in);
        for (size_t i = 0; one == 0 && b->inputs[0].info->dtype == PST_STR && i < b->n_features; i++)
            one = make_text(b, &b->features[i], err);
        return one;
    }
    pst_feature *sorted = pst_alloc((b->n_features + 1) * sizeof(*sorted));
    size_t n = 0;
    bool *used = pst_alloc(b->n_features + 1);
    int rc = 0;
    for (size_t k = 0; k < b->n_inputs; k++) {
        const char *in = b->inputs[k].info->name;
        size_t slots = 0, before = n;
        for (size_t i = 0; i < b->n_features; i++) {
            const pst_feature *f = &b->features[i];
            if (used[i] || !(f->input ? !strcmp(in, f->input) : same_name(in, f->field)))
                continue;
            used[i] = true;
            slots += f->slots ? f->slots : 1;
            sorted[n] = *f;
            if (rc == 0 && b->inputs[k].info->dtype == PST_STR)
                rc = make_text(b, &sorted[n], err);
            n++;
        }
        if (rc == 0 && n == before)
            rc = score_binding_refuse(err, b, "no feature feeds its input %s; name a feature like it or give a feature input: %s", in, in);
        /* One array alone in its input: its length is the input's width. */
        if (n == before + 1 && b->inputs[k].width > 1 && !sorted[before].slots && !sorted[before].has_vocabulary && !sorted[before].text)
            slots = sorted[before].slots = (uint32_t)b->inputs[k].width;
        if (!b->inputs[k].width)
            b->inputs[k].width = slots;
        else if (rc == 0 && b->inputs[k].width != slots)
            rc = score_binding_refuse(err, b, "input %s has %zu slots, the features fill %zu", in, b->inputs[k].width, slots);
        if (rc < 0)
            break;
    }
    for (size_t i = 0; rc == 0 && i < b->n_features; i++)
        if (!used[i])
            rc = score_binding_refuse(err, b, "feature %s belongs to none of its %zu inputs", b->features[i].field, b->n_inputs);
    if (rc == 0)
        memcpy(b->features, sorted, b->n_features * sizeof(*sorted));
    free(sorted);
    free(used);
    return rc;
}

/* ---- inputs, outputs ------------------------------------------------------------------------------------------------------- */

/* What one input of the model takes from a record: numbers or texts, so many of them; one dimension at most, the last, may be left to the features. */
static int take_input(pst_binding *b, score_binding_input *in, pst_err *err)
{
    const pst_value_info *v = in->info;
    in->elem = pst_dtype_size(v->dtype);
    switch (v->dtype) {
    case PST_F32:
    case PST_F64:
    case PST_I8:
    case PST_U8:
    case PST_I16:
    case PST_U16:
    case PST_I32:
    case PST_U32:
    case PST_I64:
    case PST_U64:
    case PST_STR:
    case PST_BOOL: break;
    default:
        return score_binding_refuse(err, b, "input %s is of type %s, which features cannot fill; export the model with float inputs",
                                    v->name, pst_dtype_name(v->dtype));
    }
    in->width = 1;
    if (v->rank < 0)
        in->width = 0;
    if (v->rank == 0)
        return score_binding_refuse(err, b, "input %s is a scalar: no room for a batch of records", v->name);
    for (int d = 1; d < v->rank; d++) {
        if (v->dims[d] < 0 && in->width && d == v->rank - 1 && in->width == 1)
            in->width = 0; /* (N, free): as wide as the features */
        else if (v->dims[d] <= 0)
            return score_binding_refuse(err, b, "input %s has more than one free dimension", v->name);
        else
            in->width *= (size_t)v->dims[d];
    }
    if (in->width > PST_FEATURE_SLOTS_MAX)
        return score_binding_refuse(err, b, "input %s has %zu slots a record, more than the limit of %d", v->name, in->width,
                                    PST_FEATURE_SLOTS_MAX);
    if (v->rank > 0 && v->dims[0] > 0) {
        if (b->fixed_rows && b->fixed_rows != (size_t)v->dims[0])
            return score_binding_refuse(err, b, "its inputs have different fixed batch sizes");
        b->fixed_rows = (size_t)v->dims[0];
    }
    return 0;
}

static bool is_label(const pst_value_info *v)
{
    return v->dtype == PST_I64 || v->dtype == PST_I32 || v->dtype == PST_STR;
}

/* What the model says about its outputs itself: common/platform/models.h. */
static int take_own_outputs(pst_binding *b, pst_err *err)
{
    const char *error = pst_model_meta(b->model, "penstock.error_output"), *labels = pst_model_meta(b->model, "penstock.labels");
    b->error_out = -1;
    for (size_t i = 0; error && b->type == PST_SCORE_RECONSTRUCTION && i < b->info->n_outputs; i++)
        if (!strcmp(b->info->outputs[i].name, error) && score_binding_is_float(b->info->outputs[i].dtype))
            b->error_out = (int)i;
    if (error && b->type == PST_SCORE_RECONSTRUCTION && b->error_out < 0)
        return score_binding_refuse(err, b, "its metadata penstock.error_output names %.100s, which is no float output of it", error);
    if (labels && b->type == PST_SCORE_CLASS &&
        (pst_json_parse(labels, strlen(labels), "penstock.labels", &b->classes, NULL) < 0 || !json_is_array(b->classes)))
        return score_binding_refuse(err, b, "its metadata penstock.labels is no list of names");
    return 0;
}

/* What the score is to be: the pipeline's word, else the model's, else what its outputs look like; and whether its outputs can make that. */
static int take_score_type(pst_binding *b, const pst_pipeline *p, pst_err *err)
{
    const pst_model_info *info = b->info;
    const char *meta = pst_model_meta(b->model, "penstock.score");
    if (info->n_outputs == 0)
        return score_binding_refuse(err, b, "it has no output");
    const pst_value_info *last = &info->outputs[info->n_outputs - 1];
    b->label_out = -1;
    for (size_t i = 0; i + 1 < info->n_outputs && b->label_out < 0; i++)
        if (is_label(&info->outputs[i]))
            b->label_out = (int)i;
    b->type = p->score_type;
    if (b->type == PST_SCORE_AUTO && meta && (!pst_score_type_parse(meta, &b->type)))
        return score_binding_refuse(err, b, "its metadata penstock.score is \"%.40s\", which is no score type", meta);
    if (b->type == PST_SCORE_AUTO)
        b->type = b->label_out >= 0 && score_binding_is_float(last->dtype) ? PST_SCORE_CLASS : PST_SCORE_RAW;
    if (b->type != PST_SCORE_CLASS)
        b->label_out = -1;
    b->has_labels = b->type == PST_SCORE_CLASS;
    b->has_threshold = p->has_threshold;
    b->threshold = p->threshold;
    const char *threshold = pst_model_meta(b->model, "penstock.threshold");
    if (!b->has_threshold && threshold) {
        char *end;
        b->threshold = strtod(threshold, &end);
        b->has_threshold = end != threshold && isfinite(b->threshold);
    }
    int rc = take_own_outputs(b, err);
    if (rc < 0)
        return rc;
    if (b->type == PST_SCORE_RECONSTRUCTION && b->error_out < 0 && b->n_inputs != 1)
        return score_binding_refuse(err, b, "reconstruction_error needs one input, it has %zu", b->n_inputs);
    if (b->type == PST_SCORE_RECONSTRUCTION && b->error_out < 0 && b->inputs[0].info->dtype == PST_STR)
        return score_binding_refuse(err, b, "reconstruction_error needs an input of numbers, %s is text", b->inputs[0].info->name);
    if (b->type == PST_SCORE_RECONSTRUCTION && !score_binding_is_float(last->dtype))
        return score_binding_refuse(err, b, "reconstruction_error needs a float output, %s is %s", last->name, pst_dtype_name(last->dtype));
    if (last->dtype == PST_STR && b->type != PST_SCORE_CLASS)
        return score_binding_refuse(err, b, "its last output %s is text: no score comes from it", last->name);
    return 0;
}

static int allocate(pst_binding *b, pst_err *err)
{
    size_t at = 0, widest = 0;
    for (size_t k = 0; k < b->n_inputs; k++) {
        score_binding_input *in = &b->inputs[k];
        in->at = at;
        at += in->width;
        if (b->fixed_rows && in->width * in->elem > widest)
            widest = in->width * in->elem;
        if (b->rows_max * in->width * in->elem > ((size_t)1 << 30))
            return score_binding_refuse(err, b, "%zu records of %zu slots are more than 1 GiB a batch; set batching.count lower",
                                        b->rows_max, in->width);
        score_binding_alloc_rows(b, in);
    }
    b->width = at;
    b->padded = b->fixed_rows ? pst_alloc(b->fixed_rows * widest * b->n_inputs + 64) : NULL;
    return 0;
}

/* A device that is named is that or an error, a configuration's: nobody falls to the CPU in silence. One that has no room now may have it later. */
static int make_plan(pst_binding *b, const pst_pipeline *p, pst_err *err)
{
    const pst_run_limits run = score_model_run_limits(PST_MODEL_RUN_MS);
    const pst_plan_opts opts = {
        .run = &run, .backend = pst_plan_backend_of(p->device), .rows_most = b->rows_max, .threads = (uint64_t)p->threads};
    pst_err why = {0};
    int rc = pst_plan_new(b->model, &opts, &b->plan, &why);
    if (rc == PST_EUNSUPPORTED && !strcmp(why.origin, "cuda"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "device: %s cannot be had for model %s: %.300s; use device: cpu or device: auto", p->device, b->name, why.text);
    return rc < 0 ? pst_err_set(err, rc, why.cls, why.origin, why.native, "%s", why.text) : 0;
}

pst_model_limits pst_binding_limits(const pst_pipeline *p)
{
    const size_t usual = 512u << 20; /* of one tensor, as the engine has it; a larger file may be one */
    return (pst_model_limits){.file_bytes_max = p->model_bytes,
                              .arena_bytes_max = p->arena_bytes,
                              .tensor_bytes_max = p->model_bytes > usual ? p->model_bytes : usual};
}

int pst_binding_new(const pst_pipeline *p, pst_model *m, const char *name, int version, size_t rows_max, pst_binding **ret_binding,
                    pst_err *err)
{
    pst_binding *b = pst_alloc(sizeof(*b));
    b->model = pst_model_ref(m);
    b->info = pst_model_info_get(m);
    b->name = pst_strdup(name);
    b->version = version;
    b->rows_max = rows_max;
    b->ran_on = pst_alloc(rows_max + 1);
    b->n_inputs = b->info->n_inputs;
    b->inputs = pst_alloc((b->n_inputs + 1) * sizeof(*b->inputs));
    b->tin = pst_alloc((b->n_inputs + 1) * sizeof(*b->tin));
    b->tout = pst_alloc((b->info->n_outputs + 1) * sizeof(*b->tout));
    int rc = b->n_inputs ? 0 : score_binding_refuse(err, b, "it has no input");
    for (size_t k = 0; rc == 0 && k < b->n_inputs; k++) {
        b->inputs[k].info = &b->info->inputs[k];
        rc = take_input(b, &b->inputs[k], err);
    }
    if (rc == 0 && (rc = take_score_type(b, p, err)) == 0 && (rc = take_features(b, p, err)) == 0 && (rc = group_features(b, err)) == 0 &&
        (rc = score_binding_categories(b, err)) == 0 && (rc = check_values(b, err)) == 0)
        rc = make_plan(b, p, err);
    bool open = b->n_inputs == 1 && b->inputs[0].width == 0; /* allocated by set_width */
    if (rc == 0 && !open)
        rc = allocate(b, err);
    if (rc == 0 && !open) { /* scalars alone decide it now; arrays when the first schema is seen */
        size_t least = 0;
        for (size_t i = 0; i < b->n_features; i++)
            least += b->features[i].slots ? b->features[i].slots : 1;
        if (least > b->width)
            rc = score_binding_refuse(err, b, "its input has %zu slots, the features fill %zu", b->width, least);
    }
    if (rc == 0 && b->has_labels)
        b->labels = pst_alloc(rows_max * sizeof(*b->labels));
    if (rc < 0) {
        pst_binding_free(b);
        return rc;
    }
    *ret_binding = b;
    return 0;
}

void pst_binding_free(pst_binding *b)
{
    if (!b)
        return;
    pst_plan_free(b->plan);
    pst_model_unref(b->model);
    for (size_t k = 0; k < b->n_inputs; k++) {
        const score_binding_input *in = &b->inputs[k];
        for (size_t i = 0; in->texts && i < b->rows_max * in->width; i++)
            free(in->texts[i].text);
        free(in->texts);
        free(in->rows);
    }
    for (size_t i = 0; i < b->n_features; i++)
        pst_feature_done(&b->features[i]);
    free(b->features);
    free(b->inputs);
    free(b->tin);
    free(b->tout);
    free(b->padded);
    free(b->scratch);
    free(b->target);
    free(b->scores);
    free(b->ran_on);
    free(b->labels);
    json_decref(b->classes);
    free(b->name);
    free(b);
}

const char *pst_binding_name(const pst_binding *b)
{
    return b->name;
}

int pst_binding_version(const pst_binding *b)
{
    return b->version;
}

const char *pst_binding_digest(const pst_binding *b)
{
    return b->info->digest;
}

const char *pst_binding_remark(const pst_binding *b)
{
    static const char draws[] =
        "draws random numbers: records are run one at a time, and the same record gets the same score, in a replay too";
    return b->info->draws ? draws : pst_model_meta(b->model, "native.remark");
}

int pst_binding_threads(const pst_binding *b)
{
    return pst_plan_threads(b->plan);
}

const char *pst_binding_device(const pst_binding *b, const char **ret_why)
{
    return pst_plan_device(b->plan, ret_why);
}

bool pst_binding_device_lost(const pst_binding *b)
{
    int left = pst_plan_device_left(b->plan);
    return left == PST_EIO || left == PST_ETIMEDOUT;
}

pst_score_type pst_binding_score_type(const pst_binding *b)
{
    return b->type;
}

bool pst_binding_threshold(const pst_binding *b, double *ret)
{
    if (b->has_threshold)
        *ret = b->threshold;
    return b->has_threshold;
}

const pst_feature *pst_binding_features(const pst_binding *b, size_t *ret_n)
{
    *ret_n = b->n_features;
    return b->features;
}

size_t pst_binding_width(const pst_binding *b)
{
    return b->width;
}

double *pst_binding_scratch(pst_binding *b, size_t width)
{
    if (b->scratch_width < width) {
        b->scratch = pst_realloc(b->scratch, width * sizeof(double));
        b->scratch_width = width;
    }
    return b->scratch;
}

static void explain_value(const char *what, const pst_value_info *v, pst_buf *t)
{
    pst_buf_printf(t, "%s %s %s(", what, v->name, pst_dtype_name(v->dtype));
    for (int d = 0; d < v->rank; d++) {
        pst_buf_adds(t, d ? ", " : "");
        if (v->dims[d] < 0)
            pst_buf_addc(t, d == 0 ? 'N' : '?');
        else
            pst_buf_printf(t, "%lld", (long long)v->dims[d]);
    }
    pst_buf_adds(t, ")\n");
}

static void explain_missing_text(const pst_feature *f, pst_buf *t)
{
    if (f->missing == PST_MISSING_REJECT)
        pst_buf_adds(t, ", its text, missing: reject");
    else
        pst_buf_printf(t, ", its text, missing: the text %s", f->value_text ? f->value_text : "\"\"");
}

static void explain_feature(const pst_feature *f, size_t i, pst_buf *t)
{
    pst_buf_printf(t, "feature %zu: %s", i, f->field);
    if (f->one_hot)
        pst_buf_printf(t, ", one-hot: %zu words in %u slots", f->n_vocabulary, f->slots);
    else if (f->slots > 1)
        pst_buf_printf(t, "[%u]", f->slots);
    else if (f->has_vocabulary)
        pst_buf_printf(t, ", %s of %zu words", f->categories ? "the model's categories" : "vocabulary", f->n_vocabulary);
    if (f->has_vocabulary)
        pst_buf_printf(t, ", unknown: %s,", pst_unknown_word_name(f->unknown));
    if (f->text)
        explain_missing_text(f, t);
    else
        pst_buf_printf(t, " × %.9g + %.9g, missing: %s", f->scale, f->offset, pst_missing_name(f->missing));
    if (f->one_hot && f->missing == PST_MISSING_VALUE)
        pst_buf_printf(t, " %s", f->has_null ? "(the slot of null)" : f->value_text);
    else if (f->missing == PST_MISSING_VALUE && !f->text)
        pst_buf_printf(t, " %.9g", f->value);
    if (f->missing == PST_MISSING_MEAN && f->n_means)
        pst_buf_printf(t, " %.9g", f->means[0]);
    if (f->has_clip)
        pst_buf_printf(t, ", clip [%.9g, %.9g]", f->clip_lo, f->clip_hi);
    if (f->input)
        pst_buf_printf(t, ", input %s", f->input);
    pst_buf_addc(t, '\n');
}

char *pst_binding_explain(const pst_binding *b)
{
    pst_buf t = {0};
    pst_buf_printf(&t, "model %s version %d digest %s\n", b->name, b->version, b->info->digest);
    for (size_t k = 0; k < b->info->n_inputs; k++)
        explain_value("input ", &b->info->inputs[k], &t);
    for (size_t k = 0; k < b->info->n_outputs; k++)
        explain_value("output", &b->info->outputs[k], &t);
    pst_buf_printf(&t, "score  %s", pst_score_type_name(b->type));
    if (b->has_threshold)
        pst_buf_printf(&t, ", threshold %g", b->threshold);
    pst_buf_addc(&t, '\n');
    for (size_t i = 0; i < b->n_features; i++)
        explain_feature(&b->features[i], i, &t);
    char *plan = pst_plan_explain(b->plan);
    pst_buf_adds(&t, plan ? plan : "");
    free(plan);
    return pst_buf_steal(&t);
}
