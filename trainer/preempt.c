/* preempt.c - the place of others for a job of a queue that preempts. Who may be moved: jobs of queues that have more than their quota (it was lowered),
 * jobs of queues that do not preempt and whose priority is no higher, and jobs of queues that do with a lower one. Of each node the cheapest set
 * is found: over quota first, then the lowest priority, then what began last; the node with the fewest is chosen. They are halted as a user's
 * halt would, with time for a checkpoint, and wait again in their queues, which costs them no retry. What is being stopped already counts as room, so
 * that nobody is moved twice for the same job. The job claims that node from then on: victims end one by one, and what each leaves would else be
 * given to the next that waits, the victim itself among them. A claim stands as long as each pass finds its job waiting for it. */
#include "trainer/core_state.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

typedef struct claim { /* what a job has of one node; of a gang over several nodes there is one for each */
    trainer_job *j;
    const trainer_part *part;
    bool going, over; /* being stopped already; its queue is over its quota */
} claim;

static bool may_take(const trainer_job *j, const trainer_job *of)
{
    if (trainer_queue_is_over(of->queue))
        return true;
    return of->queue->preempts ? of->s.priority < j->s.priority : of->s.priority <= j->s.priority;
}

/* By node, there in the order in which they would go. */
static int compare(const void *a, const void *b)
{
    const claim *x = a, *y = b;
    if (x->part->node != y->part->node)
        return strcmp(x->part->node->name, y->part->node->name);
    if (x->going != y->going)
        return x->going ? -1 : 1;
    if (x->over != y->over)
        return x->over ? -1 : 1;
    if (x->j->s.priority != y->j->s.priority)
        return x->j->s.priority < y->j->s.priority ? -1 : 1;
    if (x->j->charged_us != y->j->charged_us)
        return x->j->charged_us > y->j->charged_us ? -1 : 1;
    return strcmp(x->j->s.training_id, y->j->s.training_id);
}

/* Does each node that has a part of it answer? One that is silent neither hears of a halt nor tells of an end. */
static bool is_heard(const tcore *c, const trainer_job *x)
{
    for (size_t i = 0; i < x->n_parts; i++)
        if (!trainer_node_has_lease(c, x->parts[i].node))
            return false;
    return true;
}

/* An LCM that does not know pre-emption finds no reason in the job's state to follow the HALT, and refuses it: the claim would stand for ever. */
static bool would_yield(const trainer_job *x)
{
    for (size_t i = 0; i < x->n_parts; i++)
        if (!x->parts[i].node->yields)
            return false;
    return true;
}

/* *ret_older: a node whose LCM is too old for it, though its jobs might be moved; NULL = none. */
static claim *find_claims(const tcore *c, const trainer_job *j, size_t *ret_n, const trainer_node **ret_older)
{
    claim *all = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < c->n_live; i++) {
        trainer_job *x = c->live[i];
        if (!x->charged || x->site != j->site)
            continue;
        bool going = x->s.stop_action != PST_JOB_STOP_ACTION_NONE || trainer_job_is_failing(x);
        if (!is_heard(c, x) || (!going && !may_take(j, x)))
            continue;
        if (!going && !would_yield(x)) {
            *ret_older = x->node;
            continue;
        }
        for (size_t k = 0; k < x->n_parts; k++) {
            all = pst_array_room(all, n, &cap, sizeof *all);
            all[n++] = (claim){x, &x->parts[k], going, trainer_queue_is_over(x->queue)};
        }
    }
    if (n)
        qsort(all, n, sizeof *all, compare);
    *ret_n = n;
    return all;
}

static void add(trainer_needs *room, const trainer_needs *n, int sign)
{
    room->cpu += sign * n->cpu;
    room->memory += sign * n->memory;
    room->gpus += sign * n->gpus;
}

static bool holds(const trainer_needs *room, const trainer_needs *n)
{
    return n->cpu <= room->cpu && n->memory <= room->memory && n->gpus <= room->gpus;
}

/* Of one node's claims, how many have to go; those are moved to the front behind what is going already. -1: all of them are not enough. *ret_going:
 * how many are going. */
