/* queue.c - who runs next, and why the others wait. A pass over a site takes the queue whose turn it is (queues.c), and its first job by priority, then
 * time of submission. It runs when its queue's rules allow it and the whole gang fits. Where the first one does not fit, room is kept for it, and
 * others may run that leave it that room. A pass comes at the end of each round; what it rests on are the states of jobs and the last heartbeats. */
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

enum { TYPICAL_US = 60000000 /* where it is not known how long generations last */ };
enum { RETRY_DELAY_US = 500000, RETRY_DELAY_MAX_US = 60000000, NEVER_S = 900, CLOCK_DIFFERS_US = 10000000 };
enum { LOOKS_MAX = 100 /* of one lane behind one that does not fit */, PASSED_MAX = 2000, FAILED_KEPT = 8 };

/* ---- running it -------------------------------------------------------------------------------------------------------------- */

static void say_queued(tcore *c, trainer_job *j, const char *reason)
{
    if (!j->unsaid && j->s.reason && !strcmp(j->s.reason, reason))
        return;
    trainer_queue_said(j);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_QUEUED, j->s.state, &(trainer_say){.reason = reason});
}

static void make_processes(trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        pst_event_clear(&pst_job_process_type, &j->s.processes[i]);
    free(j->s.processes);
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(j->s.manifest, strlen(j->s.manifest), &m, &errors, &warnings);
    j->s.n_processes = (size_t)pst_manifest_processes(&m);
    j->s.processes = pst_alloc((j->s.n_processes + 1) * sizeof *j->s.processes);
    for (size_t i = 0; i < j->s.n_processes; i++) {
        char name[32];
        pst_manifest_process(&m, (int)i, name);
        j->s.processes[i].name = pst_strdup(name);
        j->s.processes[i].host = pst_strdup("");
        j->s.processes[i].address = pst_strdup("");
        j->s.processes[i].node = pst_strdup("");
        j->s.processes[i].state = PST_JOB_PROCESS_STATE_WAITING;
    }
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
}

/* nodes: of each process, in their order. */
static void spread_processes(trainer_job *j, trainer_node *const *nodes)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        tcore_set_text(&j->s.processes[i].node, nodes[i]->name);
}

/* To one node, or (nodes) to several. */
static void deploy(tcore *c, trainer_job *j, const trainer_node *node, trainer_node *const *nodes)
{
    PST_ASSERT(j->queued && !j->charged && !j->barred); /* it waits, and nothing of an earlier generation lives on a node */
    if (j->unsaid) {
        char *reason = pst_sprintf("it is next, and site %s has room", j->site->name);
        say_queued(c, j, reason);
        free(reason);
    }
    if (j->s.array) {
        trainer_array_open(c, j);
        return;
    }
    trainer_queue_remove(c, j);
    tcore_set_text(&j->s.node, nodes ? nodes[0]->name : node->name);
    make_processes(j);
    if (nodes)
        spread_processes(j, nodes);
    tcore_charge(c, j);
    free(j->committed_us);
    j->committed_us = NULL;
    j->result_us = j->ready_us = j->done_us = j->alone_us = j->meet_us = j->list_us = 0;
    j->wound_up = false;
    j->s.generation++;
    j->s.has_started_at = false;
    j->s.started_at = 0;
    tcore_set_text(&j->s.reason, NULL);
    tcore_set_text(&j->s.reason_code, NULL);
    tcore_set_text(&j->s.failed_process, "");
    c->counts.deployed++;
    char *where = trainer_nodes_text(j);
    char *reason = pst_sprintf("generation %d goes to %s of site %s", j->s.generation, where, j->site->name);
    free(where);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_DEPLOYING, PST_JOB_PUBLIC_STATE_PENDING, &(trainer_say){.reason = reason});
    tcore_command(c, j, PST_JOB_COMMAND_TYPE_DEPLOY, NULL, reason);
    free(reason);
}

