/* explain_out.c - `models explain` as a table of at most 140 columns, and as JSON with exact numbers. */
#include "engine/explain.h"

#include "engine/device_of.h"

#include "engine/heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 140 };

/* 15,872 up to a million, then 1.58 M. */
static const char *human(double v, char *to, size_t size)
{
    static const char units[] = "MGTP";
    if (v < 999999.5) {
        char digits[16];
        int n = snprintf(digits, sizeof digits, "%.0f", v), o = 0;
        for (int i = 0; i < n && o + 2 < (int)size; i++) {
            if (i && (n - i) % 3 == 0)
                to[o++] = ',';
            to[o++] = digits[i];
        }
        to[o] = 0;
        return to;
    }
    int u = 0;
    for (v /= 1e6; v >= 999.5 && u < 3; u++)
        v /= 1e3;
    snprintf(to, size, "%.*f %c", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[u]);
    return to;
}

/* Bytes of UTF-8 text that fit into so many columns; other than ASCII counts one column a character. */
static int fit(const char *s, int columns)
{
    int n = 0;
    for (; s[n] && (columns > 0 || (s[n] & 0xc0) == 0x80); n++)
        columns -= (s[n] & 0xc0) != 0x80;
    return n;
}

static void put_cut(eng_heap_text *t, const char *s, int columns)
{
    int n = fit(s, columns);
    if (s[n])
        eng_heap_printf(t, "%.*s…", fit(s, columns - 1), s);
    else
        eng_heap_printf(t, "%s", s);
}

static void put_padded(eng_heap_text *t, const char *s, int columns)
{
    int used = 0;
    for (const char *c = s; *c; c++)
        used += (*c & 0xc0) != 0x80;
    put_cut(t, s, columns);
    for (; used < columns; used++)
        eng_heap_printf(t, " ");
}

static void value_line(eng_heap_text *t, const char *what, const pst_value_info *v)
{
    eng_heap_printf(t, "  %-10s ", what);
    put_cut(t, v->name, 60);
    eng_heap_printf(t, " %s", pst_dtype_name(v->dtype));
    if (v->rank < 0) {
        eng_heap_printf(t, ", rank not given\n");
        return;
    }
    eng_heap_printf(t, " (");
    for (int k = 0, first = 1; k < v->rank; k++) {
        if (v->dims[k] >= 0)
            eng_heap_printf(t, "%s%" PRId64, k ? ", " : "", v->dims[k]);
        else
            eng_heap_printf(t, "%s%s", k ? ", " : "", first ? "N" : "*");
        first = first && v->dims[k] >= 0;
    }
    eng_heap_printf(t, ")\n");
}

static void header(const eng_explained *e, eng_heap_text *t)
{
    const pst_model_info *i = &e->p->m->info;
    char a[32], b[32];
    if (e->file) {
        put_cut(t, e->file, WIDTH);
        eng_heap_printf(t, "\n");
    }
    eng_heap_printf(t, "  %-10s sha256 %s\n  %-10s %s bytes, %s parameters\n  %-10s ", "digest", i->digest, "file",
                    human((double)i->file_bytes, a, sizeof a), human((double)i->n_parameters, b, sizeof b), "producer");
    put_cut(t, *i->producer ? i->producer : "not said", 60);
    if (i->opset)
        eng_heap_printf(t, ", opset %" PRId64, i->opset);
    eng_heap_printf(t, "\n");
    const char *remark = pst_model_meta(e->p->m, "native.remark");
    if (remark)
        eng_heap_printf(t, "  %-10s %s\n", "remark", remark);
    if (i->draws)
        eng_heap_printf(t, "  %-10s random numbers, the same in each run: by a node's seed or, without one, its place in the model\n",
                        "draws");
    for (size_t k = 0; k < i->n_inputs; k++)
        value_line(t, k ? "" : "inputs", &i->inputs[k]);
    for (size_t k = 0; k < i->n_outputs; k++)
        value_line(t, k ? "" : "outputs", &i->outputs[k]);
}

/* "Gemm Relu Gemm Relu …": the operators a fused step stands for. */
static void parts_line(const eng_node *n, eng_heap_text *t)
{
    int used = 8;
    if (n->n_parts < 2)
        return;
    eng_heap_printf(t, "      = ");
    for (int i = 0; i < n->n_parts; i++) {
        int len = (int)strlen(n->parts[i]->op_type) + 1;
        if (used + len > WIDTH - 12) {
            eng_heap_printf(t, "… %d more", n->n_parts - i);
            break;
        }
        eng_heap_printf(t, "%s%s", n->parts[i]->op_type, i + 1 < n->n_parts ? " " : "");
        used += len;
    }
    eng_heap_printf(t, "\n");
}

