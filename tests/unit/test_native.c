/* Native model files: what libraries of several versions wrote gives what they predict; what is broken is refused by a sentence that says
 * where; running out of memory anywhere unwinds. The files are made by tests/golden/native/make.py. */
#include "engine/heap.h"
#include "engine/native/pull.h"
#include "engine/penstock_engine.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN "tests/golden/native"

typedef struct table {
    int rows, features, outputs;
    double *x, *y;
} table;

static table read_table(const char *path)
{
    table t = {0};
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d %d %d", &t.rows, &t.features, &t.outputs), 3);
    t.x = calloc((size_t)(t.rows * t.features), sizeof *t.x);
    t.y = calloc((size_t)(t.rows * t.outputs), sizeof *t.y);
    for (int r = 0; r < t.rows; r++) {
        for (int k = 0; k < t.features; k++)
            assert_int_equal(fscanf(f, "%lf", &t.x[r * t.features + k]), 1);
        for (int k = 0; k < t.outputs; k++)
            assert_int_equal(fscanf(f, "%lf", &t.y[r * t.outputs + k]), 1);
    }
    fclose(f);
    return t;
}

static void free_table(table *t)
{
    free(t->x);
    free(t->y);
}

static void run(pst_model *m, const table *t, bool no_fusion, double *ret)
{
    const pst_model_info *info = pst_model_info_get(m);
    pst_err err = {0};
    pst_plan *p = NULL;
    pst_plan_opts opts = {.no_fusion = no_fusion};
    size_t n = (size_t)(t->rows * t->features);
    float *narrow = calloc(n, sizeof *narrow);
    for (size_t i = 0; i < n; i++)
        narrow[i] = (float)t->x[i];
    pst_tensor in = {.dtype = info->inputs[0].dtype, .rank = 2, .dims = {t->rows, t->features}}, out;
    in.data = in.dtype == PST_F64 ? (void *)t->x : narrow;
    assert_int_equal(pst_plan_new(m, &opts, &p, &err), 0);
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
    assert_int_equal(out.dims[0], t->rows);
    assert_int_equal(out.dims[1], t->outputs);
    assert_int_equal(out.dtype, info->outputs[0].dtype);
    assert_int_equal(out.dtype, in.dtype); /* what the library computes in double is double here too */
    for (int i = 0; i < t->rows * t->outputs; i++)
        ret[i] = out.dtype == PST_F64 ? ((const double *)out.data)[i] : (double)((const float *)out.data)[i];
    pst_plan_free(p);
    free(narrow);
}

static void check_file(const char *name)
{
    char path[512], rows[512];
    pst_model *m = NULL;
    pst_err err = {0};
    snprintf(path, sizeof path, GOLDEN "/%s", name);
    snprintf(rows, sizeof rows, "%.*s.rows", (int)(strrchr(path, '.') - path), path);
    table t = read_table(rows);
    if (pst_model_load_file(path, NULL, &m, &err) < 0)
        fail_msg("%s", err.text);
    const pst_model_info *info = pst_model_info_get(m);
    assert_string_equal(info->format, strstr(name, ".txt") ? "lightgbm-text" : strstr(name, ".ubj") ? "xgboost-ubj" : "xgboost-json");
    assert_int_equal(info->inputs[0].dims[1], t.features);
    double *got = calloc((size_t)(t.rows * t.outputs), sizeof *got);
    for (int twin = 0; twin < 2; twin++) {
        run(m, &t, twin, got);
        for (int i = 0; i < t.rows * t.outputs; i++)
            if (!(fabs(got[i] - t.y[i]) <= 2e-7 * (1 + fabs(t.y[i])))) /* the file's decimals, and the machine's exponential */
                fail_msg("%s, row %d: %.9g, its library gives %.9g", name, i / t.outputs, got[i], t.y[i]);
    }
    free(got);
    free_table(&t);
    pst_model_unref(m);
}

static void test_native_files_of_many_versions_predict_as_their_libraries(void **state)
{
    struct dirent **list;
    int n = scandir(GOLDEN, &list, NULL, alphasort), files = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(list[i]->d_name, '.');
        if (dot && (!strcmp(dot, ".json") || !strcmp(dot, ".ubj") || !strcmp(dot, ".txt"))) {
            check_file(list[i]->d_name);
            files++;
        }
        free(list[i]);
    }
    free(list);
    assert_true(files >= 20);
}

