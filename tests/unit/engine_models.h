/* engine_models.h - small models of every kind, made in memory, with an input each: for tests that walk over kinds of models. */
#ifndef PST_TEST_ENGINE_MODELS_H
#define PST_TEST_ENGINE_MODELS_H

#include "tests/unit/engine_kit.h"

#define KIT_S(...) (const char *[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

/* Weights that are the same in every run. */
static inline void kit_fixed(pst_onnx_builder *o, const char *name, int rank, const int64_t *dims)
{
    float w[4096];
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    for (int64_t i = 0; i < n; i++)
        w[i] = (float)((i * 37 + (int64_t)strlen(name) * 11) % 41 - 20) / 23.0f + (i ? 0 : 2);
    pst_onnx_floats(o, name, rank, dims, w);
}

static inline void kit_finish(pst_onnx_builder *o, pst_buf *ret)
{
    pst_onnx_write(o, ret);
    pst_onnx_free(o);
}

static inline void kit_mlp(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("mlp", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    kit_fixed(o, "mean", 1, (int64_t[]){8});
    kit_fixed(o, "w0", 2, (int64_t[]){16, 8});
    kit_fixed(o, "b0", 1, (int64_t[]){16});
    kit_fixed(o, "w1", 2, (int64_t[]){4, 16});
    kit_fixed(o, "b1", 1, (int64_t[]){4});
    pst_onnx_node(o, "Sub", KIT_S("x", "mean"), KIT_S("x1"));
    pst_onnx_node(o, "Gemm", KIT_S("x1", "w0", "b0"), KIT_S("h0"));
    pst_onnx_attr_int(o, "transB", 1);
    pst_onnx_node(o, "Relu", KIT_S("h0"), KIT_S("h1"));
    pst_onnx_node(o, "Gemm", KIT_S("h1", "w1", "b1"), KIT_S("h2"));
    pst_onnx_attr_int(o, "transB", 1);
    pst_onnx_node(o, "Softmax", KIT_S("h2"), KIT_S("y"));
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 4}, "N");
    pst_onnx_meta(o, "training_id", "t-1");
    kit_finish(o, ret);
}

