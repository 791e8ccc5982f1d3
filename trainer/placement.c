/* placement.c - where a job may go, and if nowhere, why: a pure question about nodes as they are now, asked by the queue and at submission. The
 * answer is a sentence for people, made where the reason is known. */
#include "common/base/clock.h"
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

bool trainer_node_has_lease(const tcore *c, const trainer_node *n)
{
    return n->known && !n->lost && c->now_us - n->seen_us <= c->policy.silent_us;
}

static char *gib(int64_t bytes)
{
    return pst_sprintf("%.4g GiB", (double)bytes / (double)((int64_t)1 << 30));
}

static bool fits(const trainer_needs *needs, const trainer_needs *capacity, const trainer_needs *used)
{
    return (!needs->cpu || needs->cpu <= capacity->cpu - used->cpu) &&
           (!needs->memory || needs->memory <= capacity->memory - used->memory) &&
           (!needs->gpus || needs->gpus <= capacity->gpus - used->gpus);
}

/* "2 CPUs: 1 of 4 free" for each thing of which there is not enough; NULL when it fits. */
static char *shortage(const trainer_needs *needs, const trainer_needs *capacity, const trainer_needs *used)
{
    pst_buf b = {0};
    trainer_needs f = {capacity->cpu - used->cpu, capacity->memory - used->memory, capacity->gpus - used->gpus};
    f = (trainer_needs){f.cpu > 0 ? f.cpu : 0, f.memory > 0 ? f.memory : 0, f.gpus > 0 ? f.gpus : 0};
    if (needs->cpu > f.cpu)
        pst_buf_printf(&b, "%.6g CPUs: %.6g of %.6g free", (double)needs->cpu / PST_CPU_UNIT, (double)f.cpu / PST_CPU_UNIT,
                       (double)capacity->cpu / PST_CPU_UNIT);
    if (needs->memory > f.memory) {
        char *n = gib(needs->memory), *o = gib(f.memory), *all = gib(capacity->memory);
        pst_buf_printf(&b, "%s%s of memory: %s of %s free", b.len ? ", " : "", n, o, all);
        free(n);
        free(o);
        free(all);
    }
    if (needs->gpus > f.gpus)
        pst_buf_printf(&b, "%s%lld GPUs: %lld of %lld free", b.len ? ", " : "", (long long)needs->gpus, (long long)f.gpus,
                       (long long)capacity->gpus);
    return b.len ? pst_buf_steal(&b) : NULL;
}

pst_isolation trainer_isolation_of(const pst_manifest *m)
{
    bool enough = m->native && m->isolation != PST_ISOLATION_NONE;
    return enough ? PST_ISOLATION_DEFAULT : m->isolation;
}

bool trainer_node_forbids(const trainer_node *n, pst_isolation isolation)
{
    return isolation != PST_ISOLATION_DEFAULT && isolation < n->floor;
}

char *trainer_site_forbids(const trainer_site *site, pst_isolation isolation)
{
    const trainer_node *mildest = NULL;
    for (size_t i = 0; i < site->n_nodes; i++) {
        const trainer_node *n = site->nodes[i];
        if (n->known && !n->lost && !trainer_node_forbids(n, isolation))
            return NULL;
        if (n->known && !n->lost && (!mildest || n->floor < mildest->floor))
            mildest = n;
    }
    return mildest
               ? pst_sprintf("%s is weaker than the operators of site %s allow, which is %s; leave penstock.isolation out or ask for that",
                             pst_isolation_name(isolation), site->name, pst_isolation_name(mildest->floor))
               : NULL;
}

char *trainer_one_node_never(const trainer_site *site, const trainer_gang *gang)
{
    const trainer_needs *needs = &gang->all;
    static const trainer_needs nothing = {0};
    const trainer_node *widest = NULL;
    size_t n = 0;
    for (size_t i = 0; i < site->n_nodes; i++) {
        const trainer_node *x = site->nodes[i];
        if (!x->known || x->lost || (*gang->node && strcmp(x->name, gang->node) != 0))
            continue;
        if (fits(needs, &x->capacity, &nothing))
            return NULL;
        n++;
        widest = !widest || x->capacity.cpu > widest->capacity.cpu ? x : widest;
    }
    if (!widest)
        return NULL;
    char *text = shortage(needs, &widest->capacity, &nothing);
    char *never;
    if (*gang->node)
        never = pst_sprintf("node %s of site %s can never run it, even when empty: it needs %s", gang->node, site->name, text);
    else if (n == 1)
        never = pst_sprintf("site %s can never run it, even when empty: it needs %s", site->name, text);
    else
        never = pst_sprintf("none of the %zu nodes of site %s can ever run it, even when empty: it needs %s on %s", n, site->name, text,
                            widest->name);
    free(text);
    return never;
}

