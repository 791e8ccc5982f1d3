/* Model files made to do harm: each is refused, and with a sentence that says which limit or rule it met. The files are written field
 * by field, because no builder would write them. What only a run can do is in test_engine_memory.c. */
#include "engine/penstock_engine.h"

#include "common/base/buf.h"
#include "common/base/fs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/test.h"

/* ---- the wire format ---- */

static void varint(pst_buf *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        pst_buf_addc(b, (char)(v | 128));
    pst_buf_addc(b, (char)v);
}

static void number(pst_buf *b, unsigned field, int64_t v)
{
    varint(b, field << 3);
    varint(b, (uint64_t)v);
}

static void bytes(pst_buf *b, unsigned field, const void *data, size_t len)
{
    varint(b, field << 3 | 2);
    varint(b, len);
    pst_buf_add(b, data, len);
}

static void text(pst_buf *b, unsigned field, const char *s)
{
    bytes(b, field, s, strlen(s));
}

/* Puts sub into b as a message and empties it. */
static void message(pst_buf *b, unsigned field, pst_buf *sub)
{
    bytes(b, field, sub->data ? sub->data : "", sub->len);
    pst_buf_done(sub);
}

/* "Op in1 in2 > out1 out2" as a NodeProto, left open for attributes. */
static pst_buf node(const char *line)
{
    pst_buf b = {0};
    char copy[256], *save = NULL;
    unsigned field = 4;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (!strcmp(word, ">")) {
            field = 2;
            continue;
        }
        text(&b, field, word);
        if (field == 4)
            field = 1;
    }
    return b;
}

static void add_node(pst_buf *graph, unsigned field, const char *line)
{
    pst_buf n = node(line);
    message(graph, field, &n);
}

/* A ValueInfoProto of float rows. */
static void value(pst_buf *graph, unsigned field, const char *name)
{
    pst_buf v = {0}, type = {0}, tensor = {0}, shape = {0}, dim = {0};
    number(&dim, 1, 4);
    message(&shape, 1, &dim);
    number(&tensor, 1, PST_F32);
    message(&tensor, 2, &shape);
    message(&type, 1, &tensor);
    text(&v, 1, name);
    message(&v, 2, &type);
    message(graph, field, &v);
}

static void import(pst_buf *b, unsigned field, const char *domain, int64_t version)
{
    pst_buf o = {0};
    text(&o, 1, domain);
    number(&o, 2, version);
    message(b, field, &o);
}

/* The model around a graph, which is emptied; more is appended as it is. */
static pst_buf model(pst_buf *graph, pst_buf *more)
{
    pst_buf b = {0};
    number(&b, 1, 9);
    message(&b, 7, graph);
    import(&b, 8, "", 17);
    if (more) {
        pst_buf_add(&b, more->data, more->len);
        pst_buf_done(more);
    }
    return b;
}

/* A graph x → Identity → y to be filled. */
static pst_buf plain_graph(void)
{
    pst_buf g = {0};
    add_node(&g, 1, "Identity x > y");
    value(&g, 11, "x");
    value(&g, 12, "y");
    return g;
}

static void refused_in(const char *dir, pst_buf *file, const pst_model_limits *limits, int code, const char *says)
{
    pst_err err = {0};
    pst_model *m = NULL;
    pst_model_limits own = limits ? *limits : (pst_model_limits){0};
    own.backends = PST_BACKENDS_OWN;
    int rc = pst_model_load(file->data, file->len, dir, &own, &m, &err);
    if (rc != code || !strstr(err.text, says))
        print_message("wanted %d '%s', got %d '%s'\n", code, says, rc, err.text);
    assert_int_equal(rc, code);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    assert_non_null(strstr(err.text, says));
    assert_null(m);
    pst_buf_done(file);
}

static void refused(pst_buf *file, const pst_model_limits *limits, int code, const char *says)
{
    refused_in(NULL, file, limits, code, says);
}

static void taken(pst_buf *file, const char *dir)
{
    pst_err err = {0};
    pst_model *m = NULL;
    if (pst_model_load(file->data, file->len, dir, NULL, &m, &err) < 0)
        print_message("not taken: %s\n", err.text);
    assert_non_null(m);
    pst_model_unref(m);
    pst_buf_done(file);
}