static void test_native_feature_names_become_the_scorers_mapping(void **state)
{
    static const char *const files[] = {GOLDEN "/xgb-3.2.0-categories.ubj", GOLDEN "/lgb-4.7.0-binary.txt",
                                        GOLDEN "/xgb-3.2.0-binary.json"};
    for (int i = 0; i < 3; i++) {
        pst_model *m = NULL;
        pst_err err = {0};
        assert_int_equal(pst_model_load_file(files[i], NULL, &m, &err), 0);
        const char *features = pst_model_meta(m, "penstock.features");
        if (i == 2)
            assert_null(features); /* it was trained without names */
        else
            assert_non_null(strstr(features, "{\"field\": \"cpu.user\"}, "));
        pst_model_unref(m);
    }
}

/* ---- broken files ---- */

static void refused(const void *data, size_t len, const pst_model_limits *limits, const char *says)
{
    pst_model *m = NULL;
    pst_err err = {0};
    int rc = pst_model_load(data, len, NULL, limits, &m, &err);
    if (rc == 0 || err.cls != PST_CLASS_DATA || !strstr(err.text, says))
        fail_msg("code %d, \"%s\"; \"%s\" was expected", rc, err.text, says);
}

/* A model of one tree, with parts replaced: list "name=value;…". */
typedef struct part {
    const char *name, *normal;
} part;

static const char *value_of(const char *changes, const part *p, char *room, size_t cap)
{
    size_t n = strlen(p->name);
    const char *at = changes;
    while (at && (strncmp(at, p->name, n) || at[n] != '=')) { /* the next change */
        at = strchr(at, ';');
        at += at != NULL;
    }
    if (!at)
        return p->normal;
    at += n + 1;
    snprintf(room, cap, "%.*s", (int)strcspn(at, ";"), at);
    return room;
}

static size_t xgb_text(const char *changes, char *to, size_t cap)
{
    static const part parts[] = {{"left_children", "[1,-1,-1]"},
                                 {"right_children", "[2,-1,-1]"},
                                 {"split_indices", "[1,0,0]"},
                                 {"split_conditions", "[0.5,-1,2]"},
                                 {"default_left", "[1,0,0]"},
                                 {"split_type", "[0,0,0]"},
                                 {"categories", "[]"},
                                 {"categories_nodes", "[]"},
                                 {"categories_segments", "[]"},
                                 {"categories_sizes", "[]"},
                                 {"tree_info", "[0]"},
                                 {"booster", "\"gbtree\""},
                                 {"base_score", "\"5E-1\""},
                                 {"num_class", "\"0\""},
                                 {"num_feature", "\"3\""},
                                 {"objective", "\"reg:squarederror\""},
                                 {"weight_drop", "[]"},
                                 {"leaf_size", "\"1\""},
                                 {"more", ""}};
    enum { N = sizeof parts / sizeof *parts };
    char room[N][200];
    const char *v[N];
    for (int i = 0; i < N; i++)
        v[i] = value_of(changes, &parts[i], room[i], sizeof room[i]);
    return (size_t)snprintf(
        to, cap,
        "{\"learner\": {\"gradient_booster\": {\"model\": {\"trees\": [{\"left_children\": %s, \"right_children\": %s, "
        "\"split_indices\": %s, \"split_conditions\": %s, \"default_left\": %s, \"split_type\": %s, \"categories\": %s, "
        "\"categories_nodes\": %s, \"categories_segments\": %s, \"categories_sizes\": %s, \"tree_param\": "
        "{\"size_leaf_vector\": %s}}], \"tree_info\": %s}, \"name\": %s, \"weight_drop\": %s}, \"learner_model_param\": "
        "{\"base_score\": %s, \"num_class\": %s, \"num_feature\": %s}, \"objective\": {\"name\": %s}}, "
        "\"version\": [3, 2, 0]%s}",
        v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[17], v[10], v[11], v[16], v[12], v[13], v[14], v[15], v[18]);
}