char *trainer_node_forbidding(const trainer_node *n, pst_isolation isolation)
{
    return pst_sprintf("penstock.isolation: %s is weaker than the operator of node %s allows (%s)", pst_isolation_name(isolation), n->name,
                       pst_isolation_name(n->floor));
}

/* An LCM of before nodes had ids follows every DEPLOY of its site, whomever it is for: beside it nobody else may be given anything. */
static const trainer_node *takes_all(const tcore *c, const trainer_node *beside)
{
    for (size_t i = 0; beside->site->had_old && i < beside->site->n_nodes; i++) {
        const trainer_node *n = beside->site->nodes[i];
        if (n != beside && !n->proves && !n->stopped && trainer_node_has_lease(c, n))
            return n;
    }
    return NULL;
}

char *trainer_node_closed(const tcore *c, const trainer_node *n)
{
    char when[32];
    if (n->lost)
        return pst_sprintf("node %s of site %s was declared lost and has not reported since", n->name, n->site->name);
    if (n->stopped)
        return pst_sprintf("the LCM of site %s (node %s) has stopped", n->site->name, n->name);
    if (!trainer_node_has_lease(c, n))
        return pst_sprintf("the LCM of site %s (node %s) is silent: it has not reported since %s", n->site->name, n->name,
                           pst_time_text(n->seen_us, when));
    if (!n->accepting)
        return pst_sprintf("the LCM of site %s (node %s) is stopping or draining and takes no new jobs", n->site->name, n->name);
    const trainer_node *old = takes_all(c, n);
    if (old)
        return pst_sprintf("the LCM %s of site %s is of an older version that starts every job of its site, also those for node %s, which "
                           "gets none until that one is stopped or upgraded",
                           old->name, n->site->name, n->name);
    return NULL;
}

/* The same without the words: it is asked of each node for each job that waits. */
bool trainer_node_is_open(const tcore *c, const trainer_node *n)
{
    return !n->lost && !n->stopped && trainer_node_has_lease(c, n) && n->accepting && !takes_all(c, n);
}

/* What the closed nodes of a site say: of the one heard last. */
static char *site_closed(const tcore *c, const trainer_site *s)
{
    const trainer_node *last = NULL;
    for (size_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i]->known && (!last || s->nodes[i]->seen_us > last->seen_us))
            last = s->nodes[i];
    return last ? trainer_node_closed(c, last) : pst_sprintf("no LCM of site %s has reported yet", s->name);
}

/* To the node that it asks for; a job with checkpoints goes where they lie, unless that node is lost. "" = anywhere. */
static const char *bound_to(const trainer_job *j)
{
    if (*j->gang->node)
        return j->gang->node;
    for (size_t i = 0; *j->s.checkpoint_node && i < j->site->n_nodes; i++) {
        const trainer_node *n = j->site->nodes[i];
        if (!strcmp(n->name, j->s.checkpoint_node) && n->known && !n->lost)
            return n->name;
    }
    return "";
}

bool trainer_node_suits(const tcore *c, const trainer_node *n, const trainer_job *j)
{
    const char *bound = bound_to(j);
    if (!n || !n->known || (*bound && strcmp(n->name, bound)) || trainer_node_forbids(n, j->isolation))
        return false;
    return trainer_node_is_open(c, n) && j->needs.cpu <= n->capacity.cpu && j->needs.memory <= n->capacity.memory &&
           j->needs.gpus <= n->capacity.gpus;
}

bool trainer_node_takes_part(const tcore *c, const trainer_node *n, const trainer_job *j)
{
    return n->known && n->address && !trainer_node_forbids(n, j->isolation) && trainer_node_is_open(c, n);
}

static double lacking(int64_t needs, int64_t capacity, int64_t used)
{
    int64_t lacks = needs - (capacity - used);
    return lacks > 0 ? (double)lacks / (double)(capacity > 0 ? capacity : 1) : 0;
}

double trainer_node_shortfall(const trainer_node *n, const trainer_needs *needs)
{
    return lacking(needs->cpu, n->capacity.cpu, n->used.cpu) + lacking(needs->memory, n->capacity.memory, n->used.memory) +
           lacking(needs->gpus, n->capacity.gpus, n->used.gpus);
}

