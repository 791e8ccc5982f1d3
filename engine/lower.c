/* lower.c - a graph before any backend takes it: constants folded, second names resolved, nodes that nobody needs left out. What is
 * left are the file's own nodes, so that each backend can fuse in its own way. Folding runs the engine's kernels: a result that
 * only depends on the file is the same wherever the rest is computed. */
#include "engine/plan.h"

#include <string.h>

#define FOLD_BYTES_MAX ((size_t)64 << 20) /* of one result */
#define FOLD_ALL_MAX   ((size_t)1 << 30)  /* read and written for the whole plan: seconds, whatever the file says */
#define FOLD_STEPS_MAX 100000             /* of one node */
#define FOLD_TEXT_MAX  ((size_t)16 << 20) /* of the whole plan */

static void mark_bool(void *arg, int id)
{
    ((bool *)arg)[id] = true;
}

static bool has_graph(const eng_node *n)
{
    for (int k = 0; k < n->n_attrs; k++)
        if (n->attrs[k].graph)
            return true;
    return false;
}

static size_t val_bytes(const eng_val *v)
{
    return v->kind == ENG_VAL_TENSOR ? (size_t)eng_count(&v->t) * pst_dtype_size(v->t.dtype) : 0;
}

/* Runs a node now if everything it reads is known. Failure leaves it for the run, where it may never be reached. */
static bool try_fold(pst_plan *p, const eng_node *n)
{
    if (n->op->flags & ENG_OP_IMPURE || has_graph(n) || p->fold_bytes > FOLD_ALL_MAX)
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0 && !p->folded[n->in[k]])
            return false;
    for (int k = 0; k < n->n_in; k++)
        p->fold_bytes += n->in[k] >= 0 ? val_bytes(&p->vals[n->in[k]]) : 0;
    eng_step s;
    pst_err err = {0};
    p->steps_left = FOLD_STEPS_MAX;
    p->out_bytes_max = FOLD_BYTES_MAX < p->out_bytes_max ? FOLD_BYTES_MAX : p->out_bytes_max;
    int rc = eng_step_make(p, n, &s, &err);
    if (rc == 0)
        rc = eng_step_run(p, &s, &err);
    p->out_bytes_max = p->m->limits.tensor_bytes_max;
    bool ok = rc == 0 && (p->fold_text_bytes += p->text_bytes) < FOLD_TEXT_MAX;
    for (int k = 0; k < n->n_out; k++) {
        eng_val_clear(p, &s.dummy[k]);
        p->fold_bytes += val_bytes(s.out[k]);
        if (val_bytes(s.out[k]) > FOLD_BYTES_MAX) /* what shares an input's data is made without asking for room */
            ok = false;
    }
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k] < 0)
            continue;
        if (!ok) {
            eng_val_clear(p, &p->vals[n->out[k]]);
        } else {
            eng_val *v = &p->vals[n->out[k]];
            if (v->kind == ENG_VAL_TENSOR && v->t.dtype == PST_STR && v->blk) { /* texts made by a kernel live for one run only */
                const char **texts = v->t.data;
                for (int64_t i = 0, cnt = eng_count(&v->t); i < cnt; i++)
                    texts[i] = eng_zone_strdup(&p->zone, texts[i], strlen(texts[i]));
            }
            PST_ASSERT(!p->folded[n->out[k]]); /* a value has one maker */
            p->folded[n->out[k]] = true;
        }
    }
    eng_plan_texts_reset(p);
    return ok;
}

/* An Identity or an inference-time Dropout between two values of this graph is only a second name: readers take the first. */
static bool is_alias(const eng_node *n)
{
    if (*n->domain || n->n_in < 1 || n->in[0] < 0 || n->n_out < 1 || n->out[0] < 0)
        return false;
    bool dropout = !strcmp(n->op_type, "Dropout") && n->opset >= 7 && (n->n_in < 3 || n->in[2] < 0) && (n->n_out < 2 || n->out[1] < 0);
    return dropout || !strcmp(n->op_type, "Identity");
}

static const eng_node *with_inputs(pst_plan *p, const eng_node *n, const int *alias)
{
    bool change = false;
    for (int k = 0; k < n->n_in; k++)
        change |= n->in[k] >= 0 && alias[n->in[k]] != n->in[k];
    if (!change)
        return n;
    eng_node *copy = eng_zone_alloc(&p->zone, sizeof *copy);
    *copy = *n;
    copy->in = eng_zone_alloc(&p->zone, (size_t)n->n_in * sizeof(int));
    for (int k = 0; k < n->n_in; k++)
        copy->in[k] = n->in[k] >= 0 ? alias[n->in[k]] : -1;
    return copy;
}

/* Which nodes are worth running: from the outputs backwards. */
static void drop_dead(const pst_plan *p, const eng_graph *g, eng_node_ref *refs, size_t n, bool *needed)
{
    for (int i = 0; i < g->n_out; i++)
        needed[g->out[i]] = true;
    for (size_t i = n; i-- > 0;) {
        if (refs[i].dead)
            continue;
        bool live = false;
        for (int k = 0; k < refs[i].node->n_out; k++)
            live |= refs[i].node->out[k] >= 0 && needed[refs[i].node->out[k]] && !p->folded[refs[i].node->out[k]];
        refs[i].dead = !live;
        if (live)
            eng_visit_uses(refs[i].node, mark_bool, needed);
    }
}

/* Aliases are resolved in the main graph only: a nested graph may read the outer value by its second name. */
static void resolve_aliases(pst_plan *p, const eng_graph *g, eng_node_ref *refs, size_t n)
{
    int n_values = p->m->n_values;
    int *alias = eng_heap_array((size_t)n_values + 1, sizeof(int));
    bool *fixed = eng_heap_alloc((size_t)n_values + 1); /* graph outputs and what nested graphs read keep their node */
    for (int i = 0; i < n_values; i++)
        alias[i] = i;
    for (int i = 0; i < g->n_out; i++)
        fixed[g->out[i]] = true;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < refs[i].node->n_attrs; k++)
            if (refs[i].node->attrs[k].graph)
                eng_visit_graph(refs[i].node->attrs[k].graph, mark_bool, fixed);
    for (size_t i = 0; i < n; i++) {
        if (refs[i].dead)
            continue;
        refs[i].node = with_inputs(p, refs[i].node, alias);
        if (is_alias(refs[i].node) && !fixed[refs[i].node->out[0]] && !fixed[refs[i].node->in[0]]) {
            alias[refs[i].node->out[0]] = refs[i].node->in[0];
            refs[i].dead = true;
        }
    }
    eng_heap_free(alias);
    eng_heap_free(fixed);
}

int eng_lower(pst_plan *p, const eng_graph *g, eng_lowered *ret, pst_err *err)
{
    size_t n = g->n_nodes;
    *ret = (eng_lowered){.graph = g, .n = n, .nodes = eng_heap_array(n + 1, sizeof *ret->nodes)};
    bool *needed = eng_heap_alloc((size_t)p->m->n_values + 1);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        ret->nodes[i].node = &g->nodes[i];
        if (rc == 0)
            rc = eng_watch_check(&p->watch, err); /* what is folded is run, and may take as long */
        if (rc == 0 && try_fold(p, ret->nodes[i].node)) {
            ret->nodes[i].dead = true;
            ret->n_folded++;
        }
    }
    if (!p->opts.no_fusion)
        resolve_aliases(p, g, ret->nodes, n);
    drop_dead(p, g, ret->nodes, n, needed);
    for (size_t i = 0; i < n; i++)
        ret->n_left += !ret->nodes[i].dead;
    eng_heap_free(needed);
    return rc;
}