static void test_native_broken_xgboost_files_are_refused_with_the_place(void **state)
{
    static const char *const cases[][2] = {
        {"left_children=[0,-1,-1]", "tree 0: node 0 has two parents or stands above itself"},
        {"left_children=[2,-1,-1]", "tree 0: node 2 has two parents"},
        {"left_children=[7,-1,-1]", "tree 0: left_children[0] is 7; the tree has 3 nodes"},
        {"right_children=[-1,-1,-1]", "tree 0: right_children[0] is -1"},
        {"right_children=[2,-1]", "tree 0: right_children has 2 elements, left_children has 3"},
        {"left_children=[]", "tree 0: left_children has 0 elements"},
        {"left_children=[1,0.5,-1]", "left_children[1] is a number, not a whole number"},
        {"left_children=[99999999999999999999999,-1,-1]", "left_children[0] is a number, not a whole number"},
        {"split_indices=[3,0,0]", "tree 0: node 0 splits by feature 3; the model has 3 (num_feature)"},
        {"split_indices=[-1,0,0]", "tree 0: node 0 splits by feature -1"},
        {"split_conditions=[NaN,1,1]", "tree 0: node 0 compares with NaN"},
        {"split_conditions=[1e999,1,1]", "larger than a float holds"},
        {"split_conditions=[true,1,1]", "split_conditions[0] is true or false, not a number"},
        {"split_type=[2,0,0]", "tree 0: node 0 has split_type 2"},
        {"split_type=[1,0,0]", "tree 0: node 0 is categorical and not in categories_nodes"},
        {"split_type=[1,0,0];categories_nodes=[0];categories_segments=[0];categories_sizes=[1]", "categories of node 0 lie outside"},
        {"split_type=[1,0,0];categories_nodes=[0];categories_segments=[0];categories_sizes=[9223372036854775807]", "categories_sizes[0]"},
        {"split_type=[1,0,0];categories=[-4];categories_nodes=[0];categories_segments=[0];categories_sizes=[1]", "node 0 has category -4"},
        {"split_type=[1,0,0];categories=[16777216];categories_nodes=[0];categories_segments=[0];categories_sizes=[1]", "category 16777216"},
        {"tree_info=[1]", "tree_info[0] is 1; the model has 1 outputs"},
        {"tree_info=[]", "tree_info has 0 elements for 1 trees"},
        {"booster=\"gbforest\"", "the booster is \"gbforest\""},
        {"booster=\"dart\"", "weight_drop has 0 elements for 1 trees"},
        {"booster=\"gblinear\"", "weights has 0 elements; 3 features and 1 outputs need 4"},
        {"objective=\"reg:mine\"", "the objective \"reg:mine\" is not known"},
        {"objective=\"binary:logistic\";base_score=\"1.5\"", "base_score is 1.5"},
        {"objective=\"reg:logistic\";base_score=\"-1E-9\"", "base_score is -1e-09"},
        {"objective=\"reg:gamma\";base_score=\"0\"", "base_score is 0"},
        {"base_score=\"[1,2]\"", "base_score has 2 numbers for 1 outputs"},
        {"base_score=\"[1,\"", "no finite number at its place 1"},
        {"base_score=\"half\"", "no finite number at its place 0"},
        {"num_class=\"99999999\"", "num_class is \"99999999\""},
        {"num_feature=\"-3\"", "num_feature is \"-3\""},
        {"num_feature=\"0\"", "num_feature is 0 or not there"},
        {"num_feature=\"1\"", "tree 0: node 0 splits by feature 1; the model has 1"},
        {"leaf_size=\"2\"", "base_weights has 0 elements for 3 nodes of 2 values"},
        {"more=,", "a key was expected"},
        {"more=} {", "more bytes behind the document"},
        {"more=, \"x\": \"\\ud800\"", "half a surrogate pair"},
        {"more=, \"x\": 01", "leading zero"},
        {"more=, \"x\": 1.", "ends in a dot"},
        {"more=, \"x\": maybe", "a value was expected"},
        {"more=, \"x\": [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]", "nest deeper than 16"},
    };
    char text[4000];
    pst_model *m = NULL;
    pst_err err = {0};
    size_t n = xgb_text(NULL, text, sizeof text);
    if (pst_model_load(text, n, NULL, NULL, &m, &err) < 0)
        fail_msg("%s", err.text);
    pst_model_unref(m);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n = xgb_text(cases[i][0], text, sizeof text);
        refused(text, n, NULL, cases[i][1]);
    }
    n = xgb_text(NULL, text, sizeof text);
    for (size_t k = 1; k < n; k++) { /* cut anywhere */
        char *cut = malloc(k);
        memcpy(cut, text, k);
        err = (pst_err){0};
        assert_true(pst_model_load(cut, k, NULL, NULL, &m, &err) < 0);
        assert_int_equal(err.cls, PST_CLASS_DATA);
        free(cut);
    }
    refused("{\"a\": 1}", 8, NULL, "it has no learner.gradient_booster; Booster.save_model writes model files");
    pst_model_limits few = {.tensor_bytes_max = 1024};
    refused(text, n, &few, "tensor_bytes_max");
}