static void step_line(const eng_explained *e, const eng_step *s, size_t at, eng_heap_text *t)
{
    char shape[120], a[32];
    const eng_node *n = s->node;
    const eng_seen *seen = s->seen && s->seen->runs && e->observed ? s->seen : NULL;
    double rows = (double)(e->batch ? e->batch : 1);
    eng_heap_printf(t, "%4zu  ", at);
    put_padded(t, n->op_type, 23);
    if (e->observed) {
        eng_explain_shape(e, s, shape, sizeof shape);
        eng_heap_printf(t, " ");
        put_padded(t, shape, 29);
        eng_heap_printf(t, " %10s", seen ? human(seen->flops / rows, a, sizeof a) : "");
        eng_heap_printf(t, " %10s", seen ? human(seen->bytes / rows, a, sizeof a) : "");
        eng_heap_printf(t, " %9s", seen ? human(seen->out_bytes / rows, a, sizeof a) : "");
    } else {
        eng_heap_printf(t, " ");
        put_padded(t, n->n_out && n->out[0] >= 0 ? e->p->m->values[n->out[0]].name : "", 29);
    }
    if (e->measured && e->observed)
        eng_heap_printf(t, " %9s", seen && seen->best_ns ? human((double)seen->best_ns / rows, a, sizeof a) : "");
    eng_heap_printf(t, "  ");
    int taken = 61; /* by the columns before */
    if (e->observed)
        taken = e->measured ? 103 : 93;
    put_cut(t, eng_explain_kernel(e->p, s), WIDTH - taken);
    eng_heap_printf(t, "\n");
    parts_line(n, t);
    if (seen && seen->runs > 1) /* a nested graph's step */
        eng_heap_printf(t, "      × %" PRIu64 " runs\n", seen->runs);
    if (s->note) {
        eng_heap_printf(t, "      ! ");
        put_cut(t, s->note, WIDTH - 8);
        eng_heap_printf(t, "\n");
    }
}

static void speed(const eng_explained *e, eng_heap_text *t)
{
    char a[32];
    if (e->ns_row < 999.95)
        snprintf(a, sizeof a, "%.1f", e->ns_row);
    else
        human(e->ns_row, a, sizeof a);
    eng_heap_printf(t, "  %-10s %s ns per %s at batch %" PRId64, "measured", a, e->has_batch ? "row" : "run", e->batch);
    if (e->flops > 0 && e->ns_row > 0)
        eng_heap_printf(t, ", %.3g GFLOP/s", e->flops / e->ns_row);
    eng_heap_printf(t, "\n");
}

static void totals(const eng_explained *e, eng_heap_text *t)
{
    char a[32], b[32], c[32];
    double rows = (double)(e->batch ? e->batch : 1);
    if (!e->observed) {
        if (*e->why) {
            eng_heap_printf(t, "\nno shapes and costs: the model does not run on made-up inputs (");
            put_cut(t, e->why, WIDTH);
            eng_heap_printf(t, ")\n");
        }
        if (e->measured)
            speed(e, t);
        return;
    }
    const char *per = e->has_batch ? "row" : "run";
    eng_heap_printf(t, "\n  %-10s %s FLOP and %s bytes moved per %s\n", "cost", human(e->flops, a, sizeof a), human(e->moved, b, sizeof b),
                    per);
    eng_heap_printf(t, "  %-10s constants %s bytes, the plan's own copies and tables %s\n", "weights",
                    human((double)e->weights, a, sizeof a), human((double)e->plan_bytes, b, sizeof b));
    eng_heap_printf(t, "  %-10s values alive at once, at most %s bytes", "memory", human((double)e->peak, a, sizeof a));
    if (e->has_batch)
        eng_heap_printf(t, " at batch %" PRId64 " (%s per row; %s at one row)", e->batch, human((double)e->peak / rows, b, sizeof b),
                        human((double)e->peak_one, c, sizeof c));
    eng_heap_printf(t, "; reserved %s\n", human((double)e->reserved, a, sizeof a));
    if (e->other)
        eng_heap_printf(t, "  %-10s other free dimensions (*) were set to %" PRId64 "\n", "observed", e->other);
    if (e->measured)
        speed(e, t);
}

static size_t nodes_in(const pst_plan *p, size_t eng_prog_field)
{
    size_t n = 0;
    for (size_t g = 0; g < p->n_progs; g++)
        n += *(const size_t *)((const char *)&p->progs[g] + eng_prog_field);
    return n;
}

/* Three forms of one text: a plan alone, of which nothing was run and no number is known; an observed run; and a model that another backend
 * serves whole, which has no steps of ours to list. */
