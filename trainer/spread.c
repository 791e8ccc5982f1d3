/* spread.c - a gang over several nodes: which process goes where, and who of it is where. One node is always preferred, because there the processes
 * share folders and reach each other without a network: a gang is spread only if no single node of its site could ever hold it. All of it is
 * placed at once or nothing is, so that two gangs never wait for each other's halves. Role by role, in the order of ranks, the first node takes as
 * many processes as it has room for: so every role stands on a node in one run of numbers, and neighbouring ranks are on one computer. That finds
 * no place for some mixtures of sizes that a search would; it is linear, and people can predict it. */
#include "common/base/address.h"
#include "common/base/array.h"
#include "schemas/frameworks.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

trainer_gang *trainer_gang_of(const pst_manifest *m)
{
    trainer_gang *g = pst_alloc(sizeof *g + m->n_roles * sizeof g->roles[0]);
    g->n = m->n_roles;
    int processes = 0;
    snprintf(g->node, sizeof g->node, "%s", m->node ? m->node : "");
    for (size_t i = 0; i < m->n_roles; i++) {
        const pst_role *r = &m->roles[i];
        trainer_needs each = {llround(r->cpus * PST_CPU_UNIT), r->memory_bytes, r->gpus};
        g->roles[i].count = r->count;
        g->roles[i].each = each;
        g->all.cpu += r->count * each.cpu;
        g->all.memory += r->count * each.memory;
        g->all.gpus += r->count * each.gpus;
        processes += r->count;
    }
    if (g->all.gpus)
        g->gpu_preference = m->gpu_preference;
    if (processes < 2)
        g->one_node = "it is a single process";
    else if (*g->node)
        g->one_node = "penstock.node names one";
    else if (m->runs && m->runs->by_mpirun)
        g->one_node = "its framework runs all learners under mpirun, which this version starts on one node only; with a command of its own "
                      "(framework custom, or pytorch) every process is started by its node";
    return g;
}

/* ---- who is where ------------------------------------------------------------------------------------------------------------------- */

const char **trainer_job_nodes(const trainer_job *j, size_t *ret_n)
{
    const char **names = pst_alloc((j->s.n_processes + 1) * sizeof *names);
    size_t n = 0;
    names[n++] = j->s.node;
    for (size_t i = 0; i < j->s.n_processes; i++) {
        const char *name = pst_job_process_node(&j->s, &j->s.processes[i]);
        bool known = !strcmp(name, names[n - 1]); /* they stand in runs: mostly it is the one before */
        for (size_t k = 0; k < n && !known; k++)
            known = !strcmp(name, names[k]);
        if (!known)
            names[n++] = name;
    }
    *ret_n = n;
    return names;
}

bool trainer_is_on(const trainer_job *j, const char *node)
{
    bool on = !strcmp(node, j->s.node);
    for (size_t i = 0; i < j->s.n_processes && !on; i++)
        on = !strcmp(node, pst_job_process_node(&j->s, &j->s.processes[i]));
    return on;
}

char *trainer_nodes_text(const trainer_job *j)
{
    size_t n;
    const char **names = trainer_job_nodes(j, &n);
    pst_buf b = {0};
    pst_buf_printf(&b, "node%s %s", n > 1 ? "s" : "", names[0]);
    for (size_t i = 1; i < n; i++)
        pst_buf_printf(&b, "%s%s", i + 1 == n ? " and " : ", ", names[i]);
    free(names);
    return pst_buf_steal(&b);
}

/* ---- where it may go ---------------------------------------------------------------------------------------------------------------- */

typedef struct room {
    trainer_node *node;
    trainer_needs free;
    int now;   /* where room is kept: how many processes of the first role find room now */
    int first; /* how many it holds */
    size_t gpu_rank;
    int was; /* 2: the job's checkpoints lie there; 1: it ran there before */
} room;

typedef struct rooms {
    room *at;
    size_t n, cap;
    const trainer_node *first; /* the first process has to go there, since its checkpoints are; NULL = anywhere */
} rooms;

static int64_t times(int64_t free, int64_t each)
{
    return each > 0 ? free / each : INT32_MAX;
}

static int holds(const trainer_needs *free, const trainer_needs *each)
{
    int64_t n = times(free->cpu, each->cpu), memory = times(free->memory, each->memory), gpus = times(free->gpus, each->gpus);
    n = memory < n ? memory : n;
    n = gpus < n ? gpus : n;
    return n > 0 ? (int)n : 0;
}