static void test_native_broken_ubjson_is_refused_with_the_byte(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
#define UBJ(S, SAYS) {S, sizeof(S) - 1, SAYS}
        UBJ("{L\0\0\0\0\0\0\0\7learner", "the file ends inside a value"),
        UBJ("{U\7learner{", "the file ends inside an object"),
        UBJ("{U\1a[$", "the file ends inside a value"),
        UBJ("{U\1a[$l#L\x7f\xff\xff\xff\xff\xff\xff\xff", "a length of 9223372036854775807; 0 bytes are left"),
        UBJ("{U\1a[$T#U\5", "a typed list of elements 0x54"),
        UBJ("{U\1a[$[#U\5", "a typed list of elements 0x5b"),
        UBJ("{U\1a[$lU\5", "a typed list without a count"),
        UBJ("{U\1a[#i\xff", "a length of -1"),
        UBJ("{U\1aH", "0x48 begins no value"),
        UBJ("{U\1a]}", "0x5d begins no value"),
        UBJ("{d\0\0\0\0", "a length that is no whole number"),
        UBJ("{U\1a[[[[[[[[[[[[[[[[[[[[[[", "nest deeper than 16"),
#undef UBJ
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i].bytes, cases[i].n, NULL, cases[i].says);
}

static size_t lgb_text(const char *changes, char *to, size_t cap)
{
    static const part parts[] = {{"num_leaves", "3"},
                                 {"num_cat", "0"},
                                 {"split_feature", "0 1"},
                                 {"threshold", "0.5 1e-35"},
                                 {"decision_type", "2 10"},
                                 {"left_child", "1 -1"},
                                 {"right_child", "-2 -3"},
                                 {"leaf_value", "1 2 3"},
                                 {"cat_boundaries", "0 1"},
                                 {"cat_threshold", "5"},
                                 {"max_feature_idx", "2"},
                                 {"objective", "regression"},
                                 {"num_tree_per_iteration", "1"},
                                 {"feature_names", "a b c"},
                                 {"version", "v4"},
                                 {"tree_sizes", "100"},
                                 {"ending", "end of trees"},
                                 {"is_linear", "0"},
                                 {"leaf_features", "0"}};
    enum { N = sizeof parts / sizeof *parts };
    char room[N][200];
    const char *v[N];
    for (int i = 0; i < N; i++)
        v[i] = value_of(changes, &parts[i], room[i], sizeof room[i]);
    return (size_t)snprintf(to, cap,
                            "tree\nversion=%s\nnum_class=1\nnum_tree_per_iteration=%s\nlabel_index=0\nmax_feature_idx=%s\nobjective=%s\n"
                            "feature_names=%s\nfeature_infos=none\ntree_sizes=%s\n\nTree=0\nnum_leaves=%s\nnum_cat=%s\nsplit_feature=%s\n"
                            "threshold=%s\ndecision_type=%s\nleft_child=%s\nright_child=%s\nleaf_value=%s\ncat_boundaries=%s\n"
                            "cat_threshold=%s\nis_linear=%s\nleaf_const=1 2 3\nnum_features=1 0 0\nleaf_features=%s\nleaf_coeff=2\n"
                            "shrinkage=1\n\n\n%s\n\nparameters:\nend of parameters\n",
                            v[14], v[12], v[10], v[11], v[13], v[15], v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[17],
                            v[18], v[16]);
}

static float one_score(const char *changes)
{
    char text[4000];
    pst_model *m = NULL;
    pst_plan *plan = NULL;
    pst_err err = {0};
    size_t n = xgb_text(changes, text, sizeof text);
    if (pst_model_load(text, n, NULL, NULL, &m, &err) < 0 || pst_plan_new(m, NULL, &plan, &err) < 0)
        fail_msg("%s: %s", changes, err.text);
    float x[3] = {0, 0, 0};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, 3}, .data = x}, out = {0};
    if (pst_plan_run(plan, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s: %s", changes, err.text);
    float got = *(const float *)out.data;
    pst_plan_free(plan);
    pst_model_unref(m);
    return got;
}

/* As XGBoost 3.2.0 computes it: margins of -13.8155 at the least and 13.7452 at the most, with a leaf of -1 here. */
static void test_native_base_score_of_logistic_is_kept_off_its_ends(void **state)
{
    static const char *const low[] = {"0E0", "1E-30", "1E-9", "1E-6"}, *const high[] = {"1E0", "9.9999994E-1", "9.99999E-1"};
    char changes[120];
    float least = 1.0f / (1.0f + expf(13.815509259700775f + 1)), most = 1.0f / (1.0f + expf(-13.745160639286041f + 1));
    for (int i = 0; i < 4; i++) {
        snprintf(changes, sizeof changes, "objective=\"binary:logistic\";base_score=\"%s\"", low[i]);
        assert_true(fabsf(one_score(changes) / least - 1) < 1e-4f);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(changes, sizeof changes, "objective=\"binary:logistic\";base_score=\"%s\"", high[i]);
        assert_true(fabsf(one_score(changes) - most) < 1e-6f);
    }
}

/* ---- names of categories ---- */

static void names_are(const void *data, size_t len, const char *want, const char *remark)
{
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load(data, len, NULL, NULL, &m, &err) < 0)
        fail_msg("%s", err.text);
    const char *got = pst_model_meta(m, "penstock.categories"), *said = pst_model_meta(m, "native.remark");
    if (want ? !got || strcmp(got, want) : got != NULL)
        fail_msg("\"%s\", \"%s\" was expected", got ? got : "(none)", want ? want : "(none)");
    if (remark ? !said || !strstr(said, remark) : said != NULL)
        fail_msg("remark \"%s\", \"%s\" was expected", said ? said : "(none)", remark ? remark : "(none)");
    pst_model_unref(m);
}