/* A retry waits 0.5 s, 1 s, 2 s, …, a minute at most: a fault that repeats at once must not spin. */
static int64_t ready_at(const tcore *c, const trainer_job *j)
{
    int used = j->s.attempts + j->s.platform_attempts;
    if (!used || j->s.since > c->now_us + CLOCK_DIFFERS_US) /* another Trainer's clock said since when: it was waited long enough */
        return 0;
    int64_t delay = used > 10 ? RETRY_DELAY_MAX_US : (int64_t)RETRY_DELAY_US << (used - 1);
    return j->s.since + (delay < RETRY_DELAY_MAX_US ? delay : RETRY_DELAY_MAX_US);
}

static void fail_never(tcore *c, trainer_job *j, const char *reason)
{
    trainer_queue_remove(c, j);
    c->counts.failed++;
    tcore_set_text(&j->s.reason, reason);
    tcore_set_text(&j->s.reason_code, "INSUFFICIENT_RESOURCES");
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_FAILED, PST_JOB_PUBLIC_STATE_FAILED,
               &(trainer_say){.reason_code = "INSUFFICIENT_RESOURCES", .reason = reason});
}

/* The reason is shown to the job's user, who may know nothing of other people's jobs. */
static char *behind(const trainer_site *s, const trainer_lane *l, size_t place)
{
    if (!place) /* nothing was said of it: it came to be the first while this pass went on */
        return pst_sprintf("it is next in queue %s", l->queue->name);
    const trainer_job *first = l->at[0];
    bool own = !strcmp(first->s.user ? first->s.user : "", l->at[place]->s.user ? l->at[place]->s.user : "");
    return pst_sprintf("%zu job%s of queue %s at site %s %s ahead; the first, %s, says: %s", place, place == 1 ? "" : "s", l->queue->name,
                       s->name, place == 1 ? "is" : "are", own ? first->s.training_id : "another user's",
                       first->s.reason ? first->s.reason : "it is next");
}

/* No single node of its site could ever hold it, and it may go to several. */
static bool is_wide(const trainer_job *j)
{
    char *never = j->gang->one_node ? NULL : trainer_one_node_never(j->site, j->gang);
    free(never);
    return never;
}

/* Where it may go now (*ret_nodes: over several, free()); else why it waits. What nodes said before we came is read first: of one that has stopped the word before its last would be
 * taken for its last, and what was given to it would wait for it. */
static const trainer_node *find_place(tcore *c, trainer_job *j, trainer_node ***ret_nodes, char **ret_reason, bool *ret_bound,
                                      bool *ret_wide)
{
    *ret_wide = is_wide(j);
    if (!c->nodes_unread && !*ret_wide)
        return trainer_site_place(c, j, ret_reason, ret_bound);
    if (!c->nodes_unread) {
        *ret_nodes = trainer_spread_place(c, j, ret_reason);
        return *ret_nodes ? **ret_nodes : NULL;
    }
    *ret_reason = pst_sprintf("the Trainer has just begun and reads which nodes of site %s there are", j->s.site);
    return NULL;
}

/* It says nothing of a queue before it is in it for good: its state has the reason. */
static bool is_not_admitted(trainer_job *j)
{
    bool awaited = trainer_stores_awaited(j);
    if (awaited)
        trainer_queue_said(j);
    return awaited;
}

/* ---- room that is kept ------------------------------------------------------------------------------------------------------------- */

/* The first job in turn that does not fit gets room kept for it, on one node or, as a gang that no node holds, on several: else narrow jobs would take what
 * becomes free, one by one, for ever. Whoever comes behind it in turn may run beside it where that leaves it its room even when all is gone that ran
 * before (back-filling): what was put there since counts against it. It is kept until that job runs, or may not any more, whoever's turn it is meanwhile:
 * if it went to another's job with each turn, a job that needs a node to become empty would never have it long enough. Then it goes to the first in turn
 * again; but who is the first of its queue for much longer than its weight lets expect comes before those whose turn it is: a queue that cannot use what is its due
 * would always be ahead. One for which no room can be kept at all (its node is silent, or does not exist) leaves that to the next. */