/* 6 full trees of depth 3 over 8 features. */
static inline void kit_trees(pst_buf *ret)
{
    enum { TREES = 6, EACH = 15, ALL = TREES * EACH };
    int64_t tree[ALL], node[ALL], feature[ALL], yes[ALL], no[ALL], w_tree[ALL], w_node[ALL], w_id[ALL];
    float value[ALL], weight[ALL];
    const char *mode[ALL];
    size_t n_w = 0;
    for (int i = 0; i < ALL; i++) {
        int at = i % EACH;
        bool leaf = at >= 7;
        tree[i] = i / EACH;
        node[i] = at;
        feature[i] = leaf ? 0 : (i * 5) % 8;
        value[i] = leaf ? 0 : (float)(i % 9) / 4 - 1;
        yes[i] = leaf ? 0 : 2 * at + 1;
        no[i] = leaf ? 0 : 2 * at + 2;
        mode[i] = leaf ? "LEAF" : "BRANCH_LEQ";
        if (leaf) {
            w_tree[n_w] = i / EACH;
            w_node[n_w] = at;
            w_id[n_w] = 0;
            weight[n_w++] = (float)(i % 13) / 7 - 1;
        }
    }
    pst_onnx_builder *o = pst_onnx_new("trees", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    pst_onnx_node(o, "TreeEnsembleRegressor", KIT_S("x"), KIT_S("y"));
    pst_onnx_domain(o, "ai.onnx.ml", 3);
    pst_onnx_attr_ints(o, "nodes_treeids", tree, ALL);
    pst_onnx_attr_ints(o, "nodes_nodeids", node, ALL);
    pst_onnx_attr_ints(o, "nodes_featureids", feature, ALL);
    pst_onnx_attr_ints(o, "nodes_truenodeids", yes, ALL);
    pst_onnx_attr_ints(o, "nodes_falsenodeids", no, ALL);
    pst_onnx_attr_floats(o, "nodes_values", value, ALL);
    pst_onnx_attr_strs(o, "nodes_modes", mode, ALL);
    pst_onnx_attr_ints(o, "target_treeids", w_tree, n_w);
    pst_onnx_attr_ints(o, "target_nodeids", w_node, n_w);
    pst_onnx_attr_ints(o, "target_ids", w_id, n_w);
    pst_onnx_attr_floats(o, "target_weights", weight, n_w);
    pst_onnx_attr_int(o, "n_targets", 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    kit_finish(o, ret);
}

static inline void kit_cnn(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("cnn", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 4, (int64_t[]){-1, 1, 8, 8}, "N");
    kit_fixed(o, "w0", 4, (int64_t[]){4, 1, 3, 3});
    kit_fixed(o, "b0", 1, (int64_t[]){4});
    kit_fixed(o, "w1", 4, (int64_t[]){8, 4, 3, 3});
    kit_fixed(o, "w2", 2, (int64_t[]){72, 5});
    pst_onnx_node(o, "Conv", KIT_S("x", "w0", "b0"), KIT_S("a"));
    pst_onnx_attr_ints(o, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    pst_onnx_node(o, "Relu", KIT_S("a"), KIT_S("b"));
    pst_onnx_node(o, "Conv", KIT_S("b", "w1"), KIT_S("c"));
    pst_onnx_node(o, "Sigmoid", KIT_S("c"), KIT_S("d"));
    pst_onnx_node(o, "MaxPool", KIT_S("d"), KIT_S("e"));
    pst_onnx_attr_ints(o, "kernel_shape", (int64_t[]){2, 2}, 2);
    pst_onnx_attr_ints(o, "strides", (int64_t[]){2, 2}, 2);
    pst_onnx_node(o, "Flatten", KIT_S("e"), KIT_S("f"));
    pst_onnx_node(o, "MatMul", KIT_S("f", "w2"), KIT_S("y"));
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 5}, "N");
    kit_finish(o, ret);
}

static inline void kit_lstm(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("lstm", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 3, (int64_t[]){-1, 2, 8}, "T");
    kit_fixed(o, "w", 3, (int64_t[]){1, 16, 8});
    kit_fixed(o, "r", 3, (int64_t[]){1, 16, 4});
    kit_fixed(o, "b", 2, (int64_t[]){1, 32});
    kit_fixed(o, "gw", 3, (int64_t[]){1, 9, 4});
    kit_fixed(o, "gr", 3, (int64_t[]){1, 9, 3});
    pst_onnx_ints(o, "axis", 1, (int64_t[]){1}, (int64_t[]){1});
    pst_onnx_node(o, "LSTM", KIT_S("x", "w", "r", "b"), KIT_S("s"));
    pst_onnx_attr_int(o, "hidden_size", 4);
    pst_onnx_node(o, "Squeeze", KIT_S("s", "axis"), KIT_S("q"));
    pst_onnx_node(o, "GRU", KIT_S("q", "gw", "gr"), KIT_S("", "y"));
    pst_onnx_attr_int(o, "hidden_size", 3);
    pst_onnx_output(o, "y", PST_F32, 3, (int64_t[]){1, 2, 3}, NULL);
    kit_finish(o, ret);
}

/* A constant of int8, by nodes that are folded. */
static inline void kit_fixed_bytes(pst_onnx_builder *o, const char *name, int rank, const int64_t *dims)
{
    char wide[24], more[24];
    snprintf(wide, sizeof wide, "%s_wide", name);
    snprintf(more, sizeof more, "%s_more", name);
    kit_fixed(o, wide, rank, dims);
    pst_onnx_node(o, "Mul", KIT_S(wide, "forty"), KIT_S(more));
    pst_onnx_node(o, "Cast", KIT_S(more), KIT_S(name));
    pst_onnx_attr_int(o, "to", PST_I8);
}

static inline void kit_lstm_bytes(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("lstm of bytes", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 3, (int64_t[]){-1, 2, 8}, "T");
    kit_scalar(o, "forty", 40);
    kit_fixed_bytes(o, "w", 3, (int64_t[]){1, 8, 20});
    kit_fixed_bytes(o, "r", 3, (int64_t[]){1, 5, 20});
    kit_fixed_bytes(o, "z", 1, (int64_t[]){1});
    pst_onnx_floats(o, "s", 1, (int64_t[]){1}, (float[]){0.02f});
    pst_onnx_node(o, "DynamicQuantizeLSTM", KIT_S("x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"), KIT_S("", "y"));
    pst_onnx_domain(o, "com.microsoft", 1);
    pst_onnx_attr_int(o, "hidden_size", 5);
    pst_onnx_output(o, "y", PST_F32, 3, (int64_t[]){1, 2, 5}, NULL);
    kit_finish(o, ret);
}

/* Four rounds of a loop with an If in its body, a value it carries, results it collects; then a sequence. */
static inline void kit_control(pst_buf *ret)
{
    pst_onnx_builder *t = pst_onnx_new("then", 17, 8), *e = pst_onnx_new("else", 17, 8), *body = pst_onnx_new("body", 17, 8);
    pst_onnx_node(t, "Neg", KIT_S("carry_in"), KIT_S("t1"));
    pst_onnx_node(t, "Mul", KIT_S("t1", "x"), KIT_S("then_out"));
    pst_onnx_output(t, "then_out", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    pst_onnx_node(e, "Add", KIT_S("carry_in", "x"), KIT_S("else_out"));
    pst_onnx_output(e, "else_out", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go_in", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "carry_in", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    pst_onnx_node(body, "Identity", KIT_S("go_in"), KIT_S("go_out"));
    pst_onnx_node(body, "ReduceSum", KIT_S("carry_in"), KIT_S("sum"));
    pst_onnx_attr_int(body, "keepdims", 0);
    pst_onnx_node(body, "Greater", KIT_S("sum", "zero"), KIT_S("cond"));
    pst_onnx_node(body, "If", KIT_S("cond"), KIT_S("carry_out"));
    pst_onnx_attr_graph(body, "then_branch", t);
    pst_onnx_attr_graph(body, "else_branch", e);
    pst_onnx_node(body, "ReduceMean", KIT_S("carry_out"), KIT_S("scan"));
    pst_onnx_attr_ints(body, "axes", (int64_t[]){1}, 1);
    pst_onnx_output(body, "go_out", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "carry_out", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    pst_onnx_output(body, "scan", PST_F32, 2, (int64_t[]){-1, 1}, "N");

    pst_onnx_builder *o = pst_onnx_new("control", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    pst_onnx_ints(o, "rounds", 0, NULL, (int64_t[]){20});
    pst_onnx_floats(o, "zero", 0, NULL, (float[]){0});
    pst_onnx_ints(o, "flat", 1, (int64_t[]){2}, (int64_t[]){-1, 1});
    pst_onnx_node(o, "Loop", KIT_S("rounds", "", "x"), KIT_S("last", "means"));
    pst_onnx_attr_graph(o, "body", body);
    pst_onnx_node(o, "Reshape", KIT_S("means", "flat"), KIT_S("m"));
    pst_onnx_node(o, "Reshape", KIT_S("last", "flat"), KIT_S("l"));
    pst_onnx_node(o, "SequenceConstruct", KIT_S("m", "l"), KIT_S("seq"));
    pst_onnx_node(o, "SequenceInsert", KIT_S("seq", "l"), KIT_S("seq2"));
    pst_onnx_node(o, "ConcatFromSequence", KIT_S("seq2"), KIT_S("y"));
    pst_onnx_attr_int(o, "axis", 0);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 1}, "M");
    pst_onnx_free(t);
    pst_onnx_free(e);
    pst_onnx_free(body);
    kit_finish(o, ret);
}

static inline void kit_strings(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("strings", 20, 9);
    pst_onnx_input(o, "x", PST_STR, 1, (int64_t[]){-1}, "N");
    pst_onnx_node(o, "StringNormalizer", KIT_S("x"), KIT_S("up"));
    pst_onnx_attr_str(o, "case_change_action", "UPPER");
    pst_onnx_attr_strs(o, "stopwords", (const char *[]){"stop"}, 1);
    pst_onnx_node(o, "StringConcat", KIT_S("up", "up"), KIT_S("y"));
    pst_onnx_output(o, "y", PST_STR, 1, (int64_t[]){-1}, "N");
    kit_finish(o, ret);
}

/* One tree of XGBoost's and one of LightGBM's, over 8 features, as their libraries write them. */
static inline void kit_xgboost(pst_buf *ret)
{
    pst_buf_adds(ret, "{\"learner\":{\"attributes\":{},\"feature_names\":[],\"feature_types\":[],\"gradient_booster\":{\"model\":{"
                      "\"gbtree_model_param\":{\"num_parallel_tree\":\"1\",\"num_trees\":\"1\"},\"tree_info\":[0],\"trees\":[{"
                      "\"base_weights\":[0,-0.25,0.75],\"categories\":[],\"categories_nodes\":[],\"categories_segments\":[],"
                      "\"categories_sizes\":[],\"default_left\":[1,0,0],\"id\":0,\"left_children\":[1,-1,-1],\"loss_changes\":[1,0,0],"
                      "\"parents\":[2147483647,0,0],\"right_children\":[2,-1,-1],\"split_conditions\":[0.5,-0.25,0.75],"
                      "\"split_indices\":[3,0,0],\"split_type\":[0,0,0],\"sum_hessian\":[3,2,1],\"tree_param\":{\"num_deleted\":\"0\","
                      "\"num_feature\":\"8\",\"num_nodes\":\"3\",\"size_leaf_vector\":\"1\"}}]},\"name\":\"gbtree\"},"
                      "\"learner_model_param\":{\"base_score\":\"5E-1\",\"boost_from_average\":\"1\",\"num_class\":\"0\","
                      "\"num_feature\":\"8\",\"num_target\":\"1\"},\"objective\":{\"name\":\"reg:squarederror\","
                      "\"reg_loss_param\":{\"scale_pos_weight\":\"1\"}}},\"version\":[2,1,0]}");
}

static inline void kit_lightgbm(pst_buf *ret)
{
    pst_buf_adds(ret, "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=7\nobjective=regression\n"
                      "feature_names=a b c d e f g h\nfeature_infos=[-1:1] [-1:1] [-1:1] [-1:1] [-1:1] [-1:1] [-1:1] [-1:1]\n"
                      "tree_sizes=330\n\nTree=0\nnum_leaves=3\nnum_cat=0\nsplit_feature=3 5\nsplit_gain=1 1\nthreshold=0.5 -0.25\n"
                      "decision_type=2 2\nleft_child=1 -1\nright_child=-2 -3\nleaf_value=-0.25 0.75 1.5\nleaf_weight=1 1 1\n"
                      "leaf_count=1 1 1\ninternal_value=0 0\ninternal_weight=2 1\ninternal_count=3 2\nis_linear=0\nshrinkage=1\n\n\n"
                      "end of trees\n\nparameters:\n[boosting: gbdt]\nend of parameters\n\npandas_categorical:null\n");
}

typedef struct kit_model {
    const char *name;
    void (*build)(pst_buf *ret);
    int rank;
    int64_t dims[PST_MAX_RANK]; /* dims[0] is set by kit_input */
    pst_dtype dtype;
} kit_model;

static const kit_model kit_models[] = {
    {"mlp", kit_mlp, 2, {0, 8}, PST_F32},
    {"trees", kit_trees, 2, {0, 8}, PST_F32},
    {"cnn", kit_cnn, 4, {0, 1, 8, 8}, PST_F32},
    {"lstm", kit_lstm, 3, {0, 2, 8}, PST_F32},
    {"control", kit_control, 2, {0, 8}, PST_F32},
    {"strings", kit_strings, 1, {0}, PST_STR},
    {"lstm of bytes", kit_lstm_bytes, 3, {0, 2, 8}, PST_F32},
    {"xgboost", kit_xgboost, 2, {0, 8}, PST_F32},
    {"lightgbm", kit_lightgbm, 2, {0, 8}, PST_F64},
};
#define KIT_MODELS (sizeof kit_models / sizeof *kit_models)

/* An input with n rows; free() its data. */
static inline pst_tensor kit_input(const kit_model *k, int64_t n)
{
    static const char *const words[] = {"alpha", "stop", "Beta", "", "a word that is a good deal longer than the others are"};
    pst_tensor t = {.dtype = k->dtype, .rank = k->rank};
    size_t count = 1;
    for (int i = 0; i < k->rank; i++) {
        t.dims[i] = i ? k->dims[i] : n;
        count *= (size_t)t.dims[i];
    }
    t.data = calloc(count + 1, sizeof(char *));
    for (size_t i = 0; i < count; i++) {
        if (k->dtype == PST_STR)
            ((const char **)t.data)[i] = words[(i + (size_t)n) % 5];
        else if (k->dtype == PST_F64)
            ((double *)t.data)[i] = (double)((i * 29 + (size_t)n * 7) % 31) / 9.0 - 1.5;
        else
            ((float *)t.data)[i] = (float)((i * 29 + (size_t)n * 7) % 31) / 9.0f - 1.5f;
    }
    return t;
}

/* All of a result as bytes, texts with their ends. */
static inline void kit_result(const pst_tensor *t, pst_buf *ret)
{
    size_t n = 1;
    pst_buf_clear(ret);
    pst_buf_add(ret, &t->rank, sizeof t->rank);
    pst_buf_add(ret, t->dims, (size_t)t->rank * sizeof *t->dims);
    for (int i = 0; i < t->rank; i++)
        n *= (size_t)t->dims[i];
    if (t->dtype != PST_STR)
        pst_buf_add(ret, t->data, n * pst_dtype_size(t->dtype));
    for (size_t i = 0; t->dtype == PST_STR && i < n; i++)
        pst_buf_add(ret, ((const char *const *)t->data)[i], strlen(((const char *const *)t->data)[i]) + 1);
}

#endif