/* enc of three features, as XGBoost 3.1 and 3.2 write it. */
static void test_native_names_of_xgboosts_categories(void **state)
{
    static const struct {
        const char *enc, *want, *remark;
    } good[] = {
        {"", NULL, NULL},
        {"{\"offsets\": [], \"values\": []}, {\"type\": 15, \"values\": [10, -20]}, {\"offsets\": [], \"values\": []}",
         "{\"1\": [10, -20]}", NULL},
        {"{\"values\": [99, 97, 114, 98], \"offsets\": [0, 3, 3, 4]}, {\"values\": [7]}, {\"values\": []}",
         "{\"0\": [\"car\", \"\", \"b\"], \"1\": [7]}", NULL},
        {"{\"offsets\": [0, 4], \"values\": [97, 34, 92, 10]}, {\"values\": []}, {\"values\": []}", "{\"0\": [\"a\\u0022\\u005c\\u000a\"]}",
         NULL},
        {"{\"offsets\": [0, 2], \"values\": [97, 0]}, {\"values\": []}, {\"values\": [1]}", "{\"2\": [1]}", NULL}, /* a NUL */
        {"{\"offsets\": [0, 1, 4], \"values\": [-61, -92, 98, 99]}, {\"values\": []}, {\"values\": [1]}", "{\"2\": [1]}",
         "letters beyond ASCII"},
    };
    static const char *const bad[][2] = {
        {"{\"values\": [1]}", "cats.enc has 1 elements for 3 features"},
        {"{\"offsets\": [0, 5], \"values\": [97]}, {\"values\": []}, {\"values\": []}", "cats.enc[0]: name 0 lies outside its 1 bytes"},
        {"{\"offsets\": [1, 0], \"values\": [97]}, {\"values\": []}, {\"values\": []}", "name 0 lies outside"},
        {"{\"offsets\": [-1, 0], \"values\": [97]}, {\"values\": []}, {\"values\": []}", "name 0 lies outside"},
        {"[1], {\"values\": []}, {\"values\": []}", "an element of cats.enc is a list"},
        {"{\"values\": [1.5]}, {\"values\": []}, {\"values\": []}", "is a number, not a whole number"},
    };
    char text[6000], changes[400];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(changes, sizeof changes, "tree_info=[0], \"cats\": {\"enc\": [%s], \"sorted_idx\": [0, 1]}", good[i].enc);
        names_are(text, xgb_text(changes, text, sizeof text), good[i].want, good[i].remark);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(changes, sizeof changes, "tree_info=[0], \"cats\": {\"enc\": [%s]}", bad[i][0]);
        refused(text, xgb_text(changes, text, sizeof text), NULL, bad[i][1]);
    }
}

