/* native.c - which library's file this is, and the model around what its reader made; see native.h. */
#include "engine/native/native.h"

#include "engine/heap.h"
#include "engine/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const formats[] = {[ENG_NATIVE_NONE] = "",
                                      [ENG_NATIVE_XGB_JSON] = "xgboost-json",
                                      [ENG_NATIVE_XGB_UBJ] = "xgboost-ubj",
                                      [ENG_NATIVE_LGBM] = "lightgbm-text"};

/* No ONNX file begins like these: 0x7b and 0x74 would be fields 15 and 14 of kinds that ModelProto does not have. */
eng_native_kind eng_native_recognise(const void *data, size_t len)
{
    const char *s = data;
    if (len >= 5 && !memcmp(s, "tree", 4) && (s[4] == '\n' || s[4] == '\r'))
        return ENG_NATIVE_LGBM;
    size_t i = 0;
    while (i < len && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t'))
        i++;
    if (i >= len || s[i] != '{')
        return ENG_NATIVE_NONE;
    for (i++; i < len && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t');)
        i++;
    return i < len && s[i] != '"' && s[i] != '}' ? ENG_NATIVE_XGB_UBJ : ENG_NATIVE_XGB_JSON;
}

/* ---- metadata ---- */

/* cpu.user, Column_7, f0: what a record's field may be called without quoting. */
static bool is_field_path(const char *s)
{
    bool fresh = true;
    for (; *s; s++) {
        bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_', digit = *s >= '0' && *s <= '9';
        bool dot = *s == '.', may_stand = letter || (!fresh && (digit || dot)); /* no part is empty or begins with a digit */
        if (!may_stand)
            return false;
        fresh = dot;
    }
    return !fresh;
}

/* The names a library invents ("Column_0", "f0") say nothing of records. */
static bool invented(const char *s, size_t i)
{
    char a[40], b[40];
    snprintf(a, sizeof a, "Column_%zu", i);
    snprintf(b, sizeof b, "f%zu", i);
    return !strcmp(s, a) || !strcmp(s, b);
}

/* The scorer's feature mapping (penstock.features): one field per feature. The library's file says nothing about what
 * a missing field should mean, so it is an error (missing: reject) until the pipeline says missing: nan. NULL when the names are no
 * distinct field paths. */
static const char *mapping_of(eng_zone *zone, const eng_native *n)
{
    eng_heap_text text = {0};
    eng_names seen = {0};
    const char *ret = NULL;
    bool own = false;
    for (size_t i = 0; i < n->n_names; i++) {
        if (!is_field_path(n->names[i]) || eng_names_get(&seen, n->names[i]) >= 0)
            goto out;
        own |= !invented(n->names[i], i);
        eng_names_put(&seen, n->names[i], 0);
    }
    for (size_t i = 0; i < n->n_names && own; i++)
        eng_heap_printf(&text, "%s{\"field\": \"%s\"}%s", i ? ", " : "[", n->names[i], i + 1 == n->n_names ? "]" : "");
    if (own)
        ret = eng_zone_strdup(zone, text.data, text.len);
out:
    eng_names_done(&seen);
    eng_heap_free(text.data);
    return ret;
}

static void fill_meta(pst_model *m, const eng_native *n)
{
    const char *features = mapping_of(&m->zone, n);
    enum { PAIRS = 6 };
    const char **at = eng_zone_alloc(&m->zone, 2 * PAIRS * sizeof *at);
    const char *const pairs[PAIRS][2] = {{"native.library", n->library},         {"native.booster", n->booster},
                                         {"native.objective", n->objective},     {"penstock.features", features},
                                         {"penstock.categories", n->categories}, {"native.remark", n->remark}};
    for (size_t i = 0; i < PAIRS; i++) {
        if (!pairs[i][1])
            continue;
        at[m->info.n_meta] = pairs[i][0];
        at[PAIRS + m->info.n_meta++] = pairs[i][1];
    }
    m->info.meta_keys = at;
    m->info.meta_values = at + PAIRS;
}

/* ---- the graph: one node ---- */

static const char *output_name(const eng_native *n)
{
    switch (n->link) {
    case ENG_LINK_SIGMOID_F:
    case ENG_LINK_SIGMOID: return n->n_outputs == 1 ? "probability" : "probabilities";
    case ENG_LINK_SOFTMAX_F:
    case ENG_LINK_SOFTMAX: return "probabilities";
    case ENG_LINK_ARGMAX_F:
    case ENG_LINK_STEP_F: return "class";
    default: return "score";
    }
}

static void fill_graph(pst_model *m, const eng_native *n)
{
    eng_zone *z = &m->zone;
    m->values = eng_zone_alloc(z, 2 * sizeof *m->values);
    m->n_values = 2;
    m->values[0].name = "input";
    m->values[1].name = output_name(n);
    int *ids = eng_zone_alloc(z, 4 * sizeof *ids);
    ids[0] = ids[2] = 0;
    ids[1] = ids[3] = 1;
    char what[200];
    snprintf(what, sizeof what, "%s %s, %.80s: %d features -> %d", n->library, n->booster, n->objective, n->n_features, n->n_outputs);
    eng_node *node = eng_zone_alloc(z, sizeof *node);
    *node = (eng_node){.domain = "native",
                       .op_type = n->weights ? "NativeLinear" : "NativeTrees",
                       .name = eng_zone_strdup(z, what, strlen(what)),
                       .op = &eng_native_op,
                       .in = ids,
                       .n_in = 1,
                       .out = ids + 1,
                       .n_out = 1,
                       .fused = n};
    m->graph = (eng_graph){.in = ids + 2, .n_in = 1, .out = ids + 3, .n_out = 1, .nodes = node, .n_nodes = 1};
}

static void fill_info(pst_model *m, const eng_native *n)
{
    pst_value_info *v = eng_zone_alloc(&m->zone, 2 * sizeof *v);
    eng_kind *kinds = eng_zone_alloc(&m->zone, 2 * sizeof *kinds);
    v[0] = (pst_value_info){.name = m->values[0].name, .dtype = n->forest.wide ? PST_F64 : PST_F32, .rank = 2, .dims = {-1, n->n_features}};
    v[1] = (pst_value_info){.name = m->values[1].name, .dtype = n->forest.wide ? PST_F64 : PST_F32, .rank = 2, .dims = {-1, n->n_outputs}};
    kinds[0] = kinds[1] = ENG_KIND_TENSOR;
    m->in_kinds = kinds;
    m->out_kinds = kinds + 1;
    m->info.inputs = v;
    m->info.n_inputs = 1;
    m->info.outputs = v + 1;
    m->info.n_outputs = 1;
    m->info.n_nodes = 1;
    m->info.n_parameters =
        n->weights ? ((size_t)n->n_features + 1) * (size_t)n->n_groups : (size_t)n->forest.n_nodes + (size_t)n->forest.n_weights;
    char producer[120];
    snprintf(producer, sizeof producer, "%s %.80s", n->library, n->version);
    m->info.producer = eng_zone_strdup(&m->zone, producer, strlen(producer));
}

int eng_native_load(eng_native_kind kind, const void *data, size_t len, pst_model *m, pst_err *err)
{
    eng_native *n = eng_zone_alloc(&m->zone, sizeof *n);
    int rc = kind == ENG_NATIVE_LGBM ? eng_native_lightgbm(data, len, &m->limits, &m->zone, n, err)
                                     : eng_native_xgboost(data, len, kind == ENG_NATIVE_XGB_UBJ, &m->limits, &m->zone, n, err);
    if (rc < 0) {
        pst_err_prefix(err, "%s file",
                       kind == ENG_NATIVE_LGBM       ? "LightGBM text"
                       : kind == ENG_NATIVE_XGB_JSON ? "XGBoost JSON"
                                                     : "XGBoost UBJSON");
        return rc;
    }
    fill_graph(m, n);
    fill_info(m, n);
    fill_meta(m, n);
    m->info.format = formats[kind];
    return 0;
}
