/* onnx_load.c - ModelProto → pst_model: names become value ids, functions are inlined, every node gets its operator.
 * The unpacked protobuf stays with the model, which borrows names and raw tensor bytes from it. */
#include "engine/onnx_read.h"

#include "engine/names.h"
#include "engine/onnx.pb-c.h"
#include "engine/ops/ops.h"
#include "engine/ort/ort.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION_DEPTH_MAX 32
#define ATTRS_MAX          128 /* of one node; a tree ensemble has 25 */
#define IMPORTS_MAX        256
#define EXPAND_OPSET       24 /* of what composed operators are made of */
/* Names and attributes of all nodes, those of functions counted at every call: what a function's body costs, each call costs. */
#define PARTS_MAX        ((size_t)1 << 20)
#define GRAPH_VALUES_MAX ((size_t)1 << 28)

/* Names that can be seen at one place: a graph's own, then its parent's. A function body has no parent. */
typedef struct scope {
    struct scope *parent;
    eng_names names; /* → id */
} scope;

/* A function call in progress: its attributes stand in for ref_attr_name. */
typedef struct call {
    const struct call *caller;
    const eng_attr *attrs;
    int n_attrs;
    const PstOnnx__FunctionProto *fn;
    int depth;
} call;

typedef struct node_list {
    eng_node *at;
    size_t n, cap;
} node_list;

typedef struct loader {
    pst_model *m;
    eng_onnx_room room; /* of tensors and texts that take memory beside the file */
    size_t nodes, parts, graphs, values_cap;
    eng_names unsupported;
    eng_names functions; /* "domain:name:overload" → index */
    pst_err *err;
} loader;

