/* expand.h - operators that are made of others: while a file is read, one node of such an operator becomes the nodes it stands for, so that
 * everything behind the loader - estimates, fusion, packed weights, backends - knows only those. Not installed. @thread the loader's,
 * below a eng_heap_run */
#ifndef PST_ENGINE_EXPAND_H
#define PST_ENGINE_EXPAND_H

#include "engine/graph.h"

enum { ENG_EXPAND_NEW = -2 };

typedef struct eng_expand {
    pst_model *m;
    const eng_node *of; /* its inputs, outputs and attributes */
    /* The loader's: a value more, and a node more at the end of the graph, whose operator it finds by its name. push < 0: the error is set,
     * nothing more is taken. */
    int (*value)(void *arg, const char *name, const pst_tensor *konst);
    int (*push)(void *arg, const eng_node *n);
    void *arg;
    int rc;
} eng_expand;

/* NULL, or what of the operator is not covered (a static text): then the node is refused by its name. */
typedef const char *(*eng_expand_fn)(eng_expand *x);

/* Input i of the node; -1 = not given. */
int eng_expand_in(const eng_expand *x, int i);
/* Output i; -1 = nobody wants it. */
int eng_expand_out(const eng_expand *x, int i);
/* A node; out: its results, ENG_EXPAND_NEW = a value of its own, whose id stands there afterwards. */
void eng_expand_nodes(eng_expand *x, const char *op, int n_out, int *out, int n_in, const int *in, int n_attrs, const eng_attr *attrs);
/* The same with one result, whose id it returns. */
int eng_expand_node(eng_expand *x, const char *op, int out, int n_in, const int *in, int n_attrs, const eng_attr *attrs);
int eng_expand_float(eng_expand *x, float v);
int eng_expand_ints(eng_expand *x, int n, const int64_t *v);

#define EXPAND_IN(...)                                                     \
    (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
#define EXPAND_ATTRS(...)                                                                 \
    (int)(sizeof((const eng_attr[]){__VA_ARGS__}) / sizeof(eng_attr)), (const eng_attr[]) \
    {                                                                                     \
        __VA_ARGS__                                                                       \
    }
#define EXPAND_PLAIN          0, NULL
#define EXPAND_INT(NAME, V)   ((eng_attr){.name = NAME, .type = ENG_ATTR_INT, .i = V})
#define EXPAND_FLOAT(NAME, V) ((eng_attr){.name = NAME, .type = ENG_ATTR_FLOAT, .f = V})
#define EXPAND_STR(NAME, V)   ((eng_attr){.name = NAME, .type = ENG_ATTR_STRING, .s = V, .n = sizeof(V) - 1})

#endif