/* Where it was, since its folders are there; then where most of it fits, so that few nodes are needed. */
static int compare(const void *a, const void *b)
{
    const room *x = a, *y = b;
    if (x->was != y->was)
        return y->was - x->was;
    if (x->gpu_rank != y->gpu_rank)
        return x->gpu_rank < y->gpu_rank ? -1 : 1;
    if (x->now != y->now)
        return y->now - x->now;
    return x->first != y->first ? y->first - x->first : strcmp(x->node->name, y->node->name);
}

static void take(room *r, const trainer_needs *each, int n)
{
    r->free.cpu -= n * each->cpu;
    r->free.memory -= n * each->memory;
    r->free.gpus -= n * each->gpus;
}

static room *room_of(room *at, size_t n, const char *node)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(at[i].node->name, node))
            return &at[i];
    return NULL;
}

/* Every process of the gang in order, or NULL; *ret_placed: how many found room. */
static trainer_node **fill(const trainer_gang *g, rooms *r, int *ret_placed)
{
    int all = 0, at = 0;
    for (size_t i = 0; i < g->n; i++)
        all += g->roles[i].count;
    for (size_t i = 0; i < r->n; i++)
        r->at[i].first = g->n ? holds(&r->at[i].free, &g->roles[0].each) : 0;
    if (r->n)
        qsort(r->at, r->n, sizeof *r->at, compare);
    trainer_node **to = pst_alloc(((size_t)all + 1) * sizeof *to);
    for (size_t i = 0; i < g->n; i++) {
        int left = g->roles[i].count;
        const trainer_needs *each = &g->roles[i].each;
        for (size_t k = 0; k < r->n && left; k++) {
            int fits = holds(&r->at[k].free, each);
            int n = fits < left ? fits : left;
            take(&r->at[k], each, n);
            left -= n;
            while (n--)
                to[at++] = r->at[k].node;
        }
        if (left) {
            free(to);
            to = NULL;
            for (i++; i < g->n; i++) /* what of the others might have found room is not asked */
                left += g->roles[i].count;
            *ret_placed = all - left;
            return NULL;
        }
    }
    *ret_placed = all;
    return to;
}

/* A loopback address is one on its own computer only; computer NULL: those that have another are asked for. */
static bool is_in(const trainer_node *n, const char *computer)
{
    return computer ? n->computer && !strcmp(n->computer, computer) : !pst_address_is_loopback(n->address);
}

/* On those of a set; keeps in *ret_placed and *ret_nodes what the best of the sets could take. */
static trainer_node **try_set(const trainer_gang *g, const rooms *all, const char *computer, int *ret_placed, size_t *ret_nodes)
{
    rooms r = {.at = pst_alloc((all->n + 1) * sizeof *r.at)};
    int placed = 0;
    for (size_t i = 0; i < all->n; i++)
        if (is_in(all->at[i].node, computer))
            r.at[r.n++] = all->at[i];
    trainer_node **to = fill(g, &r, &placed);
    if (to && all->first && to[0] != all->first) {
        free(to);
        to = NULL;
    }
    if (placed >= *ret_placed) {
        *ret_placed = placed;
        *ret_nodes = r.n;
    }
    free(r.at);
    return to;
}

/* Nodes reach each other by addresses of the network, or on one computer by any: the first set that holds the gang. */
static trainer_node **try_sets(const trainer_gang *g, const rooms *all, int *ret_placed, size_t *ret_nodes)
{
    *ret_placed = 0;
    *ret_nodes = 0;
    trainer_node **to = try_set(g, all, NULL, ret_placed, ret_nodes);
    for (size_t i = 0; i < all->n && !to; i++) {
        const char *computer = all->at[i].node->computer;
        bool seen = !computer || !pst_address_is_loopback(all->at[i].node->address);
        for (size_t k = 0; k < i && !seen; k++)
            seen = pst_address_is_loopback(all->at[k].node->address) && all->at[k].node->computer &&
                   !strcmp(all->at[k].node->computer, computer);
        if (!seen)
            to = try_set(g, all, computer, ret_placed, ret_nodes);
    }
    return to;
}

/* Do they all reach each other? */
static bool reach_each_other(trainer_node *const *to, int n)
{
    bool network = true, here = to[0]->computer;
    for (int i = 0; i < n; i++) {
        network = network && is_in(to[i], NULL);
        here = here && is_in(to[i], to[0]->computer);
    }
    return network || here;
}