static int bad(loader *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(loader *l, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(l->err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "%s", text);
}

static int new_value(loader *l, const char *name, const pst_tensor *konst)
{
    pst_model *m = l->m;
    m->values = eng_heap_room(m->values, (size_t)m->n_values, 1, &l->values_cap, sizeof *m->values);
    m->values[m->n_values] = (eng_value_def){.name = name, .konst = konst};
    return m->n_values++;
}

static int scope_find(const scope *s, const char *name)
{
    for (; s; s = s->parent) {
        int id = eng_names_get(&s->names, name);
        if (id >= 0)
            return id;
    }
    return -1;
}

static void scope_put(scope *s, const char *name, int id)
{
    eng_names_put(&s->names, name, id);
}

static int load_graph(loader *l, const PstOnnx__GraphProto *g, scope *parent, const call *in_call, int depth, eng_graph *ret);

static int tensor_new(loader *l, PstOnnx__TensorProto *tp, const pst_tensor **ret)
{
    pst_tensor *t = eng_zone_alloc(&l->m->zone, sizeof *t);
    int rc = eng_onnx_tensor(&l->m->zone, tp, &l->room, &l->m->limits, t, l->err);
    *ret = t;
    return rc;
}

/* A text of the file as ours; a function's texts are copied at each of its calls. NULL after an error. */
static const char *text_new(loader *l, const ProtobufCBinaryData *b)
{
    if (eng_onnx_take(&l->room, b->len + 1, "attribute texts", l->err) < 0)
        return NULL;
    return eng_zone_strdup(&l->m->zone, (const char *)b->data, b->len);
}

static int guess_attr_type(const PstOnnx__AttributeProto *p)
{
    if (p->has_type && p->type)
        return p->type;
    return p->has_f       ? ENG_ATTR_FLOAT
           : p->has_i     ? ENG_ATTR_INT
           : p->has_s     ? ENG_ATTR_STRING
           : p->t         ? ENG_ATTR_TENSOR
           : p->g         ? ENG_ATTR_GRAPH
           : p->n_floats  ? ENG_ATTR_FLOATS
           : p->n_ints    ? ENG_ATTR_INTS
           : p->n_strings ? ENG_ATTR_STRINGS
           : p->n_tensors ? ENG_ATTR_TENSORS
                          : 0;
}

static int load_attr(loader *l, const PstOnnx__AttributeProto *p, scope *s, const call *in_call, int depth, eng_attr *a)
{
    eng_zone *z = &l->m->zone;
    int rc = 0;
    *a = (eng_attr){.name = p->name ? p->name : "", .type = (eng_attr_type)guess_attr_type(p)};
    switch (a->type) {
    case ENG_ATTR_FLOAT: a->f = p->f; break;
    case ENG_ATTR_INT: a->i = p->i; break;
    case ENG_ATTR_STRING:
        a->s = text_new(l, &p->s);
        a->n = p->s.len;
        rc = a->s ? 0 : PST_ELIMIT;
        break;
    case ENG_ATTR_TENSOR:
        if (!p->t)
            return bad(l, "attribute %s: no tensor in it", a->name);
        a->n = 1;
        rc = tensor_new(l, p->t, &a->t);
        break;
    case ENG_ATTR_TENSORS: {
        pst_tensor *ts = eng_zone_alloc(z, (p->n_tensors + 1) * sizeof *ts);
        for (size_t i = 0; i < p->n_tensors && rc == 0; i++)
            rc = eng_onnx_tensor(z, p->tensors[i], &l->room, &l->m->limits, &ts[i], l->err);
        a->t = ts;
        a->n = p->n_tensors;
        break;
    }
    case ENG_ATTR_GRAPH:
        if (!p->g)
            return bad(l, "attribute %s: no graph in it", a->name);
        a->graph = eng_zone_alloc(z, sizeof *a->graph);
        rc = load_graph(l, p->g, s, in_call, depth + 1, a->graph);
        break;
    case ENG_ATTR_FLOATS:
        a->floats = p->floats;
        a->n = p->n_floats;
        break;
    case ENG_ATTR_INTS:
        a->ints = p->ints;
        a->n = p->n_ints;
        break;
    case ENG_ATTR_STRINGS: {
        const char **ss = eng_zone_alloc(z, (p->n_strings + 1) * sizeof *ss);
        rc = eng_onnx_take(&l->room, (p->n_strings + 1) * sizeof *ss, "attribute texts", l->err);
        for (size_t i = 0; i < p->n_strings && rc == 0; i++)
            rc = (ss[i] = text_new(l, &p->strings[i])) ? 0 : PST_ELIMIT;
        a->strings = ss;
        a->n = p->n_strings;
        break;
    }
    case ENG_ATTR_TYPE: {
        const PstOnnx__TypeProto *tp = p->tp;
        while (tp && (tp->sequence_type || tp->optional_type))
            tp = tp->sequence_type ? tp->sequence_type->elem_type : tp->optional_type->elem_type;
        a->i = tp && tp->tensor_type ? tp->tensor_type->elem_type : 0;
        break;
    }
    default: /* sparse constants become dense ones; other kinds have no operator that reads them */
        if (p->sparse_tensor) {
            pst_tensor *t = eng_zone_alloc(z, sizeof *t);
            rc = eng_onnx_sparse(z, p->sparse_tensor, &l->room, &l->m->limits, t, l->err);
            a->type = ENG_ATTR_TENSOR;
            a->name = "value";
            a->t = t;
            a->n = 1;
        }
        break;
    }
    return rc;
}

static int count_nodes(loader *l, size_t more)
{
    l->nodes += more;
    return l->nodes <= l->m->limits.nodes_max
               ? 0
               : pst_err_set(l->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                             "the model has more than %zu nodes with its functions inlined (nodes_max)", l->m->limits.nodes_max);
}

static int count_parts(loader *l)
{
    return l->parts <= PARTS_MAX
               ? 0
               : pst_err_set(l->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                             "the model's nodes have more than %zu inputs, outputs and attributes with its functions inlined", PARTS_MAX);
}

static int load_attrs(loader *l, const PstOnnx__NodeProto *np, scope *s, const call *in_call, int depth, eng_attr **ret, int *ret_n)
{
    if (np->n_attribute > ATTRS_MAX)
        return bad(l, "node %s (%s) has %zu attributes; at most %d are supported", np->name ? np->name : "", np->op_type, np->n_attribute,
                   ATTRS_MAX);
    eng_attr *attrs = eng_zone_alloc(&l->m->zone, (np->n_attribute + 1) * sizeof *attrs);
    int n = 0;
    for (size_t i = 0; i < np->n_attribute; i++) {
        const PstOnnx__AttributeProto *p = np->attribute[i];
        if (p->ref_attr_name && *p->ref_attr_name) {
            for (int k = 0; in_call && k < in_call->n_attrs; k++)
                if (!strcmp(in_call->attrs[k].name, p->ref_attr_name)) {
                    attrs[n] = in_call->attrs[k];
                    attrs[n++].name = p->name ? p->name : "";
                    if (in_call->attrs[k].graph) /* walked once more wherever it is named: it counts as often */
                        l->nodes += in_call->attrs[k].graph->weight;
                    break;
                } /* not given by the caller: the operator's own default holds */
            continue;
        }
        int rc = load_attr(l, p, s, in_call, depth, &attrs[n++]);
        if (rc < 0)
            return rc;
    }
    *ret = attrs;
    *ret_n = n;
    return count_nodes(l, 0);
}

static int64_t opset_of(const loader *l, const call *in_call, const char *domain)
{
    PstOnnx__OperatorSetIdProto **o = in_call ? in_call->fn->opset_import : l->m->proto->opset_import;
    size_t n = in_call ? in_call->fn->n_opset_import : l->m->proto->n_opset_import;
    for (size_t i = 0; i < n; i++) {
        const char *d = o[i]->domain ? o[i]->domain : "";
        if (!strcmp(d, "ai.onnx"))
            d = "";
        if (!strcmp(d, domain))
            return o[i]->version;
    }
    return *domain ? 1 : 0;
}

/* What a function is found by; the text belongs to the model's heap, free it with eng_heap_free. */
static char *function_key(const char *domain, const char *name, const char *overload)
{
    eng_heap_text t = {0};
    eng_heap_printf(&t, "%s:%s:%s", domain ? domain : "", name, overload ? overload : "");
    return t.data;
}

static int list_functions(loader *l)
{
    const PstOnnx__ModelProto *mp = l->m->proto;
    for (size_t i = 0; i < mp->n_functions; i++) {
        const PstOnnx__FunctionProto *f = mp->functions[i];
        if (!f->name)
            continue;
        char *key = function_key(f->domain, f->name, f->overload);
        if (f->n_opset_import > IMPORTS_MAX || f->n_attribute_proto > ATTRS_MAX)
            return bad(l, "function %s has more than %d opset imports or %d attributes", f->name, IMPORTS_MAX, ATTRS_MAX);
        if (eng_names_get(&l->functions, key) >= 0)
            return bad(l, "function %s is there twice", f->name);
        eng_names_put(&l->functions, key, (int)i);
    }
    return 0;
}

static const PstOnnx__FunctionProto *function_of(const loader *l, const char *domain, const PstOnnx__NodeProto *np)
{
    if (!l->functions.n)
        return NULL;
    char *key = function_key(domain, np->op_type, np->overload);
    int i = eng_names_get(&l->functions, key);
    eng_heap_free(key);
    return i >= 0 ? l->m->proto->functions[i] : NULL;
}

static eng_node *push_node(node_list *list)
{
    list->at = eng_heap_room(list->at, list->n, 1, &list->cap, sizeof *list->at);
    return &list->at[list->n++];
}

static void refuse_node(loader *l, const eng_node *n, const char *what)
{
    char text[240];
    snprintf(text, sizeof text, "%s%s%s-%" PRId64 "%s%s%s", n->domain, *n->domain ? "." : "", n->op_type, n->opset, what ? " (" : "",
             what ? what : "", what ? ")" : "");
    if (eng_names_get(&l->unsupported, text) < 0)
        eng_names_put(&l->unsupported, eng_zone_strdup(&l->m->zone, text, strlen(text)), 0);
}

typedef struct expansion {
    loader *l;
    node_list *list;
} expansion;

static int expand_value(void *arg, const char *name, const pst_tensor *konst)
{
    return new_value(((expansion *)arg)->l, name, konst);
}

/* Of ONNX's operators, of ONNX Runtime's, and those that only such nodes have: whatever the file imports. */
static void expand_op(eng_node *n)
{
    static const char *const domains[] = {"", "com.microsoft", "+"};
    for (int i = 0; i < 3 && !n->op; i++) {
        n->domain = domains[i];
        n->opset = i ? 1 : EXPAND_OPSET;
        n->op = eng_op_find(n->domain, n->op_type, n->opset);
        n->op = n->op && n->op->run ? n->op : NULL; /* one that is made of others may have its kernel in the last */
    }
    PST_ASSERT(n->op);
}

static int expand_push(void *arg, const eng_node *n)
{
    expansion *e = arg;
    e->l->parts += (size_t)(n->n_in + n->n_out + n->n_attrs);
    int rc = count_parts(e->l);
    if (rc < 0 || (rc = count_nodes(e->l, 1)) < 0)
        return rc;
    eng_node *to = push_node(e->list);
    *to = *n;
    expand_op(to);
    return 0;
}

/* The nodes that a composed operator stands for; it counts no more itself. */
static int expand_node(loader *l, const eng_node *n, node_list *list)
{
    expansion e = {l, list};
    eng_expand x = {.m = l->m, .of = n, .value = expand_value, .push = expand_push, .arg = &e};
    l->nodes--;
    const char *lacks = n->op->made_of(&x);
    if (lacks && x.rc == 0)
        refuse_node(l, n, lacks);
    return x.rc;
}

static int load_node(loader *l, const PstOnnx__NodeProto *np, scope *s, const call *in_call, int depth, node_list *list);

/* The body takes the caller's values for its inputs and gives its results the caller's names: a call leaves no trace. */
static int inline_function(loader *l, const PstOnnx__FunctionProto *f, const eng_node *n, const call *in_call, int depth, node_list *list)
{
    if (in_call && in_call->depth >= FUNCTION_DEPTH_MAX)
        return bad(l, "function %s: calls nest deeper than %d", f->name, FUNCTION_DEPTH_MAX);
    size_t cap = (size_t)n->n_attrs + f->n_attribute_proto;
    call c = {.caller = in_call, .fn = f, .depth = in_call ? in_call->depth + 1 : 1, .n_attrs = n->n_attrs};
    eng_attr *attrs = eng_zone_alloc(&l->m->zone, (cap + 1) * sizeof *attrs);
    if (n->n_attrs)
        memcpy(attrs, n->attrs, (size_t)n->n_attrs * sizeof *attrs);
    scope s = {0};
    int rc = 0;
    for (size_t i = 0; i < f->n_attribute_proto && rc == 0; i++) {
        const PstOnnx__AttributeProto *p = f->attribute_proto[i];
        if (p->name && !eng_attr_find(n, p->name))
            rc = load_attr(l, p, &s, NULL, depth, &attrs[c.n_attrs++]);
    }
    c.attrs = attrs;
    int none = -1;
    for (size_t i = 0; i < f->n_input && rc == 0; i++) {
        int id = (int)i < n->n_in ? n->in[i] : -1;
        if (id < 0) { /* an input left out stays left out inside: an id that never gets a value */
            if (none < 0)
                none = new_value(l, "", NULL);
            id = none;
        }
        scope_put(&s, f->input[i], id);
    }

    for (size_t i = 0; i < f->n_node && rc == 0; i++)
        rc = load_node(l, f->node[i], &s, &c, depth, list);
    for (size_t i = 0; i < f->n_output && rc == 0 && (int)i < n->n_out; i++) {
        int id = scope_find(&s, f->output[i]);
        if (n->out[i] < 0)
            continue;
        if (id < 0) {
            rc = bad(l, "function %s: nothing makes its output %s", f->name, f->output[i]);
            break;
        }
        eng_node *idn = push_node(list); /* an Identity; the plan compiler removes it */
        eng_node fresh = {.domain = "", .op_type = "Identity", .name = "", .opset = 13, .n_in = 1, .n_out = 1};
        fresh.in = eng_zone_alloc(&l->m->zone, 2 * sizeof(int));
        fresh.out = fresh.in + 1;
        fresh.in[0] = id;
        fresh.out[0] = n->out[i];
        fresh.op = eng_op_find("", "Identity", 13);
        *idn = fresh;
    }

    eng_names_done(&s.names);
    return rc;
}

static int load_node(loader *l, const PstOnnx__NodeProto *np, scope *s, const call *in_call, int depth, node_list *list)
{
    eng_zone *z = &l->m->zone;
    if (!np->op_type || !*np->op_type)
        return bad(l, "a node without an operator");
    l->parts += np->n_input + np->n_output + np->n_attribute;
    int rc = count_parts(l);
    if (rc == 0)
        rc = count_nodes(l, 1);
    if (rc < 0)
        return rc;
    const char *domain = np->domain ? np->domain : "";
    if (!strcmp(domain, "ai.onnx"))
        domain = "";
    eng_node n = {
        .domain = domain, .op_type = np->op_type, .name = np->name ? np->name : "", .n_in = (int)np->n_input, .n_out = (int)np->n_output};
    n.in = eng_zone_alloc(z, (np->n_input + 1) * sizeof(int));
    n.out = eng_zone_alloc(z, (np->n_output + 1) * sizeof(int));
    for (int i = 0; i < n.n_in; i++) {
        const char *name = np->input[i];
        n.in[i] = *name ? scope_find(s, name) : -1;
        if (*name && n.in[i] < 0)
            return bad(l, "node %s (%s): nothing before it makes its input %s (nodes must be in topological order)", n.name, n.op_type,
                       name);
    }
    rc = load_attrs(l, np, s, in_call, depth, &n.attrs, &n.n_attrs);
    if (rc < 0)
        return rc;
    for (int i = 0; i < n.n_out; i++) {
        const char *name = np->output[i];
        n.out[i] = -1;
        if (!*name)
            continue;
        if (eng_names_get(&s->names, name) >= 0)
            return bad(l, "node %s (%s): value %s is made twice", n.name, n.op_type, name);
        n.out[i] = new_value(l, name, NULL);
        scope_put(s, name, n.out[i]);
    }
    const PstOnnx__FunctionProto *f = function_of(l, domain, np);
    if (f)
        return inline_function(l, f, &n, in_call, depth, list);
    n.opset = opset_of(l, in_call, domain);
    n.op = eng_op_find(domain, n.op_type, n.opset);
    if (!n.op) {
        refuse_node(l, &n, NULL);
        return 0;
    }
    if (n.op->made_of)
        return expand_node(l, &n, list);
    l->m->info.draws |= (n.op->flags & ENG_OP_DRAWS) != 0;
    if (n.n_out) /* without results it would be run for nothing, and kernels count on output 0 */
        *push_node(list) = n;
    return 0;
}

static int load_initializers(loader *l, const PstOnnx__GraphProto *g, scope *s)
{
    for (size_t i = 0; i < g->n_initializer; i++) {
        const pst_tensor *t;
        int rc = tensor_new(l, g->initializer[i], &t);
        if (rc < 0)
            return rc;
        const char *name = g->initializer[i]->name ? g->initializer[i]->name : "";
        if (eng_names_get(&s->names, name) >= 0)
            return bad(l, "initializer %s is there twice", name);
        scope_put(s, name, new_value(l, name, t));
    }
    for (size_t i = 0; i < g->n_sparse_initializer; i++) {
        PstOnnx__SparseTensorProto *sp = g->sparse_initializer[i];
        pst_tensor *t = eng_zone_alloc(&l->m->zone, sizeof *t);
        int rc = eng_onnx_sparse(&l->m->zone, sp, &l->room, &l->m->limits, t, l->err);
        if (rc < 0)
            return rc;
        const char *name = sp->values->name ? sp->values->name : "";
        if (eng_names_get(&s->names, name) >= 0)
            return bad(l, "initializer %s is there twice", name);
        scope_put(s, name, new_value(l, name, t));
    }
    return 0;
}

static int load_inputs(loader *l, const PstOnnx__GraphProto *g, scope *s, eng_graph *ret)
{
    ret->in = eng_zone_alloc(&l->m->zone, (g->n_input + 1) * sizeof(int));
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = g->input[i]->name ? g->input[i]->name : "";
        int id = eng_names_get(&s->names, name);
        if (!*name)
            return bad(l, "input %zu of a graph has no name", i);
        if (id >= 0 && l->m->values[id].konst)
            continue; /* IR 3 lists initializers among the inputs: they are constants here */
        if (id >= 0)
            return bad(l, "input %s is there twice", name);
        id = new_value(l, name, NULL);
        scope_put(s, name, id);
        ret->in[ret->n_in++] = id;
    }
    return 0;
}

