/* explain.c - what a plan is made of, as text. */
#include "engine/shape_observe.h"

#include "engine/heap.h"
#include "engine/ort/ort_plan.h"

#include <stdlib.h>
#include <string.h>

char *pst_plan_explain(const pst_plan *p)
{
    if (p->ort)
        return pst_ort_explain(p);
    pst_buf b = {0};
    const pst_prog *main = &p->progs[0];
    pst_buf_printf(&b, "%zu nodes: %zu folded to constants, %zu steps left; isa %s\n", main->n_nodes, main->n_folded, main->n_steps,
                   p->isa);
    for (size_t g = 0; g < p->n_progs; g++) {
        if (g)
            pst_buf_printf(&b, "nested graph %zu:\n", g);
        for (size_t i = 0; i < p->progs[g].n_steps; i++) {
            const pst_step *s = &p->progs[g].steps[i];
            const pst_node *n = s->node;
            const char *to = n->n_out && n->out[0] >= 0 ? p->m->values[n->out[0]].name : "";
            pst_buf_printf(&b, "%4zu %-22s -> %-28s %s\n", i, n->op_type, to,
                           n->domain[0] == '+' ? n->name
                           : s->kernel         ? s->kernel
                                               : "reference kernel");
        }
    }
    return pst_buf_steal(&b);
}