static int processes_of(const trainer_gang *g)
{
    int n = 0;
    for (size_t i = 0; i < g->n; i++)
        n += g->roles[i].count;
    return n;
}

static void add_room(rooms *all, trainer_node *n, trainer_needs free)
{
    all->at = pst_array_room(all->at, all->n, &all->cap, sizeof *all->at);
    all->at[all->n++] = (room){.node = n, .free = free};
}

/* Can all the nodes of the site together never hold it, even when empty? The sentence, or NULL. */
static char *all_nodes_never(const trainer_site *site, const trainer_gang *gang)
{
    rooms all = {0};
    int placed;
    size_t nodes, without = 0;
    for (size_t i = 0; i < site->n_nodes; i++) {
        trainer_node *n = site->nodes[i];
        if (n->known && !n->lost && n->address)
            add_room(&all, n, n->capacity);
        else if (n->known && !n->lost)
            without++;
    }
    trainer_node **to = try_sets(gang, &all, &placed, &nodes);
    char *never = NULL;
    if (!to && without)
        never =
            pst_sprintf("the %zu nodes that take part in gangs over several nodes hold %d of its %d processes (%zu more say no address: "
                        "LCMs of an older version)",
                        nodes, placed, processes_of(gang), without);
    else if (!to)
        never =
            pst_sprintf("over several nodes, the %zu that reach each other hold %d of its %d processes", nodes, placed, processes_of(gang));
    free(to);
    free(all.at);
    return never;
}

char *trainer_queue_never(const trainer_site *site, const trainer_gang *gang)
{
    char *one = trainer_one_node_never(site, gang), *both = NULL;
    if (!one)
        return NULL;
    size_t nodes = 0;
    for (size_t i = 0; i < site->n_nodes; i++)
        nodes += site->nodes[i]->known && !site->nodes[i]->lost;
    if (gang->one_node && nodes > 1)
        both = pst_sprintf("%s; it cannot be spread over several: %s", one, gang->one_node);
    char *never = gang->one_node || nodes < 2 ? NULL : all_nodes_never(site, gang);
    bool spreads = !gang->one_node && nodes > 1 && !never;
    if (never)
        both = pst_sprintf("%s; %s", one, never);
    free(never);
    if (!both && !spreads)
        return one;
    free(one);
    return both;
}

/* Is any process of the job's last generation kept there? */
static int was_there(const trainer_job *j, const trainer_node *n)
{
    if (!strcmp(n->name, j->s.checkpoint_node))
        return 2;
    return j->s.generation && trainer_is_on(j, n->name);
}

/* The node that keeps its checkpoints, while that is alive: elsewhere it would begin anew. One that is too small for a first process never had it. */
static const trainer_node *keeper(const trainer_job *j)
{
    for (size_t i = 0; *j->s.checkpoint_node && i < j->site->n_nodes; i++) {
        const trainer_node *n = j->site->nodes[i];
        if (!strcmp(n->name, j->s.checkpoint_node) && n->known && !n->lost)
            return holds(&n->capacity, &j->gang->roles[0].each) ? n : NULL;
    }
    return NULL;
}

/* Each process where it was, since each has its own checkpoints there: all of them find room, or NULL. */
static trainer_node **as_before(const trainer_job *j, const rooms *all)
{
    const trainer_gang *g = j->gang;
    int n = processes_of(g), at = 0;
    if (!j->s.generation || !pst_job_is_spread(&j->s) || j->s.n_processes != (size_t)n)
        return NULL;
    room *rooms_left = pst_alloc((all->n + 1) * sizeof *rooms_left);
    trainer_node **to = pst_alloc(((size_t)n + 1) * sizeof *to);
    bool fits = true;
    if (all->n)
        memcpy(rooms_left, all->at, all->n * sizeof *rooms_left);
    for (size_t i = 0; i < g->n && fits; i++)
        for (int k = 0; k < g->roles[i].count && fits; k++) {
            room *r = room_of(rooms_left, all->n, j->s.processes[at].node);
            fits = r && holds(&r->free, &g->roles[i].each);
            if (fits)
                take(r, &g->roles[i].each, 1);
            to[at++] = fits ? r->node : NULL;
        }
    free(rooms_left);
    if (fits && reach_each_other(to, n))
        return to;
    free(to);
    return NULL;
}

