/* node_choice.c - who computes a node: all that can are asked for their cost when the plan is made, and at each run the cheapest for its size
 * is tried first. */
#include "engine/node_backend.h"
#include "engine/plan.h"

#include <string.h>

typedef struct candidate {
    const eng_node_backend *by;
    void *state;
    eng_node_cost cost;
} candidate;

typedef struct node_choice {
    int n;
    candidate all[];
} node_choice;

enum { CANDIDATES_MAX = 32, PLACES_LOG_MAX = 40 };

/* Of those not tried yet; ties go to the earlier one. */
static int cheapest(const node_choice *s, double places, uint32_t tried)
{
    int best = -1;
    double least = 0;
    for (int i = 0; i < s->n; i++) {
        double ns = s->all[i].cost.item_ns + s->all[i].cost.place_ns * places;
        if (!(tried >> i & 1) && (best < 0 || ns < least)) {
            best = i;
            least = ns;
        }
    }
    return best;
}

/* Whether there is a size for which it would be taken. */
static bool ever_cheapest(const node_choice *s, int i)
{
    double places = 1;
    for (int k = 0; k <= PLACES_LOG_MAX; k++, places *= 2)
        if (cheapest(s, places, 0) == i)
            return true;
    return false;
}

int eng_node_prepare(eng_op_ctx *c)
{
    node_choice *s = eng_op_keep(c, sizeof *s + eng_node_backend_count * sizeof *s->all);
    for (size_t i = 0; i < eng_node_backend_count; i++) {
        const eng_node_backend *b = eng_node_backends[i];
        if (!strcmp(b->op, c->node->op_type) && b->supports(c))
            s->all[s->n++] = (candidate){.by = b, .cost = b->cost(c)};
    }
    PST_ASSERT(s->n > 0 && s->n <= CANDIDATES_MAX); /* the last in the list takes everything; `tried` has a bit for each */
    *c->state = s;
    for (int i = 0; i < s->n; i++) {
        candidate *k = &s->all[i];
        if (!k->by->prepare || !ever_cheapest(s, i))
            continue;
        int rc = k->by->prepare(c, &k->state);
        if (rc < 0)
            return rc;
        if (k->state && k->by->free)
            eng_plan_own(c->plan, k->state, k->by->free);
    }
    return 0;
}

int eng_node_run(eng_op_ctx *c, const eng_node_call *call)
{
    const node_choice *s = *c->state;
    double places = call->window ? (double)call->window->out_count : 1;
    uint32_t tried = 0;
    for (int k = 0; k < s->n; k++) {
        int i = cheapest(s, places, tried), rc = s->all[i].by->submit(c, s->all[i].state, call);
        if (rc <= 0)
            return rc;
        tried |= 1u << i;
    }
    return 1;
}