/* A name is looked for in this graph, then in those around it: a nested graph sees what surrounds it, and nothing of it is seen outside. */
static int load_graph(loader *l, const PstOnnx__GraphProto *g, scope *parent, const call *in_call, int depth, eng_graph *ret)
{
    l->graphs++;
    if (depth > l->m->limits.depth_max)
        return pst_err_set(l->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "graphs nest deeper than %d (depth_max)", l->m->limits.depth_max);
    scope s = {.parent = parent};
    node_list list = {0};
    eng_zone *z = &l->m->zone;
    size_t before = l->nodes;
    int rc = load_initializers(l, g, &s);
    if (rc == 0)
        rc = load_inputs(l, g, &s, ret);
    if (rc < 0)
        goto out;
    for (size_t i = 0; i < g->n_node; i++) {
        rc = load_node(l, g->node[i], &s, in_call, depth, &list);
        if (rc < 0)
            goto out;
    }
    ret->out = eng_zone_alloc(z, (g->n_output + 1) * sizeof(int));
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i]->name ? g->output[i]->name : "";
        int id = scope_find(&s, name);
        if (id < 0) {
            rc = bad(l, "nothing makes the output %s", name);
            goto out;
        }
        ret->out[ret->n_out++] = id;
    }
    ret->weight = l->nodes - before + 1;
    ret->n_nodes = list.n;
    ret->nodes = eng_zone_alloc(z, (list.n + 1) * sizeof *ret->nodes);
    if (list.n)
        memcpy(ret->nodes, list.at, list.n * sizeof *ret->nodes);