static trainer_part *node_to_keep(const tcore *c, const trainer_job *j, size_t *ret_n)
{
    trainer_node *best = NULL;
    double least = 0;
    for (size_t i = 0; i < j->site->n_nodes; i++) {
        trainer_node *n = j->site->nodes[i];
        if (!trainer_node_suits(c, n, j))
            continue;
        double lacks = trainer_node_shortfall(n, &j->needs);
        if (!best || lacks < least) {
            best = n;
            least = lacks;
        }
    }
    trainer_part *part = best ? pst_alloc(sizeof *part) : NULL;
    if (part)
        *part = (trainer_part){best, j->needs};
    *ret_n = best != NULL;
    return part;
}

/* What a job has there is beside the room that is kept. */
static void count_beside(const trainer_job *x)
{
    for (size_t k = 0; k < x->n_parts; k++) {
        trainer_node *n = x->parts[k].node;
        if (!n->kept_for)
            continue;
        n->kept.cpu += x->parts[k].needs.cpu;
        n->kept.memory += x->parts[k].needs.memory;
        n->kept.gpus += x->parts[k].needs.gpus;
    }
}

static void keep_on(const tcore *c, trainer_site *s, const trainer_job *j)
{
    for (size_t i = 0; i < s->n_kept; i++) {
        s->kept[i].node->kept_for = j;
        s->kept[i].node->kept = s->kept[i].needs;
    }
    for (size_t i = 0; i < c->n_live; i++)
        if (c->live[i]->charged_us >= s->kept_us)
            count_beside(c->live[i]);
}

/* Only a pass goes by it. */
static void keep_off(trainer_site *s)
{
    for (size_t i = 0; i < s->n_kept; i++)
        s->kept[i].node->kept_for = NULL;
}

static void keep_nothing(trainer_site *s)
{
    keep_off(s);
    free(s->kept_id);
    free(s->kept);
    s->kept_id = NULL;
    s->kept = NULL;
    s->n_kept = 0;
}

/* Is what was kept in the pass before for this job still right? A gang's nodes need not each hold all of it. */
static bool keeps_still(const tcore *c, const trainer_site *s, const trainer_job *j, bool wide)
{
    if (!s->kept_id || strcmp(s->kept_id, j->s.training_id) != 0 || wide != (s->n_kept > 1))
        return false;
    for (size_t i = 0; i < s->n_kept; i++)
        if (wide ? !trainer_node_takes_part(c, s->kept[i].node, j) : !trainer_node_suits(c, s->kept[i].node, j))
            return false;
    return true;
}

/* True when room is kept for it. */
static bool keep_for(const tcore *c, trainer_site *s, const trainer_job *j, bool wide)
{
    size_t n;
    trainer_part *parts = wide ? trainer_spread_keep(c, j, &n) : node_to_keep(c, j, &n);
    if (!parts)
        return false;
    keep_nothing(s);
    s->kept_id = pst_strdup(j->s.training_id);
    s->kept = parts;
    s->n_kept = n;
    s->kept_us = c->now_us;
    keep_on(c, s, j);
    return true;
}

/* How many tasks its array lets run at a time, when as many do; else 0. Those that were resumed all wait in the queue at once. */
static int array_limit_reached(const tcore *c, const trainer_job *j)
{
    trainer_job *array = *j->s.array_of ? pst_map_get(&c->jobs, j->s.array_of) : NULL;
    int limit = array && array->s.array ? trainer_array_tasks(array)->limit : 0;
    return limit && array->s.array->running >= limit ? limit : 0;
}

/* It waits for nothing but room. */
static bool wants_room(const tcore *c, const trainer_job *j)
{
    return j->queued && !j->barred && ready_at(c, j) <= c->now_us && !array_limit_reached(c, j) &&
           trainer_queue_lacking(j, NULL) == TRAINER_LACKS_NOTHING;
}

/* For how long the first of a queue may wait for its turn: twice what its weight lets expect where one generation runs at a time. */
static int64_t patience_us(const tcore *c, const trainer_site *s, const trainer_lane *l)
{
    double weights = 0;
    for (size_t i = 0; i < s->n_lanes; i++)
        weights += s->lanes[i]->n ? s->lanes[i]->queue->weight : 0;
    return (int64_t)(2 * (double)(c->typical_us ? c->typical_us : TYPICAL_US) * weights / l->queue->weight);
}