static int cheapest(const trainer_job *j, claim *at, size_t n, size_t *ret_going)
{
    const trainer_node *node = at[0].part->node;
    trainer_needs room = {node->capacity.cpu - node->used.cpu, node->capacity.memory - node->used.memory,
                          node->capacity.gpus - node->used.gpus};
    size_t i = 0, taken = 0;
    for (; i < n && at[i].going; i++)
        add(&room, &at[i].part->needs, 1);
    *ret_going = i;
    for (; i < n && !holds(&room, &j->needs); i++)
        add(&room, &at[i].part->needs, 1);
    if (!holds(&room, &j->needs))
        return -1;
    for (size_t k = *ret_going; k < i; k++) { /* what would have been enough without it stays */
        add(&room, &at[k].part->needs, -1);
        if (holds(&room, &j->needs))
            continue;
        add(&room, &at[k].part->needs, 1);
        claim keep = at[k];
        at[k] = at[*ret_going + taken];
        at[*ret_going + taken++] = keep;
    }
    return (int)taken;
}

static void halt(tcore *c, trainer_job *of, const trainer_job *j)
{
    /* Shown to the victim's user, who may know nothing of other people's jobs. */
    bool own = !strcmp(of->s.user ? of->s.user : "", j->s.user ? j->s.user : "");
    char *reason = pst_sprintf("its place goes to %s of queue %s, which preempts; it is halted, and queued again",
                               own ? j->s.training_id : "another user's job", j->queue->name);
    of->s.stop_action = PST_JOB_STOP_ACTION_PREEMPT;
    tcore_set_text(&of->s.stop_by, "");
    tcore_set_text(&of->s.stop_request_id, NULL);
    tcore_set_text(&of->s.reason, reason);
    tcore_emit(c, of, PST_JOB_EVENT_TYPE_HALTING, of->s.state, &(trainer_say){.reason = reason});
    tcore_command(c, of, PST_JOB_COMMAND_TYPE_HALT, NULL, reason);
    free(reason);
}

void tcore_claims_begin(trainer_site *s)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        s->nodes[i]->claim_stands = false;
}

void tcore_claims_end(trainer_site *s)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (!s->nodes[i]->claim_stands)
            tcore_claim_drop(s->nodes[i]);
}

/* May it look for victims there? Not where another claims, and, once it claims a node that suits it, nowhere else. */
static bool may_claim(const tcore *c, const trainer_node *n, const trainer_job *j)
{
    for (size_t i = 0; i < j->site->n_nodes; i++) {
        const trainer_node *x = j->site->nodes[i];
        if (x != n && x->claim_id && !strcmp(x->claim_id, j->s.training_id) && trainer_node_suits(c, x, j))
            return false;
    }
    return (!n->claim_id || !strcmp(n->claim_id, j->s.training_id)) && trainer_node_suits(c, n, j);
}

static void claim_node(trainer_node *n, const trainer_job *j)
{
    tcore_claim_ends(j->site, j);
    n->claim_id = pst_strdup(j->s.training_id);
    n->claimed = j->needs;
    n->claim_stands = true;
}

/* One node for one job: victims are claims on a node, and of the nodes that would do the one is taken where the fewest more have to halt; those that are on
 * their way out already cost nobody anything. */
char *tcore_preempt(tcore *c, const trainer_job *j)
{
    size_t n = 0, best = 0, best_going = 0;
    int fewest = -1;
    if (!j->queue->preempts || c->unsettled)
        return NULL;
    const trainer_node *older = NULL;
    claim *all = find_claims(c, j, &n, &older);
    for (size_t from = 0, to; from < n; from = to) {
        size_t going = 0;
        for (to = from + 1; to < n && all[to].part->node == all[from].part->node; to++)
            ;
        int number = may_claim(c, all[from].part->node, j) ? cheapest(j, all + from, to - from, &going) : -1;
        if (number >= 0 && (fewest < 0 || number < fewest)) {
            fewest = number;
            best = from;
            best_going = going;
        }
    }
    char *text = NULL;
    if (fewest < 0 && older)
        text = pst_sprintf("the LCM of node %s is of a version that does not know pre-emption: its jobs are not moved", older->name);
    if (fewest >= 0) {
        const char *node = all[best].part->node->name;
        claim_node(all[best].part->node, j);
        for (int i = 0; i < fewest; i++)
            halt(c, all[best + best_going + (size_t)i].j, j);
        size_t number = best_going + (size_t)fewest;
        text = pst_sprintf("%zu job%s on node %s %s being halted, which gives it room", number, number == 1 ? "" : "s", node,
                           number == 1 ? "is" : "are");
    }
    free(all);
    return text;
}
