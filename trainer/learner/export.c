/* export.c - the network as the nodes that it is made of, built and then loaded again and compared with the network's own answers: a model
 * that does not compute what was trained is not handed out. */
#include "trainer/learner/export.h"

#include "trainer/learner/bins.h"

#include "common/base/json.h"
#include "engine/onnx_export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPSET = 17, IR_VERSION = 8, SCORES_MAX = 10000 };
static const double difference_max = 1e-3;

static void node(pst_onnx_builder *b, const char *op, const char *x, const char *y, const char *out)
{
    pst_onnx_node(b, op, (const char *[]){x, y}, y ? 2 : 1, (const char *[]){out}, 1);
}

/* ---- graph --------------------------------------------------------------------------------------------------------------------- */

static void add_activation(pst_onnx_builder *b, pst_activation a, const char *in, const char *out)
{
    static const char *const ops[] = {"Relu", "Tanh", "Sigmoid", "Elu", "LeakyRelu"};
    node(b, ops[a], in, NULL, out);
    if (a == PST_ACTIVATION_ELU)
        pst_onnx_attr_float(b, "alpha", 1);
    if (a == PST_ACTIVATION_LEAKY_RELU)
        pst_onnx_attr_float(b, "alpha", PST_LEAKY_SLOPE);
}

/* z → last (linear) */
static void add_layers(pst_onnx_builder *b, const learn_net *n, const char *z, const char *last)
{
    char in[32], out[32], w[32], bias[32];
    snprintf(in, sizeof in, "%s", z);
    for (int l = 0; l < learn_net_layers(n); l++) {
        bool end = l + 1 == learn_net_layers(n);
        int64_t wide = learn_net_width(n, l + 1), from = learn_net_width(n, l);
        snprintf(w, sizeof w, "weights%d", l);
        snprintf(bias, sizeof bias, "bias%d", l);
        snprintf(out, sizeof out, "sum%d", l);
        pst_onnx_floats(b, w, 2, (int64_t[]){wide, from}, learn_net_weights(n, l));
        pst_onnx_floats(b, bias, 1, (int64_t[]){wide}, learn_net_biases(n, l));
        pst_onnx_node(b, "Gemm", (const char *[]){in, w, bias}, 3, (const char *[]){end ? last : out}, 1);
        pst_onnx_attr_int(b, "transB", 1);
        if (end)
            break;
        snprintf(in, sizeof in, "hidden%d", l);
        add_activation(b, learn_net_activation(n), out, in);
    }
}