/* A file whose feature 2 has the categories 0 to 39, another end put to it. */
static void lgb_names(const char *parameters, const char *names, const char *want, const char *remark)
{
    char *text = calloc(1, 60000);
    FILE *f = fopen(GOLDEN "/lgb-4.7.0-binary.txt", "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, 50000, f);
    fclose(f);
    char *end = strstr(text, "parameters:");
    assert_true(n > 0 && end);
    int more = snprintf(end, 9000, "parameters:\n[boosting: gbdt]\n%s\nend of parameters\n\npandas_categorical:%s", parameters, names);
    names_are(text, (size_t)(end - text) + (size_t)more, want, remark);
    free(text);
}

static void test_native_names_of_lightgbms_categories(void **state)
{
    char forty[2000], want[2100], other[4100];
    int n = snprintf(forty, sizeof forty, "[\"a \\u00e4\"");
    for (int i = 1; i < 40; i++)
        n += snprintf(forty + n, sizeof forty - (size_t)n, i % 2 ? ", \"k%d\"" : ", %d.5", i);
    snprintf(forty + n, sizeof forty - (size_t)n, "]");
    snprintf(want, sizeof want, "{\"2\": %s}", forty);
    static const char of_2[] = "[categorical_feature: 2]", two[] = "lists of category names for";
    snprintf(other, sizeof other, "[%s]", forty);
    lgb_names(of_2, other, want, NULL);
    lgb_names("[categorical_feature: 1]", other, NULL, two); /* a feature of numbers */
    lgb_names("[categorical_feature: 4]", other, NULL, two);
    lgb_names("[categorical_feature: name:kind]", other, NULL, two);
    lgb_names("[categorical_feature: ]", other, NULL, two); /* an ordered category alone */
    lgb_names("", other, NULL, two);
    lgb_names("[categorical_feature: 2,3]", other, NULL, two);
    char twice[4200];
    snprintf(twice, sizeof twice, "[%s, %s]", forty, forty);
    lgb_names("[categorical_feature: 2,2]", twice, NULL, two);
    lgb_names("[categorical_feature: 2,1]", twice, NULL, two);
    snprintf(other, sizeof other, "[%s, [\"s\", \"m\"]]", forty);
    lgb_names(of_2, other, NULL, two);              /* and one beside it */
    lgb_names(of_2, "[[\"a\", \"b\"]]", NULL, two); /* codes beyond the list */
    lgb_names(of_2, "null", NULL, NULL);
    lgb_names(of_2, "[]", NULL, NULL);
    lgb_names(of_2, "[[\"a\", ", NULL, NULL); /* cut: codes as before */
    for (int i = 0; i < 5; i++) {
        static const char *const odd[] = {"null", "NaN", "[1]", "\"\\u0000\"", "1e999"};
        int at = snprintf(other, sizeof other, "[[%s", odd[i]);
        for (int k = 1; k < 40; k++)
            at += snprintf(other + at, sizeof other - (size_t)at, ", %d", k);
        snprintf(other + at, sizeof other - (size_t)at, "]]");
        lgb_names(of_2, other, NULL, NULL); /* a list that no words can be taken from */
    }
}

static void test_native_best_iteration_is_told(void **state)
{
    char text[6000], two[6000];
    pst_err err = {0};
    xgb_text("tree_info=[0,0]", text, sizeof text);
    const size_t head = strlen("{\"learner\": {");
    const char *tree = strstr(text, "{\"left_children"), *end = strstr(tree, "}], \"tree_info");
    for (int best = 0; best < 3; best++) {
        pst_model *m = NULL;
        int n = snprintf(two, sizeof two, "{\"learner\": {\"attributes\": {\"best_iteration\": \"%d\", \"best_score\": \"0.1\"}, ", best);
        n += snprintf(two + n, sizeof two - (size_t)n, "%.*s, %s", (int)(end + 1 - (text + head)), text + head, tree); /* the tree, twice */
        if (pst_model_load(two, (size_t)n, NULL, NULL, &m, &err) < 0)
            fail_msg("%s\n%s", err.text, two);
        const char *remark = pst_model_meta(m, "native.remark");
        if (best == 0)
            assert_non_null(strstr(remark, "best_iteration is 0, and all 2 trees are used"));
        else
            assert_null(remark);
        pst_model_unref(m);
    }
}

static void test_native_files_of_other_kinds_are_named_with_the_cure(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *seen, *cure;
    } cases[] = {
#define KIND(bytes, seen, cure) {bytes, sizeof(bytes) - 1, seen, cure}
        KIND("\x80\x04\x95\xc1\x00", "pickle", "save_model(\"model.ubj\")"),
        KIND("binf\0\0\0\x3f", "XGBoost's old binary format", "save_model"),
        KIND("CBM1\x10\0\0\0", "CatBoost", "format=\"onnx\""),
        KIND("\x1f\x8b\x08\0\0", "gzip", "gunzip"),
        KIND("\x78\x9c\xed\xbd", "zlib", "Python"),
        KIND("\x89HDF\r\n\x1a\n\0\0", "HDF5", "tf2onnx"),
        KIND("PK\x03\x04....archive/data.pkl....", "PyTorch", "torch.onnx.export"),
        KIND("PK\x03\x04....m/saved_model.pb..", "SavedModel", "tf2onnx"),
        KIND("PK\x03\x04....x.txt", "zip archive", "unpack"),
        KIND("<?xml version=\"1.0\"?>\n<PMML version=\"4.4\">", "PMML", "ONNX"),
        KIND("<!DOCTYPE html><html>", "web page", "fetch"),
        KIND("booster[0]:\n0:[f0<0.5] yes=1,no=2,missing=1\n", "text dump of XGBoost", "save_model"),
        KIND("[{\"nodeid\": 0, \"split\": \"f0\"}]", "JSON dump of XGBoost", "save_model"),
        KIND("{\"name\": \"tree\", \"tree_info\": [{\"tree_structure\": {}}]}", "JSON dump of LightGBM", "model.txt"),
        KIND("\x08\x01\x12\x20 serving_default NoOp", "SavedModel", "tf2onnx"),
        KIND("", "empty", ""),
        KIND("hello world\n", "a text", "save_model"),
        KIND("a,b,c\r\n1,2,3\r\n", "a text", "LightGBM"),
        KIND("name: x\nmodel: {file: \xc3\xa9.onnx}\n", "a text", "ONNX"),
        KIND("hello\0world", "no model that can be read", ""),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(cases[i].bytes, cases[i].len, NULL, cases[i].seen);
        refused(cases[i].bytes, cases[i].len, NULL, cases[i].cure);
    }
}