out:
    eng_heap_free(list.at);
    eng_names_done(&s.names);
    return rc;
}

/* A declared type: sequences and optionals show the type of what is inside; a sequence of maps (ZipMap) is served as (N, classes) floats. */
static eng_kind fill_info(pst_value_info *v, const PstOnnx__ValueInfoProto *p)
{
    eng_kind kind = ENG_KIND_TENSOR;
    const PstOnnx__TypeProto *tp = p->type;
    v->name = p->name ? p->name : "";
    v->rank = -1;
    while (tp && (tp->sequence_type || tp->optional_type)) {
        if (kind == ENG_KIND_TENSOR) /* the outermost decides */
            kind = tp->optional_type ? ENG_KIND_OPT : ENG_KIND_SEQ;
        tp = tp->sequence_type ? tp->sequence_type->elem_type : tp->optional_type->elem_type;
    }
    if (tp && tp->map_type) {
        v->dtype = PST_F32;
        v->rank = 2;
        v->dims[0] = v->dims[1] = -1;
        return ENG_KIND_MAPS;
    }
    if (!tp || !tp->tensor_type)
        return kind;
    v->dtype = (pst_dtype)tp->tensor_type->elem_type;
    const PstOnnx__TensorShapeProto *sh = tp->tensor_type->shape;
    if (!sh || sh->n_dim > PST_MAX_RANK)
        return kind;
    v->rank = (int)sh->n_dim;
    for (int i = 0; i < v->rank; i++)
        v->dims[i] = sh->dim[i]->has_dim_value && sh->dim[i]->dim_value > 0                          ? sh->dim[i]->dim_value
                     : sh->dim[i]->has_dim_value && !sh->dim[i]->dim_value && !sh->dim[i]->dim_param ? 0
                                                                                                     : -1;
    return kind;
}

