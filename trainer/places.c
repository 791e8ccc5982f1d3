/* places.c - sites and nodes, what of them is taken, and who waits where: tables and sums that everything above rests on. A node belongs to one
 * site. What a generation needs is charged to one node from its deployment until its last process was observed to have ended; sums are
 * whole numbers, so that they come back to zero exactly. Who waits at a site stands in a lane, one for each
 * queue, which is kept in order at all times: by priority, then submission, and what is held, or waits for other jobs, at its end. */
#include "common/base/array.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- sites and nodes ------------------------------------------------------------------------------------------------------------- */

trainer_site *tcore_site(tcore *c, const char *name)
{
    trainer_site *s = pst_map_get(&c->sites, name);
    if (!s) {
        s = pst_alloc(sizeof *s);
        s->name = pst_strdup(name);
        pst_map_put(&c->sites, name, s);
    }
    return s;
}

void trainer_site_free(void *site)
{
    trainer_site *s = site;
    if (!s)
        return;
    for (size_t i = 0; i < s->n_lanes; i++) {
        free(s->lanes[i]->at);
        free(s->lanes[i]);
    }
    free(s->lanes);
    free(s->kept_id);
    free(s->kept);
    free(s->name);
    free(s->nodes);
    free(s);
}

trainer_node *tcore_node(tcore *c, const char *site, const char *name)
{
    char *key = pst_sprintf("%s/%s", site, name);
    trainer_node *n = pst_map_get(&c->nodes, key);
    if (!n) {
        n = pst_alloc(sizeof *n);
        n->name = pst_strdup(name);
        n->site = tcore_site(c, site);
        pst_map_put(&c->nodes, key, n);
        trainer_site *s = n->site;
        s->nodes = pst_array_one_more(s->nodes, s->n_nodes, sizeof(trainer_node *));
        size_t at = s->n_nodes++;
        for (; at && strcmp(s->nodes[at - 1]->name, name) > 0; at--)
            s->nodes[at] = s->nodes[at - 1];
        s->nodes[at] = n;
    }
    free(key);
    return n;
}

void trainer_node_free(void *node)
{
    trainer_node *n = node;
    if (!n)
        return;
    free(n->name);
    free(n->address);
    free(n->claim_id);
    free(n->computer);
    for (size_t i = 0; i < n->n_gpu_types; i++)
        free(n->gpu_types[i]);
    free(n->gpu_types);
    free(n);
}

/* ---- charges --------------------------------------------------------------------------------------------------------------------- */

static void charge_node(trainer_job *j, trainer_node *n, const trainer_needs *needs)
{
    trainer_part *p = NULL;
    for (size_t i = 0; i < j->n_parts && !p; i++)
        p = j->parts[i].node == n ? &j->parts[i] : NULL;
    if (!p) {
        j->parts = pst_array_one_more(j->parts, j->n_parts, sizeof *j->parts);
        p = &j->parts[j->n_parts++];
        *p = (trainer_part){.node = n};
    }
    trainer_needs *sums[] = {&p->needs, &n->used};
    for (int i = 0; i < 2; i++) {
        sums[i]->cpu += needs->cpu;
        sums[i]->memory += needs->memory;
        sums[i]->gpus += needs->gpus;
    }
}

/* Of a gang over several nodes each process is charged to its own. A state whose processes are not the manifest's is charged as a whole. */
void tcore_charge(tcore *c, trainer_job *j)
{
    PST_ASSERT(!j->charged && !j->n_parts);
    const trainer_gang *g = j->gang;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < g->n; i++)
        count += (size_t)g->roles[i].count;
    j->node = tcore_node(c, j->s.site, j->s.node);
    j->charged = true;
    tcore_queue_charge(c, j);
    if (!pst_job_is_spread(&j->s) || count != j->s.n_processes) {
        charge_node(j, j->node, &j->needs);
        return;
    }
    for (size_t i = 0; i < g->n; i++)
        for (int k = 0; k < g->roles[i].count; k++)
            charge_node(j, tcore_node(c, j->s.site, pst_job_process_node(&j->s, &j->s.processes[at++])), &g->roles[i].each);
}