static void test_native_broken_lightgbm_files_are_refused_with_the_place(void **state)
{
    static const char *const cases[][2] = {
        {"left_child=0 -1", "tree 0: node 0 has two parents or stands above itself"},
        {"left_child=1 -2", "tree 0: leaf 1 has two parents"},
        {"left_child=2 -1", "tree 0: left_child[0] is 2; -3 to 1 are possible"},
        {"right_child=-2 -9", "tree 0: right_child[1] is -9"},
        {"left_child=1", "tree 0: left_child has no whole number at its place 1"},
        {"left_child=1 -1 -1", "left_child has more numbers"},
        {"split_feature=0 3", "tree 0: split_feature[1] is 3; 0 to 2 are possible"},
        {"threshold=0.5 nan", "tree 0: node 1 compares with NaN"},
        {"threshold=0.5 half", "threshold has no number at its place 1"},
        {"decision_type=2 16", "decision_type[1] is 16"},
        {"decision_type=2 14", "node 1 has decision_type 14"},
        {"decision_type=2 1", "node 1 takes category set 1e-35; there are 0"},
        {"num_cat=1;decision_type=2 1;cat_boundaries=0 4", "cat_threshold is too short for 4 words"},
        {"num_cat=1;cat_boundaries=1 2", "cat_boundaries[0] is 1"},
        {"num_cat=2;cat_boundaries=0 2 1", "cat_boundaries[2] is 1"},
        {"num_cat=900", "num_cat is 900"},
        {"num_leaves=900", "num_leaves is 900"},
        {"num_leaves=0", "num_leaves is 0"},
        {"num_leaves=1", "more numbers than the tree has places"},
        {"leaf_value=1 2", "num_leaves is 3 and leaf_value has not as many"},
        {"leaf_value=1 2222", "leaf_value has no number at its place 2"},
        {"is_linear=1;leaf_features=7", "leaf_features[0] is 7"},
        {"max_feature_idx=-2", "max_feature_idx is \"-2\""},
        {"num_tree_per_iteration=2", "1 trees are no whole number of iterations of 2"},
        {"num_tree_per_iteration=999999999", "num_tree_per_iteration is \"999999999\""},
        {"objective=mine", "the objective \"mine\" is not known"},
        {"objective=binary sigmoid:-1", "sigmoid is no number above 0"},
        {"feature_names=a b", "feature_names has 2 names for 3 features"},
        {"version=v9", "the file's version is \"v9\""},
        {"tree_sizes=10 10", "tree_sizes lists 2 trees, the file has 1"},
        {"ending=", "the file ends before its \"end of trees\""},
    };
    char text[4000];
    pst_model *m = NULL;
    pst_err err = {0};
    size_t n = lgb_text(NULL, text, sizeof text);
    if (pst_model_load(text, n, NULL, NULL, &m, &err) < 0)
        fail_msg("%s", err.text);
    pst_model_unref(m);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n = lgb_text(cases[i][0], text, sizeof text);
        refused(text, n, NULL, cases[i][1]);
    }
    n = lgb_text(NULL, text, sizeof text);
    for (size_t k = 5; k < (size_t)(strstr(text, "end of trees") - text); k++) {
        char *cut = malloc(k);
        memcpy(cut, text, k);
        refused(cut, k, NULL, "LightGBM text file: ");
        free(cut);
    }
}

/* ---- the reader of documents ---- */