static void add_graph(pst_onnx_builder *b, const learn_training *t)
{
    const learn_statistics *s = &t->data->stats;
    int64_t k = s->columns, classes = t->settings->n_classes;
    pst_onnx_input(b, "input", PST_F32, 2, (int64_t[]){-1, k}, "N");
    pst_onnx_floats(b, "mean", 1, &k, s->mean);
    pst_onnx_floats(b, "std", 1, &k, s->std);
    node(b, "Sub", "input", "mean", "centred");
    node(b, "Div", "centred", "std", "z");
    if (t->settings->autoencoder) {
        add_layers(b, t->net, "z", "z_hat");
        node(b, "Mul", "z_hat", "std", "scaled");
        node(b, "Add", "scaled", "mean", "reconstruction");
        /* standardised once more: so that nothing but the chain above reads z, and an engine may run that as one kernel */
        node(b, "Sub", "input", "mean", "centred_again");
        node(b, "Div", "centred_again", "std", "z_again");
        node(b, "Sub", "z_again", "z_hat", "difference");
        node(b, "Mul", "difference", "difference", "square");
        node(b, "ReduceMean", "square", NULL, "error");
        pst_onnx_attr_ints(b, "axes", (int64_t[]){1}, 1);
        pst_onnx_attr_int(b, "keepdims", 1);
        pst_onnx_output(b, "reconstruction", PST_F32, 2, (int64_t[]){-1, k}, "N");
        pst_onnx_output(b, "error", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    } else if (classes) {
        add_layers(b, t->net, "z", "logits");
        node(b, "Softmax", "logits", NULL, "probabilities");
        pst_onnx_attr_int(b, "axis", 1);
        pst_onnx_output(b, "probabilities", PST_F32, 2, (int64_t[]){-1, classes}, "N");
    } else {
        pst_onnx_floats(b, "target_std", 1, (int64_t[]){1}, &s->target_std);
        pst_onnx_floats(b, "target_mean", 1, (int64_t[]){1}, &s->target_mean);
        add_layers(b, t->net, "z", "y");
        node(b, "Mul", "y", "target_std", "y_scaled");
        node(b, "Add", "y_scaled", "target_mean", "prediction");
        pst_onnx_output(b, "prediction", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    }
}

/* ---- what the model says about itself ------------------------------------------------------------------------------------------- */

/* A feature of words, as a pipeline file has it. */
static json_t *words_of(const pst_learn_feature *f)
{
    json_t *words = json_array();
    for (int i = 0; i < f->n_words; i++)
        json_array_append_new(words, json_string(f->words[i]));
    return json_pack("{s:s,s:o,s:s,s:s}", "field", f->field, "one_hot", words, "unknown", pst_learn_unknown_name(f->unknown), "missing",
                     pst_learn_missing_name(f->missing));
}

static json_t *features_of(const learn_training *t)
{
    json_t *list = json_array();
    const learn_statistics *st = &t->data->stats;
    int column = 0;
    for (int i = 0; i < t->settings->n_features; i++) {
        const pst_learn_feature *f = &t->settings->features[i];
        if (f->one_hot) {
            json_array_append_new(list, words_of(f));
            column += f->slots;
            continue;
        }
        json_t *o = json_pack("{s:s,s:f,s:f,s:s}", "field", f->field, "scale", f->scale, "offset", f->offset, "missing",
                              pst_learn_missing_name(f->missing));
        if (f->missing == PST_LEARN_MISSING_VALUE)
            json_object_set_new(o, "value", json_real(f->value));
        json_t *means = json_array(); /* in the field's own units, as the scorer wants them */
        for (int k = 0; k < f->slots; k++, column++)
            json_array_append_new(means, json_real(((double)st->mean[column] - f->offset) / f->scale));
        if (f->slots > 1) {
            json_object_set_new(o, "slots", json_integer(f->slots));
            json_object_set(o, "mean", means);
        } else
            json_object_set(o, "mean", json_array_get(means, 0));
        json_decref(means);
        json_array_append_new(list, o);
    }
    return list;
}

static void put_bins(json_t *to, float *x, size_t n)
{
    learn_bins b;
    learn_bins_of(x, n, &b);
    json_t *edges = json_array(), *shares = json_array();
    for (size_t i = 0; i <= b.n_edges; i++) {
        if (i < b.n_edges)
            json_array_append_new(edges, json_real(b.edges[i]));
        json_array_append_new(shares, json_real(b.shares[i]));
    }
    json_object_set_new(to, "edges", edges);
    json_object_set_new(to, "shares", shares);
}

/* As the scorer has them in front of the model: of the training rows of this process, a sample of them where there are many. */
static void add_bins(json_t *to, const learn_training *t, size_t column)
{
    const learn_ready *d = t->data;
    size_t step = (d->train + LEARN_BINS_ROWS_MAX - 1) / LEARN_BINS_ROWS_MAX, n = 0, k = (size_t)d->columns;
    if (!d->train || column >= LEARN_BINS_COLUMNS_MAX)
        return;
    float *x = pst_alloc((d->train / step + 1) * sizeof *x);
    for (size_t i = 0; i < d->train; i += step)
        x[n++] = d->z[i * k + column] * d->stats.std[column] + d->stats.mean[column];
    put_bins(to, x, n);
    free(x);
}

/* What a scorer will call its score: the error, the first class's probability, or the number. */
static double score_of(const learn_training *t, const float *z)
{
    const float *own = learn_net_forward(t->net, z, 1);
    const learn_statistics *s = &t->data->stats;
    double error = 0;
    if (!t->settings->autoencoder)
        return t->settings->n_classes ? (double)own[0] : (double)own[0] * (double)s->target_std + (double)s->target_mean;
    for (int j = 0; j < s->columns; j++)
        error += ((double)z[j] - (double)own[j]) * ((double)z[j] - (double)own[j]);
    return error / s->columns;
}

static json_t *score_statistics_of(const learn_training *t)
{
    const learn_ready *d = t->data;
    size_t step = (d->train + SCORES_MAX - 1) / SCORES_MAX, n = 0;
    json_t *o = json_object();
    if (!d->train)
        return o;
    float *x = pst_alloc((d->train / step + 1) * sizeof *x);
    for (size_t i = 0; i < d->train; i += step)
        x[n++] = (float)score_of(t, d->z + i * (size_t)d->columns);
    put_bins(o, x, n);
    free(x);
    return o;
}

static json_t *statistics_of(const learn_training *t)
{
    json_t *list = json_array();
    const learn_statistics *s = &t->data->stats;
    int column = 0;
    for (int i = 0; i < t->settings->n_features; i++)
        for (int k = 0; k < t->settings->features[i].slots; k++, column++) {
            json_t *one = json_pack("{s:s,s:f,s:f,s:f,s:f}", "field", t->settings->features[i].field, "mean", (double)s->mean[column],
                                    "std", (double)s->std[column], "min", (double)s->min[column], "max", (double)s->max[column]);
            add_bins(one, t, (size_t)column);
            json_array_append_new(list, one);
        }
    return list;
}

static json_t *ranges_of(const learn_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_ranges; i++)
        json_array_append_new(list, json_pack("{s:s,s:i,s:I,s:I}", "topic", r->ranges[i].topic, "partition", (int)r->ranges[i].partition,
                                              "from", (json_int_t)r->ranges[i].from, "to", (json_int_t)r->ranges[i].to));
    return list;
}

static void put(json_t *o, const char *key, double v)
{
    if (isfinite(v))
        json_object_set_new(o, key, json_real(v));
}

static json_t *metrics_of(const learn_training *t, const learn_result *r)
{
    const learn_progress *p = &t->progress;
    json_t *o = json_object();
    put(o, "loss", p->train_loss);
    put(o, "validation_loss", p->validation_loss);
    put(o, "accuracy", p->train_accuracy);
    put(o, "validation_accuracy", p->validation_accuracy);
    put(o, "validation_auc", p->validation_auc);
    put(o, "threshold", r->threshold);
    put(o, "epochs", (double)p->epoch);
    put(o, "records", (double)r->records);
    put(o, "training_records", (double)t->data->all_train);
    if (t->settings->patience)
        put(o, "best_epoch", (double)p->best_epoch);
    return o;
}

static void meta_json(pst_onnx_builder *b, const char *key, json_t *value) /* takes value */
{
    char *text = pst_json_text(value);
    pst_onnx_meta(b, key, text);
    free(text);
    json_decref(value);
}

/* A model carries what a scorer would otherwise have to be told in its pipeline file: features, statistics, labels, the threshold. */
static void add_meta(pst_onnx_builder *b, const learn_training *t, const learn_result *r)
{
    const pst_learn_settings *s = t->settings;
    char text[64];
    meta_json(b, "penstock.features", features_of(t));
    meta_json(b, "penstock.statistics", statistics_of(t));
    meta_json(b, "penstock.score_statistics", score_statistics_of(t));
    meta_json(b, "penstock.trained_on", ranges_of(r));
    meta_json(b, "penstock.metrics", metrics_of(t, r));
    pst_onnx_meta(b, "penstock.score", s->autoencoder ? "reconstruction_error" : s->n_classes ? "class" : "raw");
    if (s->autoencoder)
        pst_onnx_meta(b, "penstock.error_output", "error");
    if (isfinite(r->threshold)) {
        snprintf(text, sizeof text, "%.9g", r->threshold);
        pst_onnx_meta(b, "penstock.threshold", text);
    }
    if (s->target)
        pst_onnx_meta(b, "penstock.target", s->target);
    if (s->n_classes) {
        json_t *labels = json_array();
        for (int i = 0; i < s->n_classes; i++) {
            snprintf(text, sizeof text, "%d", i);
            json_array_append_new(labels, json_string(s->classes ? s->classes[i] : text));
        }
        meta_json(b, "penstock.labels", labels);
    }
    if (r->training_id && *r->training_id) {
        pst_onnx_meta(b, "penstock.training_id", r->training_id);
        snprintf(text, sizeof text, "%d", r->generation);
        pst_onnx_meta(b, "penstock.generation", text);
    }
}

void learn_export_onnx(learn_training *t, const learn_result *r, pst_buf *out)
{
    pst_onnx_builder *b = pst_onnx_new(t->settings->autoencoder ? "autoencoder" : "mlp", OPSET, IR_VERSION);
    add_graph(b, t);
    add_meta(b, t, r);
    pst_onnx_write(b, out);
    pst_onnx_free(b);
}

char *learn_export_json(const learn_training *t, const learn_result *r)
{
    json_t *fields = json_array();
    for (int i = 0; i < t->settings->n_features; i++)
        json_array_append_new(fields, json_string(t->settings->features[i].field));
    json_t *o = json_pack("{s:s,s:s,s:s,s:o,s:o,s:o}", "name", r->name ? r->name : "", "type", "VERSION_REGISTERED", "format", "onnx",
                          "features", fields, "trained_on", ranges_of(r), "metrics", metrics_of(t, r));
    char *text = pst_json_text(o);
    json_decref(o);
    return text;
}

/* ---- proof --------------------------------------------------------------------------------------------------------------------- */

static void compare(double a, double b, double *worst)
{
    double d = fabs(a - b) / fmax(1, fabs(a));
    if (!(d <= *worst)) /* NaN too */
        *worst = d;
}

/* One sample row: what the network says itself against the graph's outputs (reconstruction and error, or the only one). */
static void compare_row(const learn_training *t, const float *own, const float *z, size_t row, const pst_tensor *out, double *worst)
{
    const learn_statistics *s = &t->data->stats;
    size_t k = (size_t)s->columns, wide = (size_t)learn_net_width(t->net, learn_net_layers(t->net));
    const float *given = (const float *)out[0].data + row * wide;
    double error = 0;
    for (size_t j = 0; j < wide; j++) {
        if (t->settings->autoencoder) {
            double d = (double)z[j] - (double)own[j];
            error += d * d;
            compare((double)own[j], ((double)given[j] - (double)s->mean[j]) / (double)s->std[j], worst);
        } else
            compare(t->settings->n_classes ? (double)own[j] : (double)own[j] * (double)s->target_std + (double)s->target_mean,
                    (double)given[j], worst);
    }
    if (t->settings->autoencoder)
        compare(error / (double)k, (double)((const float *)out[1].data)[row], worst);
}

int learn_export_verify(learn_training *t, const void *onnx, size_t len, double *ret_difference, pst_err *err)
{
    const learn_ready *d = t->data;
    pst_model *model = NULL;
    pst_plan *plan = NULL;
    size_t n_out = t->settings->autoencoder ? 2 : 1;
    int64_t k = d->columns;
    double worst = 0;
    pst_tensor out[2], in = {.dtype = PST_F32, .rank = 2, .dims = {(int64_t)d->sample_rows, k}, .data = d->sample};
    int rc = pst_model_load(onnx, len, NULL, NULL, &model, err);
    if (!rc)
        rc = pst_plan_new(model, NULL, &plan, err);
    if (!rc)
        rc = pst_plan_run(plan, &in, 1, out, n_out, err);
    for (size_t i = 0; !rc && i < d->sample_rows; i++) { /* the sample rows are the first ones of z */
        const float *z = d->z + i * (size_t)k, *own = learn_net_forward(t->net, z, 1);
        compare_row(t, own, z, i, out, &worst);
    }
    if (!rc && !(worst <= difference_max))
        rc = pst_err_set(
            err, PST_EINVAL, PST_CLASS_FATAL, "learner", 0,
            "the exported model differs from the trained network by %g: columns are too large for float32 beside their deviation; give "
            "such features a scale and an offset that bring them near 0",
            worst);
    if (!rc)
        *ret_difference = worst;
    pst_plan_free(plan);
    pst_model_unref(model);
    return rc;
}