void tcore_release(tcore *c, trainer_job *j)
{
    if (!j->charged)
        return;
    for (size_t i = 0; i < j->n_parts; i++) {
        trainer_needs *used = &j->parts[i].node->used;
        const trainer_needs *needs = &j->parts[i].needs;
        used->cpu -= needs->cpu;
        used->memory -= needs->memory;
        used->gpus -= needs->gpus;
        PST_ASSERT(used->cpu >= 0 && used->memory >= 0 && used->gpus >= 0);
    }
    free(j->parts);
    j->parts = NULL;
    j->n_parts = 0;
    j->charged = false;
    tcore_queue_release(c, j);
}

/* ---- those of one queue that wait at one site --------------------------------------------------------------------------------------- */

/* Those that are barred stand behind all others: who looks for the next need not pass them over. */
static int compare(const trainer_job *a, const trainer_job *b)
{
    if (a->barred != b->barred)
        return a->barred ? 1 : -1;
    if (a->s.priority != b->s.priority)
        return a->s.priority > b->s.priority ? -1 : 1;
    if (a->s.submitted_at != b->s.submitted_at)
        return a->s.submitted_at < b->s.submitted_at ? -1 : 1;
    return strcmp(a->s.training_id, b->s.training_id);
}

static trainer_lane *lane_of(trainer_site *s, trainer_queue *q)
{
    for (size_t i = 0; i < s->n_lanes; i++)
        if (s->lanes[i]->queue == q)
            return s->lanes[i];
    trainer_lane *l = pst_alloc(sizeof *l);
    l->queue = q;
    s->lanes = pst_array_one_more(s->lanes, s->n_lanes, sizeof(trainer_lane *));
    s->lanes[s->n_lanes++] = l;
    return l;
}

static size_t place_of(const trainer_lane *l, const trainer_job *j)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (compare(l->at[mid], j) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void trainer_queue_add(tcore *c, trainer_job *j)
{
    trainer_lane *l = lane_of(j->site, j->queue);
    PST_ASSERT(!j->queued && !j->charged && j->s.state == PST_JOB_PUBLIC_STATE_QUEUED);
    j->barred = j->s.held_by || j->s.n_after;
    c->after_due |= j->s.n_after > 0;
    l->at = pst_array_room(l->at, l->n, &l->cap, sizeof(trainer_job *));
    size_t at = place_of(l, j);
    memmove(l->at + at + 1, l->at + at, (l->n - at) * sizeof(trainer_job *));
    l->at[at] = j;
    l->n++;
    l->n_unsaid++;
    j->lane = l;
    j->site->n_queue++;
    j->queue->waiting++;
    j->queued = j->unsaid = true;
}

void tcore_claim_drop(trainer_node *n)
{
    free(n->claim_id);
    n->claim_id = NULL;
}

void tcore_claim_ends(trainer_site *s, const trainer_job *j)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i]->claim_id && !strcmp(s->nodes[i]->claim_id, j->s.training_id))
            tcore_claim_drop(s->nodes[i]);
}

void trainer_queue_remove(tcore *c, trainer_job *j)
{
    if (!j->queued)
        return;
    trainer_lane *l = j->lane;
    size_t at = place_of(l, j);
    PST_ASSERT(at < l->n && l->at[at] == j);
    memmove(l->at + at, l->at + at + 1, (l->n - at - 1) * sizeof(trainer_job *));
    l->n--;
    l->n_unsaid -= j->unsaid;
    if (l->head == j)
        l->head = NULL;
    j->lane = NULL;
    j->site->n_queue--;
    j->queue->waiting--;
    j->queued = j->unsaid = false;
    tcore_claim_ends(j->site, j);
}

void trainer_queue_said(trainer_job *j)
{
    PST_ASSERT(j->queued);
    j->lane->n_unsaid -= j->unsaid;
    j->unsaid = false;
}

size_t trainer_lane_barred(const trainer_lane *l)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (l->at[mid]->barred)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}