void eng_explain_text(const eng_explained *e, eng_heap_text *t)
{
    const pst_plan *p = e->p;
    if (e->file || e->observed || e->elsewhere || *e->why)
        header(e, t);
    if (e->elsewhere) {
        eng_heap_printf(t, "  %-10s every node of %zu is served by ", "plan", p->m->info.n_nodes);
        put_cut(t, e->elsewhere, 3 * WIDTH);
        eng_heap_printf(t, "\n");
        totals(e, t);
        return;
    }
    size_t nodes = nodes_in(p, offsetof(eng_prog, n_nodes)), steps = nodes_in(p, offsetof(eng_prog, n_steps));
    int threads = pst_plan_threads(p);
    char shared[80] = "";
    if (p->opts.threads > 1)
        snprintf(shared, sizeof shared,
                 threads < (int)p->opts.threads ? ", %d thread%s of %d asked for: no more CPUs here" : ", %d thread%s", threads,
                 threads == 1 ? "" : "s", (int)p->opts.threads);
    eng_heap_printf(t, "  %-10s %s%s%s; %zu node%s: %zu folded to constants, %zu dropped, %zu merged into others, %zu step%s left\n\n",
                    "plan", p->isa, p->opts.no_fusion ? ", no fusion" : "", shared, nodes, nodes == 1 ? "" : "s",
                    nodes_in(p, offsetof(eng_prog, n_folded)), nodes_in(p, offsetof(eng_prog, n_dropped)),
                    nodes_in(p, offsetof(eng_prog, n_fused)), steps, steps == 1 ? "" : "s");
    if (pst_engine_warning())
        eng_heap_printf(t, "  %-10s %s\n\n", "warning", pst_engine_warning());
    if (e->observed)
        eng_heap_printf(t, "%4s  %-23s %-29s %10s %10s %9s%s  %s\n", "#", "OPERATOR", "RESULT", e->has_batch ? "FLOP/ROW" : "FLOP",
                        e->has_batch ? "MOVED/ROW" : "MOVED", e->has_batch ? "OUT/ROW" : "OUT",
                        !e->measured   ? ""
                        : e->has_batch ? "    NS/ROW"
                                       : "        NS",
                        "KERNEL");
    else
        eng_heap_printf(t, "%4s  %-23s %-29s  %s\n", "#", "OPERATOR", "RESULT", "KERNEL");
    for (size_t g = 0; g < p->n_progs; g++) {
        if (g)
            eng_heap_printf(t, "nested graph %zu:\n", g);
        for (size_t i = 0; i < p->progs[g].n_steps; i++)
            step_line(e, &p->progs[g].steps[i], i, t);
    }
    totals(e, t);
}

/* ---- JSON ---- */