/* Comes it before that one whatever room is kept? In its own queue, or as of one that preempts. */
static bool goes_before(const trainer_job *j, const trainer_job *kept)
{
    if (j->queue != kept->queue)
        return j->queue->preempts && !kept->queue->preempts;
    return j->s.priority != kept->s.priority ? j->s.priority > kept->s.priority : j->s.submitted_at < kept->s.submitted_at;
}

trainer_needs trainer_node_taken(const trainer_node *n, const trainer_job *j)
{
    trainer_needs t = n->used;
    bool claims = n->claim_id && !strcmp(n->claim_id, j->s.training_id);
    if (claims) /* others' places are being freed for it: no reservation goes before that */
        return t;
    if (n->claim_id) {
        t.cpu += n->claimed.cpu;
        t.memory += n->claimed.memory;
        t.gpus += n->claimed.gpus;
    }
    if (!n->kept_for || n->kept_for == j || goes_before(j, n->kept_for))
        return t;
    t.cpu = n->kept.cpu > t.cpu ? n->kept.cpu : t.cpu;
    t.memory = n->kept.memory > t.memory ? n->kept.memory : t.memory;
    t.gpus = n->kept.gpus > t.gpus ? n->kept.gpus : t.gpus;
    return t;
}

static int64_t free_cpu(const trainer_node *n)
{
    return n->capacity.cpu - n->used.cpu;
}

size_t trainer_node_gpu_rank(const trainer_node *n, const trainer_job *j)
{
    return j->gang->gpu_preference.n ? pst_gpu_rank(&j->gang->gpu_preference, n->gpu_types, n->n_gpu_types) : 0;
}

static bool is_where_it_was(const trainer_job *j, const trainer_node *n)
{
    return *j->s.node && !strcmp(n->name, j->s.node); /* most have been nowhere yet, and thousands of nodes are asked */
}

/* Where it ran before, since its folders are there; else where the devices are that it likes best; else where most is free. */
static trainer_node *better(const trainer_job *j, trainer_node *best, trainer_node *n)
{
    if (!best || is_where_it_was(j, n))
        return n;
    if (is_where_it_was(j, best))
        return best;
    size_t mine = trainer_node_gpu_rank(n, j), its = trainer_node_gpu_rank(best, j);
    if (mine != its)
        return mine < its ? n : best;
    return free_cpu(n) > free_cpu(best) ? n : best;
}

/* Where nothing fits, the reason is that of the node that was nearest to it: room that is lacking on an open one before what keeps others
 * closed. */
trainer_node *trainer_site_place(const tcore *c, const trainer_job *j, char **ret_why, bool *ret_bound)
{
    const char *bound = bound_to(j), *binds = *j->gang->node ? "penstock.node asks for" : "its checkpoints lie on";
    trainer_node *best = NULL;
    size_t open = 0;
    char *closed = NULL, *lacks = NULL, *why;
    for (size_t i = 0; i < j->site->n_nodes; i++) {
        trainer_node *n = j->site->nodes[i];
        if (!n->known || (*bound && strcmp(n->name, bound)))
            continue;
        if (!trainer_node_is_open(c, n)) {
            why = *bound && !closed ? trainer_node_closed(c, n) : NULL;
            if (why)
                closed = pst_sprintf("%s node %s: %s", binds, bound, why);
            free(why);
            continue;
        }
        if (trainer_node_forbids(n, j->isolation)) {
            why = closed ? NULL : trainer_node_forbidding(n, j->isolation);
            if (why)
                closed = *bound ? pst_sprintf("%s node %s: %s", binds, bound, why) : pst_strdup(why);
            free(why);
            continue;
        }
        open++;
        trainer_needs used = trainer_node_taken(n, j);
        if (fits(&j->needs, &n->capacity, &used)) {
            best = better(j, best, n);
        } else if (!lacks) {
            why = shortage(&j->needs, &n->capacity, &used);
            lacks = pst_sprintf("%s: %s", n->name, why);
            free(why);
        }
    }
    *ret_bound = *bound;
    if (!best && lacks)
        *ret_why = open == 1 ? pst_sprintf("it waits for %s", strstr(lacks, ": ") + 2)
                             : pst_sprintf("it waits for room on one of the %zu nodes of site %s; on %s", open, j->site->name, lacks);
    else if (!best && !closed && *j->gang->node)
        *ret_why =
            pst_sprintf("penstock.node asks for node %s, and no LCM of site %s calls itself so; `penstock nodes` lists those that do",
                        j->gang->node, j->site->name);
    else if (!best)
        *ret_why = closed ? pst_strdup(closed) : site_closed(c, j->site);
    free(closed);
    free(lacks);
    return best;
}