static pst_buf tensor(const char *name, int dtype, int rank, const int64_t *dims)
{
    pst_buf t = {0};
    for (int i = 0; i < rank; i++)
        number(&t, 1, dims[i]);
    number(&t, 2, dtype);
    text(&t, 8, name);
    return t;
}

static pst_buf with_initializer(pst_buf *t)
{
    pst_buf g = plain_graph();
    message(&g, 5, t);
    return model(&g, NULL);
}

/* ---- files and wire ---- */

static void test_hostile_files_that_are_no_models(void **state)
{
    pst_buf g = plain_graph(), b = model(&g, NULL);
    taken(&b, NULL); /* the helper writes sound models */
    for (size_t keep = 1;; keep += 3) {
        g = plain_graph();
        b = model(&g, NULL);
        if (keep >= b.len)
            break;
        b.len = keep; /* every truncation is refused, by whatever sentence */
        pst_model *m = NULL;
        assert_true(pst_model_load(b.data, b.len, NULL, NULL, &m, NULL) < 0);
        pst_buf_done(&b);
    }
    pst_buf_done(&b);
    b = (pst_buf){0};
    varint(&b, 7 << 3 | 2);
    varint(&b, UINT64_MAX);
    refused(&b, NULL, PST_EPARSE, "reaches beyond the end");
    pst_buf_adds(&b, "\x0f\x0f\x0f");
    refused(&b, NULL, PST_EPARSE, "bad field");
    number(&b, 1, 9);
    refused(&b, NULL, PST_EPARSE, "it has no graph");
    g = plain_graph();
    number(&b, 1, 99);
    message(&b, 7, &g);
    refused(&b, NULL, PST_EUNSUPPORTED, "IR version 99");
}

static void test_hostile_sizes(void **state)
{
    pst_model_limits small = {.file_bytes_max = 20}, few = {.nodes_max = 3};
    pst_buf g = plain_graph(), b = model(&g, NULL);
    refused(&b, &small, PST_ELIMIT, "file_bytes_max");
    g = plain_graph();
    for (int i = 0; i < 4; i++)
        add_node(&g, 1, "Identity x >");
    b = model(&g, NULL);
    refused(&b, &few, PST_ELIMIT, "more than 3 nodes (nodes_max)");
    g = plain_graph(); /* integers that take a byte each here and eight in memory */
    pst_buf t = tensor("w", PST_I64, 1, (int64_t[]){4000});
    char zeros[4000] = {0};
    bytes(&t, 7, zeros, sizeof zeros);
    message(&g, 5, &t);
    b = model(&g, NULL);
    refused(&b, &(pst_model_limits){.file_bytes_max = 8000}, PST_ELIMIT, "lists more than 2000 integers");
}

/* A graph in an attribute of a node in a graph … */
static void test_hostile_depth(void **state)
{
    pst_buf g = plain_graph();
    for (int i = 0; i < 6; i++) {
        pst_buf outer = plain_graph(), n = node("Identity x >"), a = {0};
        text(&a, 1, "body");
        message(&a, 6, &g);
        number(&a, 20, 5);
        message(&n, 5, &a);
        message(&outer, 1, &n);
        g = outer;
    }
    pst_buf b = model(&g, NULL), copy = {0};
    pst_buf_add(&copy, b.data, b.len);
    taken(&copy, NULL);
    refused(&b, &(pst_model_limits){.depth_max = 4}, PST_ELIMIT, "deeper than 4 (depth_max)");
    pst_buf type = {0}; /* a type of types, deeper than any graph */
    for (int i = 0; i < 5000; i++) {
        pst_buf seq = {0}, t = {0};
        message(&seq, 1, &type);
        message(&t, 4, &seq);
        type = t;
    }
    pst_buf v = {0};
    text(&v, 1, "x2");
    message(&v, 2, &type);
    g = plain_graph();
    message(&g, 11, &v);
    b = model(&g, NULL);
    refused(&b, NULL, PST_ELIMIT, "depth_max");
}

/* ---- tensors ---- */