/* Why the node that keeps its checkpoints cannot have any of it now (free()), or NULL. Elsewhere it would begin anew. */
static char *keeper_shut(const tcore *c, const trainer_job *j, const trainer_node *n)
{
    char *why = trainer_node_closed(c, n), *text;
    if (!why && !n->address)
        why = pst_sprintf("the LCM of node %s says no address: it is of an older version, and takes no part of a gang", n->name);
    if (!why && trainer_node_forbids(n, j->isolation))
        why = trainer_node_forbidding(n, j->isolation);
    text = why ? pst_sprintf("its checkpoints lie on node %s: %s", n->name, why) : NULL;
    free(why);
    return text;
}

/* What its nodes have free for it; why one that takes part in gangs is shut, in *ret_closed (free()). */
static void find_rooms(const tcore *c, const trainer_job *j, rooms *all, char **ret_closed)
{
    for (size_t i = 0; i < j->site->n_nodes; i++) {
        trainer_node *n = j->site->nodes[i];
        if (trainer_node_takes_part(c, n, j)) {
            trainer_needs taken = trainer_node_taken(n, j);
            add_room(all, n,
                     (trainer_needs){n->capacity.cpu - taken.cpu, n->capacity.memory - taken.memory, n->capacity.gpus - taken.gpus});
            all->at[all->n - 1].was = was_there(j, n);
            all->at[all->n - 1].gpu_rank = trainer_node_gpu_rank(n, j);
        } else if (n->known && n->address && !*ret_closed) {
            *ret_closed = trainer_node_closed(c, n);
        }
    }
}

trainer_node **trainer_spread_place(const tcore *c, const trainer_job *j, char **ret_why)
{
    rooms all = {.first = keeper(j)};
    char *closed = NULL;
    int placed;
    size_t nodes;
    if (all.first && (*ret_why = keeper_shut(c, j, all.first)))
        return NULL;
    find_rooms(c, j, &all, &closed);
    trainer_node **to = as_before(j, &all);
    if (!to)
        to = try_sets(j->gang, &all, &placed, &nodes);
    if (!to && all.first && placed == processes_of(j->gang))
        *ret_why = pst_sprintf("its checkpoints lie on node %s, which has no room for its first process now: it would begin anew elsewhere",
                               all.first->name);
    else if (!to)
        *ret_why = pst_sprintf("it waits for room on several nodes of site %s, all at once: %d of its %d processes find some on %zu%s%s",
                               j->site->name, placed, processes_of(j->gang), nodes, closed ? "; " : "", closed ? closed : "");
    free(closed);
    free(all.at);
    return to;
}

/* Room is kept by whole capacities, not by what is free: the nodes where it could run at all. Of equal ones those that are nearest to being free, and where
 * it was before. */
trainer_part *trainer_spread_keep(const tcore *c, const trainer_job *j, size_t *ret_n)
{
    const trainer_gang *g = j->gang;
    rooms all = {.first = keeper(j)};
    int placed, at = 0;
    size_t nodes, n = 0;
    for (size_t i = 0; i < j->site->n_nodes; i++) {
        trainer_node *x = j->site->nodes[i];
        if (!trainer_node_takes_part(c, x, j))
            continue;
        trainer_needs left = {x->capacity.cpu - x->used.cpu, x->capacity.memory - x->used.memory, x->capacity.gpus - x->used.gpus};
        add_room(&all, x, x->capacity);
        all.at[all.n - 1].was = was_there(j, x);
        all.at[all.n - 1].gpu_rank = trainer_node_gpu_rank(x, j);
        all.at[all.n - 1].now = g->n ? holds(&left, &g->roles[0].each) : 0;
    }
    trainer_node **to = try_sets(g, &all, &placed, &nodes);
    trainer_part *parts = to ? pst_alloc(((size_t)placed + 1) * sizeof *parts) : NULL;
    for (size_t i = 0; to && i < g->n; i++)
        for (int k = 0; k < g->roles[i].count; k++, at++) {
            size_t p = 0;
            while (p < n && parts[p].node != to[at])
                p++;
            n += p == n;
            parts[p].node = to[at];
            parts[p].needs.cpu += g->roles[i].each.cpu;
            parts[p].needs.memory += g->roles[i].each.memory;
            parts[p].needs.gpus += g->roles[i].each.gpus;
        }
    free(to);
    free(all.at);
    *ret_n = n;
    return parts;
}