static bool is_head_longer(const trainer_lane *a, const trainer_lane *b)
{
    return a->head_us != b->head_us ? a->head_us < b->head_us : strcmp(a->queue->name, b->queue->name) < 0;
}

/* Room is kept for the first of a queue that has waited too long, if there is one: the oldest for which it can be. NULL: for nobody. */
static const trainer_job *keep_for_overdue(const tcore *c, trainer_site *s)
{
    const trainer_job *before = NULL;
    for (size_t tries = 0; tries < s->n_lanes; tries++) {
        const trainer_job *oldest = NULL;
        for (size_t i = 0; i < s->n_lanes; i++) {
            const trainer_lane *l = s->lanes[i];
            if (l->head && (!before || is_head_longer(before->lane, l)) && (!oldest || is_head_longer(l, oldest->lane)) &&
                c->now_us - l->head_us > patience_us(c, s, l) && wants_room(c, l->head))
                oldest = l->head;
        }
        if (!oldest || keep_for(c, s, oldest, is_wide(oldest)))
            return oldest;
        before = oldest;
    }
    return NULL;
}

/* For whom room is kept from the beginning of a pass: as in the one before where that is right still, since what was put beside it counts. */
static const trainer_job *keep_again(const tcore *c, trainer_site *s)
{
    trainer_job *j = s->kept_id ? pst_map_get(&c->jobs, s->kept_id) : NULL;
    if (j && j->site == s && !c->nodes_unread && wants_room(c, j) && keeps_still(c, s, j, is_wide(j))) {
        keep_on(c, s, j);
        return j;
    }
    keep_nothing(s);
    return c->nodes_unread ? NULL : keep_for_overdue(c, s);
}

/* ---- a pass ------------------------------------------------------------------------------------------------------------------------ */

/* What did not fit anywhere in this pass: whatever needs as much will not either. */
typedef struct trainer_pass {
    trainer_site *site;
    const trainer_job *kept; /* for whom room is kept: the first that did not fit, of this pass or of one before; NULL = nobody */
    bool kept_seen;          /* its turn has come */
    trainer_job *first;      /* the first of this pass that did not fit */
    bool first_is_wide;
    struct {
        trainer_needs needs;
        pst_isolation isolation;
    } failed[FAILED_KEPT];
    size_t n_failed;
} trainer_pass;

static bool has_failed(const trainer_pass *p, const trainer_job *j)
{
    for (size_t i = 0; i < p->n_failed; i++)
        if (p->failed[i].isolation == j->isolation && j->needs.cpu >= p->failed[i].needs.cpu &&
            j->needs.memory >= p->failed[i].needs.memory && j->needs.gpus >= p->failed[i].needs.gpus && !*j->s.checkpoint_node)
            return true;
    return false;
}

static void note_failed(trainer_pass *p, const trainer_job *j)
{
    size_t at = p->n_failed < FAILED_KEPT ? p->n_failed++ : FAILED_KEPT - 1;
    p->failed[at].needs = j->needs;
    p->failed[at].isolation = j->isolation;
}

/* It may not run, and others may: the lane goes on to the next. A queue may have 100,000 of one user's jobs that have to wait, so a pass goes over a
 * number of them at the front, and over as many from where the one before stopped: each is seen in time, and no pass is long. */
static void pass_over(trainer_lane *l)
{
    l->next++;
    l->passed++;
    if (l->passed == PASSED_MAX && l->next < l->cursor)
        l->next = l->cursor;
    if (l->passed < 2 * PASSED_MAX)
        return;
    l->cursor = l->next;
    l->closed = true;
}

/* The site is too small for it even when empty: true. An LCM may have come back with less than it had. */
static bool is_too_large(tcore *c, trainer_site *s, trainer_job *j)
{
    char *never = c->nodes_unread ? NULL : trainer_queue_never(s, j->gang);
    if (!never || c->unsettled)
        j->never_us = 0;
    else if (!j->never_us)
        j->never_us = c->now_us;
    if (!never)
        return false;
    if (j->never_us && c->now_us - j->never_us >= NEVER_S * (int64_t)1000000) {
        fail_never(c, j, never);
    } else { /* others need not wait for what it lost */
        char *text = pst_sprintf("%s; it waits for the site to grow, and fails when that has lasted %d minutes", never, NEVER_S / 60);
        say_queued(c, j, text);
        free(text);
        pass_over(j->lane);
    }
    free(never);
    return true;
}