static void fill_infos(loader *l, const PstOnnx__GraphProto *g)
{
    pst_model *m = l->m;
    pst_model_info *info = &m->info;
    pst_value_info *in = eng_zone_alloc(&m->zone, ((size_t)m->graph.n_in + 1) * sizeof *in);
    pst_value_info *out = eng_zone_alloc(&m->zone, ((size_t)m->graph.n_out + 1) * sizeof *out);
    eng_kind *kinds = eng_zone_alloc(&m->zone, (size_t)(m->graph.n_in + m->graph.n_out + 2) * sizeof *kinds);
    m->in_kinds = kinds;
    size_t k = 0;
    for (size_t i = 0; i < g->n_input && k < (size_t)m->graph.n_in; i++)
        if (!strcmp(m->values[m->graph.in[k]].name, g->input[i]->name ? g->input[i]->name : "")) {
            kinds[k] = fill_info(&in[k], g->input[i]);
            k++;
        }
    kinds += m->graph.n_in;
    m->out_kinds = kinds;
    for (int i = 0; i < m->graph.n_out; i++)
        kinds[i] = fill_info(&out[i], g->output[i]);
    info->inputs = in;
    info->n_inputs = (size_t)m->graph.n_in;
    info->outputs = out;
    info->n_outputs = (size_t)m->graph.n_out;
    info->n_nodes = l->nodes;
    for (size_t i = 0; i < g->n_initializer; i++) {
        pst_tensor t = {.rank = (int)g->initializer[i]->n_dims};
        info->n_parameters += (size_t)eng_dims_count(g->initializer[i]->dims, t.rank);
    }
}