static void quote(eng_heap_text *t, const char *s)
{
    eng_heap_printf(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            eng_heap_printf(t, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            eng_heap_printf(t, "\\u%04x", c);
        else
            eng_heap_printf(t, "%c", c);
    }
    eng_heap_printf(t, "\"");
}

static void field(eng_heap_text *t, const char *name, const char *text)
{
    eng_heap_printf(t, ",\"%s\":", name);
    quote(t, text);
}

static void values_json(eng_heap_text *t, const char *what, const pst_value_info *v, size_t n)
{
    eng_heap_printf(t, ",\"%s\":[", what);
    for (size_t i = 0; i < n; i++) {
        eng_heap_printf(t, "%s{\"name\":", i ? "," : "");
        quote(t, v[i].name);
        field(t, "dtype", pst_dtype_name(v[i].dtype));
        if (v[i].rank >= 0) {
            eng_heap_printf(t, ",\"shape\":[");
            for (int k = 0; k < v[i].rank; k++)
                eng_heap_printf(t, "%s%" PRId64, k ? "," : "", v[i].dims[k]);
            eng_heap_printf(t, "]");
        }
        eng_heap_printf(t, "}");
    }
    eng_heap_printf(t, "]");
}

/* Figures of work are per row, as in the table, but exact. A dimension that follows the rows of the input is its name, not a number. */
static void step_json(const eng_explained *e, size_t graph, size_t at, eng_heap_text *t)
{
    const eng_step *s = &e->p->progs[graph].steps[at];
    const eng_node *n = s->node;
    double rows = (double)(e->batch ? e->batch : 1);
    eng_heap_printf(t, "%s{\"graph\":%zu,\"index\":%zu", graph || at ? "," : "", graph, at);
    field(t, "operator", n->op_type);
    eng_heap_printf(t, ",\"of\":[");
    for (int i = 0; i < n->n_parts; i++) {
        eng_heap_printf(t, "%s", i ? "," : "");
        quote(t, n->parts[i]->op_type);
    }
    eng_heap_printf(t, "]");
    field(t, "output", n->n_out && n->out[0] >= 0 ? e->p->m->values[n->out[0]].name : "");
    field(t, "kernel", eng_explain_kernel(e->p, s));
    if (s->note)
        field(t, "note", s->note);
    if (e->observed && s->seen && s->seen->runs) {
        if (s->seen->has_out) {
            field(t, "dtype", pst_dtype_name(s->seen->out.dtype));
            eng_heap_printf(t, ",\"shape\":[");
            for (int k = 0; k < s->seen->out.rank; k++) {
                char dim[40];
                int64_t d = eng_explain_dim(e, s, k, dim, sizeof dim);
                if (*dim)
                    eng_heap_printf(t, "%s\"%s\"", k ? "," : "", dim);
                else
                    eng_heap_printf(t, "%s%" PRId64, k ? "," : "", d);
            }
            eng_heap_printf(t, "]");
        }
        eng_heap_printf(t, ",\"runs\":%" PRIu64 ",\"flops_per_row\":%.15g,\"moved_bytes_per_row\":%.15g,\"output_bytes_per_row\":%.15g",
                        s->seen->runs, s->seen->flops / rows, s->seen->bytes / rows, s->seen->out_bytes / rows);
        if (e->measured && s->seen->best_ns)
            eng_heap_printf(t, ",\"ns_per_row\":%.15g", (double)s->seen->best_ns / rows);
    }
    eng_heap_printf(t, "}");
}

/* What was not observed or measured has no key, so that no program takes a 0 for a finding. */
void eng_explain_json(const eng_explained *e, eng_heap_text *t)
{
    const pst_plan *p = e->p;
    const pst_model_info *i = &p->m->info;
    eng_heap_printf(t, "{\"digest\":\"%s\"", i->digest);
    if (e->file)
        field(t, "file", e->file);
    field(t, "producer", i->producer);
    if (pst_model_meta(p->m, "native.remark"))
        field(t, "remark", pst_model_meta(p->m, "native.remark"));
    eng_heap_printf(t, ",\"draws\":%s", i->draws ? "true" : "false");
    eng_heap_printf(t, ",\"opset\":%" PRId64 ",\"file_bytes\":%zu,\"parameters\":%zu", i->opset, i->file_bytes, i->n_parameters);
    values_json(t, "inputs", i->inputs, i->n_inputs);
    values_json(t, "outputs", i->outputs, i->n_outputs);
    field(t, "isa", p->isa);
    if (p->opts.threads > 1)
        eng_heap_printf(t, ",\"threads\":%d", pst_plan_threads(p));
    if (pst_engine_warning())
        field(t, "warning", pst_engine_warning());
    eng_heap_printf(t, ",\"fusion\":%s,\"nodes\":%zu,\"folded\":%zu,\"dropped\":%zu,\"merged\":%zu,\"steps\":[",
                    p->opts.no_fusion ? "false" : "true", nodes_in(p, offsetof(eng_prog, n_nodes)),
                    nodes_in(p, offsetof(eng_prog, n_folded)), nodes_in(p, offsetof(eng_prog, n_dropped)),
                    nodes_in(p, offsetof(eng_prog, n_fused)));
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t k = 0; k < p->progs[g].n_steps; k++)
            step_json(e, g, k, t);
    eng_heap_printf(t, "]");
    field(t, "backend", e->elsewhere ? "onnxruntime" : "engine");
    if (e->elsewhere)
        field(t, "served_by", e->elsewhere);
    eng_heap_printf(t, ",\"weights_bytes\":%zu,\"plan_bytes\":%zu,\"observed\":%s", e->weights, e->plan_bytes,
                    e->observed ? "true" : "false");
    if (!e->observed && !e->elsewhere)
        field(t, "why_not_observed", e->why);
    else if (e->observed)
        eng_heap_printf(t,
                        ",\"batch\":%" PRId64
                        ",\"flops_per_row\":%.15g,\"moved_bytes_per_row\":%.15g,\"peak_bytes\":%zu,\"peak_bytes_one_row\":%zu,"
                        "\"reserved_bytes\":%zu",
                        e->batch, e->flops, e->moved, e->peak, e->peak_one, e->reserved);
    if (e->observed && e->other)
        eng_heap_printf(t, ",\"free_dim\":%" PRId64, e->other);
    if (e->measured)
        eng_heap_printf(t, ",\"ns_per_row\":%.15g", e->ns_row);
    eng_heap_printf(t, "}\n");
}