static bool waits_for_retry(tcore *c, trainer_job *j)
{
    if (ready_at(c, j) <= c->now_us)
        return false;
    char *text = j->unsaid ? pst_sprintf("it is tried again after a pause: %s", j->s.reason ? j->s.reason : "") : NULL;
    if (text)
        say_queued(c, j, text);
    free(text);
    return true;
}

/* Its queue's quota was lowered below what it needs: true. It waits for the quota to be raised, as what is in a deleted queue waits, and holds up nobody. */
static bool is_over_alone(tcore *c, trainer_job *j)
{
    const trainer_queue *q = j->queue;
    bool over = (q->has_cpu && j->needs.cpu > q->quota.cpu) || (q->has_memory && j->needs.memory > q->quota.memory) ||
                (q->has_gpus && j->needs.gpus > q->quota.gpus);
    if (!q->known || !over)
        return false;
    char *why = trainer_queue_exceeds(q, &j->needs);
    if (why)
        say_queued(c, j, why);
    free(why);
    pass_over(j->lane);
    return true;
}

/* A task of an array that has as many running as it may (%N): true. */
static bool waits_for_its_array(tcore *c, trainer_job *j)
{
    int limit = array_limit_reached(c, j);
    if (!limit)
        return false;
    if (j->unsaid || !j->lane->next) {
        char *why = pst_sprintf("its array lets %d task%s run at a time", limit, limit == 1 ? "" : "s");
        say_queued(c, j, why);
        free(why);
    }
    pass_over(j->lane);
    return true;
}

/* What the queue's rules forbid now: true. A rule that is only about its user, or GPUs, lets others of the queue pass. */
static bool is_forbidden(tcore *c, trainer_job *j)
{
    trainer_lane *l = j->lane;
    bool behind_others = l->no_gpus && j->needs.gpus; /* whose sentence is said for all */
    trainer_lack lack = behind_others ? TRAINER_LACKS_GPU_QUOTA : trainer_queue_lacking(j, NULL);
    if (lack == TRAINER_LACKS_NOTHING)
        return false;
    char *why = NULL;
    if (!behind_others && (j->unsaid || !l->next || lack == TRAINER_LACKS_QUOTA))
        trainer_queue_lacking(j, &why);
    if (why)
        say_queued(c, j, why);
    free(why);
    l->closed |= lack == TRAINER_LACKS_QUOTA;
    l->no_gpus |= lack == TRAINER_LACKS_GPU_QUOTA;
    pass_over(l);
    return true;
}

/* It finds no node. The first of its lane says why; behind it narrower ones are looked for. One that must go where its checkpoints lie holds up nobody. */
static void does_not_fit(tcore *c, trainer_pass *p, trainer_job *j, const char *reason, bool bound, bool wide)
{
    trainer_site *s = p->site;
    trainer_lane *l = j->lane;
    if (!bound)
        note_failed(p, j);
    bool before_it = p->kept && p->kept->lane == l && !p->kept_seen; /* it came with a higher priority */
    if (!c->nodes_unread && (!p->kept || before_it) && keep_for(c, s, j, wide)) {
        p->kept = j;
        p->kept_seen = true;
    }
    if (!l->blocked && !bound && l->head != j) {
        l->head = j;
        l->head_us = c->now_us;
    }
    if (!p->first) {
        p->first = j;
        p->first_is_wide = wide;
    }
    char *coming = c->nodes_unread || l->blocked ? NULL : tcore_preempt(c, j);
    char *both = coming ? pst_sprintf("%s; %s", reason, coming) : NULL;
    if (bound || !l->blocked)
        say_queued(c, j, both ? both : reason);
    free(both);
    free(coming);
    l->blocked |= !bound;
    l->closed |= c->nodes_unread || ++l->looks >= LOOKS_MAX;
    l->next++;
}