static void fill_model(loader *l)
{
    pst_model_info *info = &l->m->info;
    const PstOnnx__ModelProto *mp = l->m->proto;
    info->opset = opset_of(l, NULL, "");
    info->producer = mp->producer_name ? mp->producer_name : "";
    const char **keys = eng_zone_alloc(&l->m->zone, (2 * mp->n_metadata_props + 1) * sizeof *keys);
    const char **values = keys + mp->n_metadata_props;
    for (size_t i = 0; i < mp->n_metadata_props; i++) {
        keys[i] = mp->metadata_props[i]->key ? mp->metadata_props[i]->key : "";
        values[i] = mp->metadata_props[i]->value ? mp->metadata_props[i]->value : "";
    }
    info->meta_keys = keys;
    info->meta_values = values;
    info->n_meta = mp->n_metadata_props;
}

/* Operators that are not ours: ONNX Runtime serves the whole model, where it may. */
static int serve_unsupported(loader *l)
{
    const eng_names *u = &l->unsupported;
    if (!u->n)
        return 0;
    char text[320];
    size_t n = (size_t)snprintf(text, sizeof text, "operator%s not covered by the engine (name-opset): ", u->n > 1 ? "s" : "");
    for (size_t i = 0; i < u->n && n < sizeof text; i++) {
        if (n > 220) {
            snprintf(text + n, sizeof text - n, " and %zu more", u->n - i);
            break;
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.80s", i ? ", " : "", u->at[i].name);
    }
    for (char *c = text; *c; c++) /* names of the file's choosing go into a line of the log */
        if ((unsigned char)*c < ' ' || *c == '"' || *c == 127)
            *c = '?';
    l->m->foreign = true;
    return eng_ort_serve(l->m, text, l->err);
}

/* The unpacked file belongs to the model's heap, like everything else of it; a failure unwinds through protobuf-c. */
static void *proto_alloc(void *arg, size_t bytes)
{
    return eng_heap_bytes(bytes);
}

static void proto_free(void *arg, void *p)
{
    eng_heap_free(p);
}

int eng_onnx_load(pst_model *m, const void *data, size_t len, int base_dirfd, pst_err *err)
{
    static ProtobufCAllocator heap = {.alloc = proto_alloc, .free = proto_free};
    /* lists in the file become at most eight times as large; the rest of what a file may ask for has a limit of its own */
    size_t room = m->limits.file_bytes_max + 8 * len;
    loader l = {.m = m, .room = {.left = room, .max = room, .base_dirfd = base_dirfd}, .err = err};
    int rc = eng_onnx_scan(&pst_onnx__model_proto__descriptor, data, len, &m->limits, err);
    if (rc < 0)
        return rc;
    m->proto = pst_onnx__model_proto__unpack(&heap, len, data);
    if (!m->proto || !m->proto->graph)
        return bad(&l, "not an ONNX model: %s", m->proto ? "it has no graph" : "the bytes do not parse");
    if (!m->proto->has_ir_version || m->proto->ir_version < 3 || m->proto->ir_version > 14)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "ONNX IR version %" PRId64 " is not supported (3 to 14 are)",
                           m->proto->has_ir_version ? m->proto->ir_version : 0);
    if (m->proto->n_opset_import > IMPORTS_MAX)
        return bad(&l, "the model imports %zu operator sets; at most %d are supported", m->proto->n_opset_import, IMPORTS_MAX);
    rc = list_functions(&l);
    if (rc == 0)
        rc = load_graph(&l, m->proto->graph, NULL, NULL, 0, &m->graph);
    /* a plan takes time and memory for each graph in proportion to all values */
    if (rc == 0 && l.graphs > 1 && l.graphs * (size_t)m->n_values > GRAPH_VALUES_MAX)
        rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                         "the model has %zu nested graphs and %d values, more than can be planned", l.graphs - 1, m->n_values);
    if (rc < 0)
        return rc;
    fill_infos(&l, m->proto->graph);
    fill_model(&l);
    return serve_unsupported(&l);
}