static void test_native_pull_reads_texts_and_numbers(void **state)
{
    static const char json[] =
        " {\"a\\u00e9\\ud83d\\ude00\\n\": [1, -2.5e-1, -0, 123456789012345678901, NaN, -Infinity, true, null, \"\"]} ";
    static const struct {
        eng_pull_kind kind;
        int64_t i;
        float f;
    } want[] = {{ENG_PULL_OBJECT, 0, 0},
                {ENG_PULL_KEY, 0, 0},
                {ENG_PULL_ARRAY, 0, 0},
                {ENG_PULL_INT, 1, 1},
                {ENG_PULL_REAL, 0, -.25f},
                {ENG_PULL_REAL, 0, -0.0f},
                {ENG_PULL_REAL, 0, 123456789012345678901.0f},
                {ENG_PULL_REAL, 0, NAN},
                {ENG_PULL_REAL, 0, -INFINITY},
                {ENG_PULL_BOOL, 1, 1},
                {ENG_PULL_NULL, 0, 0},
                {ENG_PULL_TEXT, 0, 0},
                {ENG_PULL_ARRAY_END, 0, 0},
                {ENG_PULL_OBJECT_END, 0, 0},
                {ENG_PULL_END, 0, 0}};
    eng_pull p;
    eng_pull_token t;
    pst_err err = {0};
    eng_pull_init(&p, ENG_PULL_JSON, json, sizeof json - 1, 8, &err);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(eng_pull_next(&p, &t), 0);
        assert_int_equal(t.kind, want[i].kind);
        assert_int_equal(t.i, want[i].i);
        assert_true(isnan(want[i].f) ? isnan(t.f) : !memcmp(&t.f, &want[i].f, sizeof t.f));
        if (t.kind == ENG_PULL_KEY)
            assert_string_equal(t.s, "a\xc3\xa9\xf0\x9f\x98\x80\n");
    }
    eng_pull_done(&p);
    static const char ubj[] = "{U\1a[$I#i\2\xff\xfe\1\0i\1b{$U#U\1I\0\1k\7U\1c[NZD\x3f\xd0\0\0\0\0\0\0CxSU\2hi]}";
    static const int64_t numbers[] = {-2, 256, 7};
    size_t n = 0, texts = 0;
    eng_pull_init(&p, ENG_PULL_UBJSON, ubj, sizeof ubj - 1, 8, &err);
    while (eng_pull_next(&p, &t) == 0 && t.kind != ENG_PULL_END) {
        if (t.kind == ENG_PULL_INT)
            assert_int_equal(t.i, numbers[n++]);
        if (t.kind == ENG_PULL_REAL)
            assert_true(t.f == .25f);
        texts += t.kind == ENG_PULL_TEXT;
    }
    assert_int_equal(err.code, 0);
    assert_int_equal(n, 3);
    assert_int_equal(texts, 2);
    eng_pull_done(&p);
}

/* ---- memory ---- */

static int load_and_run(const char *path, pst_err *err)
{
    pst_model *m = NULL;
    pst_plan *p = NULL;
    static double x[30 * 4];
    int rc = pst_model_load_file(path, NULL, &m, err);
    if (rc == 0)
        rc = pst_plan_new(m, NULL, &p, err);
    if (rc == 0) {
        pst_tensor in = {.dtype = pst_model_info_get(m)->inputs[0].dtype, .rank = 2, .dims = {30, 4}, .data = x}, out;
        rc = pst_plan_run(p, &in, 1, &out, 1, err);
    }
    pst_plan_free(p);
    pst_model_unref(m);
    return rc;
}

static void test_native_every_allocation_may_fail(void **state)
{
    static const char *const files[] = {GOLDEN "/xgb-3.2.0-categories.json", GOLDEN "/xgb-3.2.0-vectors.ubj",
                                        GOLDEN "/lgb-4.7.0-linear.txt", GOLDEN "/lgb-4.7.0-classes.txt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        uint64_t n = 1, rc = 1;
        for (; rc; n++) {
            pst_err err = {0};
            eng_heap_test_fail(n, false);
            int got = load_and_run(files[i], &err);
            eng_heap_test_fail(0, false);
            rc = got != 0;
            if (got)
                assert_int_equal(err.code, PST_ENOMEM);
        }
        assert_true(n > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_native_files_of_many_versions_predict_as_their_libraries),
        cmocka_unit_test(test_native_feature_names_become_the_scorers_mapping),
        cmocka_unit_test(test_native_broken_xgboost_files_are_refused_with_the_place),
        cmocka_unit_test(test_native_broken_ubjson_is_refused_with_the_byte),
        cmocka_unit_test(test_native_broken_lightgbm_files_are_refused_with_the_place),
        cmocka_unit_test(test_native_pull_reads_texts_and_numbers),
        cmocka_unit_test(test_native_base_score_of_logistic_is_kept_off_its_ends),
        cmocka_unit_test(test_native_names_of_xgboosts_categories),
        cmocka_unit_test(test_native_names_of_lightgbms_categories),
        cmocka_unit_test(test_native_best_iteration_is_told),
        cmocka_unit_test(test_native_files_of_other_kinds_are_named_with_the_cure),
        cmocka_unit_test(test_native_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