/* One job of a lane: it runs, or the lane goes on to the next, or is closed for this pass. */
static void try_one(tcore *c, trainer_pass *p, trainer_lane *l)
{
    trainer_job *j = l->at[l->next];
    char *reason = NULL;
    bool bound = false, wide = false;
    p->kept_seen |= j == p->kept;
    if (is_not_admitted(j) || waits_for_retry(c, j)) { /* a server of its own, or a fault of its own, is no reason for others to wait */
        pass_over(l);
        return;
    }
    if (l->blocked && has_failed(p, j)) {
        l->next++;
        l->closed |= ++l->looks >= LOOKS_MAX;
        return;
    }
    if (is_too_large(c, p->site, j) || waits_for_its_array(c, j) || is_over_alone(c, j) || is_forbidden(c, j))
        return;
    trainer_node **nodes = NULL;
    const trainer_node *node = find_place(c, j, &nodes, &reason, &bound, &wide);
    if (node) {
        deploy(c, j, node, nodes);
        if (j == p->kept) { /* next is who had to leave it the room, not the next of its own queue */
            keep_nothing(p->site);
            p->kept = keep_for_overdue(c, p->site);
            if (!p->kept && p->first && keep_for(c, p->site, p->first, p->first_is_wide))
                p->kept = p->first;
        } else if (p->kept) { /* it may stand beside the room that is kept */
            count_beside(j);
        }
        l->share = tcore_queue_share(c, l->queue);
    } else {
        does_not_fit(c, p, j, reason, bound, wide);
    }
    free(nodes);
    free(reason);
}

/* Queues that preempt come first; then the one with the least share, but those whose first job found no room behind all others. */
static bool goes_first(const trainer_lane *a, const trainer_lane *b)
{
    if (a->blocked != b->blocked)
        return b->blocked;
    if (a->queue->preempts != b->queue->preempts)
        return a->queue->preempts;
    if (a->share < b->share || a->share > b->share)
        return a->share < b->share;
    return strcmp(a->queue->name, b->queue->name) < 0;
}

static trainer_lane *next_lane(const trainer_site *s)
{
    trainer_lane *best = NULL;
    for (size_t i = 0; i < s->n_lanes; i++) {
        trainer_lane *l = s->lanes[i];
        bool over = l->next >= l->n || l->at[l->next]->barred;
        if (over && !l->closed)
            l->cursor = 0;
        l->closed |= over;
        if (!l->closed && (!best || goes_first(l, best)))
            best = l;
    }
    return best;
}

static void say_the_rest(tcore *c, trainer_site *s, trainer_lane *l)
{
    for (size_t i = l->n; i-- > 0 && l->n_unsaid;) /* those that came now mostly stand at the end */
        if (l->at[i]->unsaid && !is_not_admitted(l->at[i])) {
            char *reason = l->at[i]->barred ? trainer_barred_text(l->at[i]) : behind(s, l, i);
            say_queued(c, l->at[i], reason);
            free(reason);
        }
}

static void run_site(tcore *c, trainer_site *s)
{
    trainer_pass p = {.site = s};
    trainer_lane *l;
    for (size_t i = 0; i < s->n_lanes; i++) {
        l = s->lanes[i];
        l->next = l->looks = l->passed = 0;
        l->closed = l->blocked = l->no_gpus = false;
        l->share = tcore_queue_share(c, l->queue);
    }
    tcore_claims_begin(s);
    p.kept = keep_again(c, s);
    while ((l = next_lane(s)))
        try_one(c, &p, l);
    tcore_claims_end(s);
    for (size_t i = 0; i < s->n_lanes; i++)
        say_the_rest(c, s, s->lanes[i]);
    keep_off(s);
}

void trainer_queue_run(tcore *c)
{
    tcore_queues_read_past(c);
    do {
        tcore_after_run(c);
        for (size_t i = 0; i < c->sites.n; i++)
            if (c->sites.at[i].key && ((trainer_site *)c->sites.at[i].value)->n_queue)
                run_site(c, c->sites.at[i].value);
    } while (tcore_arrays_run(c));
}