static void test_hostile_tensor_shapes(void **state)
{
    const struct {
        int dtype, rank;
        int64_t dims[9];
        int code;
        const char *says;
    } cases[] = {
        {PST_F32, 2, {-1, 4}, PST_ELIMIT, "tensor w: bad shape"},
        {PST_F32, 2, {(int64_t)1 << 40, (int64_t)1 << 40}, PST_ELIMIT, "tensor w: bad shape"},
        {PST_F32, 3, {(int64_t)1 << 40, (int64_t)1 << 40, 0}, PST_ELIMIT, "tensor w: bad shape"},
        {PST_F32, 1, {(int64_t)1 << 28}, PST_ELIMIT, "tensor_bytes_max"},
        {PST_F32, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, PST_ELIMIT, "has 9 dimensions; at most 8"},
        {PST_F32, 1, {4}, PST_EPARSE, "number of values does not match"},
        {99, 1, {4}, PST_EPARSE, "unknown data type 99"},
        {-3, 1, {4}, PST_EPARSE, "unknown data type -3"},
        {0, 1, {4}, PST_EPARSE, "unknown data type 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_buf t = tensor("w", cases[i].dtype, cases[i].rank, cases[i].dims), b = with_initializer(&t);
        refused(&b, NULL, cases[i].code, cases[i].says);
    }
    pst_buf t = tensor("w", PST_F32, 1, (int64_t[]){4});
    bytes(&t, 9, "123", 3);
    pst_buf b = with_initializer(&t);
    refused(&b, NULL, PST_EPARSE, "tensor w: 3 bytes of data, its shape needs 16");
}

/* A few bytes that ask for half a gigabyte, ten times. */
static void test_hostile_sparse_tensors(void **state)
{
    pst_buf g = plain_graph();
    for (int i = 0; i < 10; i++) {
        char name[8];
        snprintf(name, sizeof name, "s%d", i);
        pst_buf v = tensor(name, PST_F32, 1, (int64_t[]){1}), ix = tensor("", PST_I64, 1, (int64_t[]){1}), sp = {0};
        bytes(&v, 9, "\0\0\0\0", 4);
        bytes(&ix, 9, "\0\0\0\0\0\0\0\0", 8);
        message(&sp, 1, &v);
        message(&sp, 2, &ix);
        number(&sp, 3, 1 << 18);
        message(&g, 15, &sp);
    }
    pst_buf b = model(&g, NULL);
    refused(&b, &(pst_model_limits){.file_bytes_max = 4 << 20}, PST_ELIMIT, "beside the file (file_bytes_max)");
    const struct {
        int64_t index, dims;
        int twice;
        const char *says;
    } cases[] = {
        {9, 4, 0, "index outside its shape"}, {-1, 4, 0, "index outside its shape"}, {0, -4, 0, "bad shape"}, {0, 4, 1, "is there twice"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        g = plain_graph();
        for (int k = 0; k <= cases[i].twice; k++) {
            pst_buf v = tensor("s", PST_F32, 1, (int64_t[]){1}), ix = tensor("", PST_I64, 1, (int64_t[]){1}), sp = {0};
            bytes(&v, 9, "\0\0\0\0", 4);
            bytes(&ix, 9, &cases[i].index, 8);
            message(&sp, 1, &v);
            message(&sp, 2, &ix);
            number(&sp, 3, cases[i].dims);
            message(&g, 15, &sp);
        }
        b = model(&g, NULL);
        refused(&b, NULL, PST_EPARSE, cases[i].says);
    }
}

/* ---- external data ---- */

static pst_buf external(const char *location, const char *offset, const char *length)
{
    pst_buf t = tensor("w", PST_F32, 1, (int64_t[]){4});
    const char *const keys[] = {"location", "offset", "length"}, *const values[] = {location, offset, length};
    for (int i = 0; i < 3; i++) {
        if (!values[i])
            continue;
        pst_buf e = {0};
        text(&e, 1, keys[i]);
        text(&e, 2, values[i]);
        message(&t, 13, &e);
    }
    number(&t, 14, 1);
    return with_initializer(&t);
}

static void write_file(const char *dir, const char *name, size_t len)
{
    char *path = pst_fs_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < len; i++)
        fputc(0, f);
    fclose(f);
    free(path);
}

static void test_hostile_external_data(void **state)
{
    char top[] = "/tmp/penstock-hostile-XXXXXX";
    assert_non_null(mkdtemp(top));
    char *dir = pst_fs_join(top, "model"), *pipe = pst_fs_join(dir, "pipe"), *link = pst_fs_join(dir, "link"),
         *folder_link = pst_fs_join(dir, "up"), *secret = pst_fs_join(top, "secret");
    assert_int_equal(mkdir(dir, 0700), 0);
    write_file(top, "secret", 64);
    write_file(dir, "w.bin", 64);
    write_file(dir, "much.bin", 1 << 16);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink("../secret", link), 0);
    assert_int_equal(symlink("..", folder_link), 0);
    const struct {
        const char *location, *offset, *length;
        const char *says;
    } cases[] = {
        {NULL, NULL, NULL, "without a location"},
        {"", NULL, NULL, "without a location"},
        {"../secret", NULL, NULL, "cannot be opened inside the model's folder"},
        {secret, NULL, NULL, "cannot be opened inside the model's folder"},
        {"/etc/passwd", NULL, NULL, "cannot be opened inside the model's folder"},
        {"a/../../secret", NULL, NULL, "cannot be opened inside the model's folder"},
        {"link", NULL, NULL, "cannot be opened inside the model's folder"},
        {"up/secret", NULL, NULL, "cannot be opened inside the model's folder"},
        {"none", NULL, NULL, "cannot be opened inside the model's folder"},
        {"pipe", NULL, NULL, "is no file"},
        {".", NULL, NULL, "is no file"},
        {"w.bin", "49", NULL, "shorter than offset + length"},
        {"w.bin", "18446744073709551615", NULL, "its shape needs 16"},
        {"w.bin", "9223372036854775807", "16", "its shape needs 16"},
        {"w.bin", "99999999999999999999999", NULL, "which is no number"},
        {"w.bin", "-1", NULL, "which is no number"},
        {"w.bin", "0x10", NULL, "which is no number"},
        {"w.bin", "0", "15", "external data of 15 bytes, its shape needs 16"},
        {"w.bin", "0", "", "which is no number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_buf b = external(cases[i].location, cases[i].offset, cases[i].length);
        pst_err err = {0};
        pst_model *m = NULL;
        int rc = pst_model_load(b.data, b.len, dir, NULL, &m, &err);
        if (rc >= 0 || !strstr(err.text, cases[i].says))
            fail_msg("case %zu: wanted '%s', got %d '%s'", i, cases[i].says, rc, err.text);
        pst_buf_done(&b);
    }
    pst_buf b = external("w.bin", "48", "16");
    taken(&b, dir);
    b = external("w.bin", NULL, NULL);
    refused(&b, NULL, PST_EUNSUPPORTED, "save the model as one file");
    /* the same file again and again is as much memory as many files */
    pst_buf g = plain_graph();
    for (int i = 0; i < 200; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        pst_buf t = tensor(name, PST_F32, 1, (int64_t[]){1 << 14}), e = {0};
        text(&e, 1, "location");
        text(&e, 2, "much.bin");
        message(&t, 13, &e);
        number(&t, 14, 1);
        message(&g, 5, &t);
    }
    b = model(&g, NULL);
    refused_in(dir, &b, &(pst_model_limits){.file_bytes_max = b.len, .tensor_bytes_max = 1 << 16}, PST_ELIMIT, "beside the file");
    free(dir);
    free(pipe);
    free(link);
    free(folder_link);
    free(secret);
    pst_fs_remove_tree(top, NULL);
}

/* ---- graphs ---- */

static void test_hostile_names(void **state)
{
    const struct {
        const char *nodes[3];
        const char *says;
    } cases[] = {
        {{"Relu a > b", "Relu b > a"}, "nothing before it makes its input a"}, /* a cycle */
        {{"Relu a > a"}, "nothing before it makes its input a"},
        {{"Relu nowhere > a"}, "nothing before it makes its input nowhere"},
        {{"Relu x > a", "Relu x > a"}, "value a is made twice"},
        {{"Relu x > x"}, "value x is made twice"},
        {{"Split x > a a"}, "value a is made twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_buf g = plain_graph();
        for (int k = 0; k < 3 && cases[i].nodes[k]; k++)
            add_node(&g, 1, cases[i].nodes[k]);
        pst_buf b = model(&g, NULL);
        refused(&b, NULL, PST_EPARSE, cases[i].says);
    }
    pst_buf g = plain_graph();
    value(&g, 11, "x");
    pst_buf b = model(&g, NULL);
    refused(&b, NULL, PST_EPARSE, "input x is there twice");
    g = plain_graph();
    value(&g, 11, "");
    b = model(&g, NULL);
    refused(&b, NULL, PST_EPARSE, "has no name");
    g = plain_graph();
    value(&g, 12, "nothing");
    b = model(&g, NULL);
    refused(&b, NULL, PST_EPARSE, "nothing makes the output nothing");
    g = plain_graph();
    for (int i = 0; i < 2; i++) {
        pst_buf t = tensor("w", PST_F32, 0, NULL);
        bytes(&t, 9, "\0\0\0\0", 4);
        message(&g, 5, &t);
    }
    b = model(&g, NULL);
    refused(&b, NULL, PST_EPARSE, "initializer w is there twice");
    g = plain_graph();
    pst_buf nameless = {0};
    text(&nameless, 1, "x");
    message(&g, 1, &nameless);
    b = model(&g, NULL);
    refused(&b, NULL, PST_EPARSE, "a node without an operator");
}

static void test_hostile_counts(void **state)
{
    pst_buf g = plain_graph(), n = node("Relu x > a");
    for (int i = 0; i < 129; i++) {
        pst_buf a = {0};
        text(&a, 1, "alpha");
        number(&a, 3, 1);
        message(&n, 5, &a);
    }
    message(&g, 1, &n);
    pst_buf b = model(&g, NULL);
    refused(&b, NULL, PST_EPARSE, "has 129 attributes; at most 128");
    g = plain_graph();
    b = model(&g, NULL);
    for (int i = 0; i < 256; i++)
        import(&b, 8, "d", 1);
    refused(&b, NULL, PST_EPARSE, "imports 257 operator sets");
}

/* ---- functions ---- */

/* A FunctionProto of domain f: name, one input i, one output o, whose body is lines; extra is appended. */
static void function(pst_buf *more, const char *name, const char *const *lines, pst_buf *extra)
{
    pst_buf f = {0};
    text(&f, 1, name);
    text(&f, 4, "i");
    text(&f, 5, "o");
    for (; lines && *lines; lines++) {
        pst_buf n = node(*lines);
        if (!strncmp(*lines, "F", 1))
            text(&n, 7, "f");
        message(&f, 7, &n);
    }
    if (extra) {
        pst_buf_add(&f, extra->data, extra->len);
        pst_buf_done(extra);
    }
    import(&f, 9, "", 17);
    text(&f, 10, "f");
    message(more, 25, &f);
}

static pst_buf calling(const char *name, pst_buf *more)
{
    pst_buf g = plain_graph(), n = {0};
    char line[40];
    snprintf(line, sizeof line, "%s x > z", name);
    n = node(line);
    text(&n, 7, "f");
    message(&g, 1, &n);
    import(more, 8, "f", 1);
    return model(&g, more);
}

static void test_hostile_functions(void **state)
{
    pst_buf more = {0}, b;
    function(&more, "F", (const char *const[]){"F i > o", NULL}, NULL);
    b = calling("F", &more);
    refused(&b, NULL, PST_EPARSE, "calls nest deeper than 32");
    function(&more, "F1", (const char *const[]){"F2 i > o", NULL}, NULL);
    function(&more, "F2", (const char *const[]){"F1 i > o", NULL}, NULL);
    b = calling("F1", &more);
    refused(&b, NULL, PST_EPARSE, "calls nest deeper than 32");
    /* each calls the next one twice: 2^25 nodes */
    for (int i = 0; i < 25; i++) {
        char name[8], call1[24], call2[24];
        snprintf(name, sizeof name, "F%d", i);
        snprintf(call1, sizeof call1, "F%d i > t", i + 1);
        snprintf(call2, sizeof call2, "F%d t > o", i + 1);
        function(&more, name, (const char *const[]){call1, call2, NULL}, NULL);
    }
    function(&more, "F25", (const char *const[]){"Relu i > o", NULL}, NULL);
    b = calling("F0", &more);
    refused(&b, NULL, PST_ELIMIT, "functions inlined (nodes_max)");
    function(&more, "F", (const char *const[]){"Relu i > o", NULL}, NULL);
    function(&more, "F", (const char *const[]){"Relu i > o", NULL}, NULL);
    b = calling("F", &more);
    refused(&b, NULL, PST_EPARSE, "function F is there twice");
    function(&more, "F", (const char *const[]){"Relu i > t", NULL}, NULL);
    b = calling("F", &more);
    refused(&b, NULL, PST_EPARSE, "nothing makes its output o");
}

/* A constant of a function is copied at each of its calls. */
static void test_hostile_function_constants(void **state)
{
    pst_buf more = {0}, extra = {0}, n = node("Constant > c"), a = {0}, t = tensor("big", PST_F32, 1, (int64_t[]){4096});
    float *zeros = calloc(4096, sizeof *zeros);
    bytes(&t, 4, zeros, 4096 * sizeof *zeros); /* a list, not raw bytes: it has to be copied */
    free(zeros);
    text(&a, 1, "value");
    message(&a, 5, &t);
    number(&a, 20, 4);
    message(&n, 5, &a);
    message(&extra, 7, &n);
    function(&more, "F1", (const char *const[]){"Relu i > o", NULL}, &extra);
    const char *lines[2001];
    char *made[2000];
    for (int i = 0; i < 1999; i++)
        lines[i] = made[i] = pst_sprintf("F1 i > t%d", i);
    lines[1999] = "Relu i > o";
    lines[2000] = NULL;
    function(&more, "F", lines, NULL);
    for (int i = 0; i < 1999; i++)
        free(made[i]);
    pst_buf b = calling("F", &more);
    refused(&b, &(pst_model_limits){.file_bytes_max = 1 << 20}, PST_ELIMIT, "beside the file");
}

/* An attribute that is a graph, named many times in a function's body: the graph is walked as often as it is named. */
static void test_hostile_shared_graphs(void **state)
{
    pst_buf graph = {0};
    add_node(&graph, 1, "Identity x > q");
    value(&graph, 12, "q");
    for (int level = 0; level < 4; level++) {
        pst_buf call = node("F x > p"), a = {0}, outer = {0};
        text(&call, 7, "f");
        text(&a, 1, "g");
        message(&a, 6, &graph);
        number(&a, 20, 5);
        message(&call, 5, &a);
        message(&outer, 1, &call);
        value(&outer, 12, "p");
        graph = outer;
    }
    pst_buf more = {0}, extra = {0};
    for (int i = 0; i < 50; i++) {
        char line[24];
        snprintf(line, sizeof line, "Identity i > t%d", i);
        pst_buf n = node(line), a = {0};
        text(&a, 1, "body");
        text(&a, 21, "g");
        number(&a, 20, 5);
        message(&n, 5, &a);
        message(&extra, 7, &n);
    }
    function(&more, "F", (const char *const[]){"Relu i > o", NULL}, &extra);
    import(&more, 8, "f", 1);
    /* the main graph is the outermost of them, with an input */
    value(&graph, 11, "x");
    pst_buf b = model(&graph, &more);
    refused(&b, NULL, PST_ELIMIT, "functions inlined (nodes_max)");
}

/* Kernels may count on their first output. */
static void test_hostile_nodes_without_results_are_not_run(void **state)
{
    pst_buf g = plain_graph(), n = node("Constant >"), a = {0};
    text(&a, 1, "value_int");
    number(&a, 3, 7);
    number(&a, 20, 2);
    message(&n, 5, &a);
    message(&g, 1, &n);
    add_node(&g, 1, "Identity x >");
    pst_buf b = model(&g, NULL);
    pst_model *m = NULL;
    pst_plan *p = NULL;
    assert_int_equal(pst_model_load(b.data, b.len, NULL, NULL, &m, NULL), 0);
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.no_fusion = true}, &p, NULL), 0);
    pst_plan_free(p);
    pst_model_unref(m);
    pst_buf_done(&b);
}

static void test_hostile_operators_are_named_and_clean(void **state)
{
    pst_buf g = plain_graph();
    add_node(&g, 1, "No\nSuch\"One x > z");
    pst_buf b = model(&g, NULL);
    refused(&b, NULL, PST_EUNSUPPORTED, "(name-opset): No?Such?One-17");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_files_that_are_no_models),
        cmocka_unit_test(test_hostile_sizes),
        cmocka_unit_test(test_hostile_depth),
        cmocka_unit_test(test_hostile_tensor_shapes),
        cmocka_unit_test(test_hostile_sparse_tensors),
        cmocka_unit_test(test_hostile_external_data),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_hostile_counts),
        cmocka_unit_test(test_hostile_functions),
        cmocka_unit_test(test_hostile_function_constants),
        cmocka_unit_test(test_hostile_shared_graphs),
        cmocka_unit_test(test_hostile_nodes_without_results_are_not_run),
        cmocka_unit_test(test_hostile_operators_are_named_and_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
