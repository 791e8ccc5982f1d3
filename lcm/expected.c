/* expected.c - jobs.state, reduced to what the LCM asks of it: a few words a job in a map, so that 100,000 jobs are no matter. It is read from
 * the beginning at each start; a memory of our own would be one more thing that can differ from the truth. */
#include "lcm/expected.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/retry.h"
#include "common/base/stop.h"
#include "common/objects/rundir.h"
#include "lcm/membership.h"
#include "schemas/manifest.h"
#include "schemas/deploy_digest.h"
#include "schemas/job_state.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/topics.h"

#include <stdlib.h>
#include <string.h>

enum { REGISTRY_WAIT_MS = 200, IDLE_US = 15000000, SETTLE_US = 1000000, ASK_MS = 2000, READ_MAX = 1000, MEMBERS_AGAIN_US = 5000000 };

typedef struct known {
    int generation;
    bool live, here;     /* PENDING … STORING; on this node */
    bool elsewhere;      /* on another */
    bool stopping;       /* it is being ended, or part of it has ended */
    bool ends, halts;    /* all of it is to end; by a HALT */
    pst_members members; /* of a gang over several nodes, this one among them, that nobody has taken yet; n 0 = none */
    int met;             /* the generation whose list was taken */
    int tries;           /* how often it could not be */
    int64_t again_us;    /* monotonic: not before */
    char digest[65];     /* of its DEPLOY; "" = a Trainer that makes none */
} known;

struct lcm_expected {
    pst_client *client;
    pst_consumer *states;
    char *node;
    pst_map jobs;     /* training_id → known */
    size_t n_members; /* how many of them have a list that nobody has taken */
    int64_t *horizon; /* per partition of jobs.commands: offsets below were written before the start */
    int partitions;
    bool eof;
    int64_t probe_us, fresh_us; /* monotonic */
};

static bool part_has_ended(const pst_job_state *s)
{
    for (size_t i = 0; i < s->n_processes; i++)
        if (pst_job_process_is_ended(s->processes[i].state))
            return true;
    return false;
}

/* The Trainer asks for the end of a generation when a user did (stop_action), after a failure, and of those without a rank (ps, evaluator)
 * once the others are done. */
static bool is_to_end(const pst_job_state *s)
{
    size_t ranked = 0, done = 0;
    for (size_t i = 0; i < s->n_processes; i++)
        if (pst_process_is_ranked(s->processes[i].name)) {
            ranked++;
            done += pst_job_process_is_ended(s->processes[i].state);
        }
    const pst_job_process *first = s->n_processes ? &s->processes[0] : NULL; /* a chief is the first, and its success is the job's */
    if (first && pst_process_is_of(first->name, "chief") && first->state == PST_JOB_PROCESS_STATE_EXITED && first->has_exit_code &&
        first->exit_code == 0)
        return true;
    return s->stop_action != PST_JOB_STOP_ACTION_NONE || s->reason_code || (ranked && done == ranked);
}

static void known_free(lcm_expected *e, known *k)
{
    if (!k)
        return;
    e->n_members -= k->members.n > 0;
    pst_members_done(&k->members);
    free(k);
}

/* Read once a generation: a state comes at every step of a job. */
static void take_members(lcm_expected *e, const pst_job_state *s, known *k)
{
    const known *before = pst_map_get(&e->jobs, s->training_id);
    k->met = before ? before->met : 0;
    if (before && before->generation == k->generation) {
        k->tries = before->tries;
        k->again_us = before->again_us;
    }
    if (k->live && k->here && k->met != k->generation && lcm_membership_concerns(s, e->node) && lcm_membership_of(s, &k->members))
        e->n_members++;
}

static void take_state(lcm_expected *e, const pst_job_state *s)
{
    known *k = pst_alloc(sizeof *k);
    k->generation = s->generation;
    k->here = !strcmp(s->node, e->node) || lcm_membership_concerns(s, e->node);
    k->elsewhere = *s->node && !k->here;
    k->live = s->generation > 0 && pst_job_state_is_live(s->state);
    k->stopping = s->stop_action != PST_JOB_STOP_ACTION_NONE || s->reason_code || part_has_ended(s);
    k->ends = is_to_end(s);
    k->halts = (s->stop_action == PST_JOB_STOP_ACTION_HALT || s->stop_action == PST_JOB_STOP_ACTION_PREEMPT) && !s->reason_code;
    snprintf(k->digest, sizeof k->digest, "%s", s->spec_sha256);
    take_members(e, s, k);
    known_free(e, pst_map_put(&e->jobs, s->training_id, k));
}

/* < 0: RETRY, the registry is away: the record is still to be taken. */
static int take(lcm_expected *e, const pst_record *r, pst_err *err)
{
    pst_job_state s;
    if (!r->key)
        return 0;
    if (!r->value) {
        char *key = pst_strndup(r->key, r->key_len);
        known_free(e, pst_map_take(&e->jobs, key));
        free(key);
        return 0;
    }
    int rc = pst_codec_decode(e->client->codec, &pst_job_state_type, r->value, r->value_len, r->timestamp_ms, &s, err);
    if (rc < 0 && err->cls == PST_CLASS_RETRY)
        return rc;
    if (rc < 0) {
        pst_log_err("lcm", err);
        pst_err_clear(err);
        return 0;
    }
    take_state(e, &s);
    pst_event_clear(&pst_job_state_type, &s);
    return 0;
}

/* One poll; all of what it brought. Returns how many, or < 0. */
static int poll_once(lcm_expected *e, int timeout_ms, pst_err *err)
{
    pst_batch b;
    int rc = pst_consumer_poll(e->states, &(pst_poll){.records_max = READ_MAX, .bytes_max = 8 << 20, .timeout_ms = timeout_ms}, &b, err);
    if (rc < 0)
        return rc;
    pst_err_clear(err); /* an outage that the poll met: it goes on by itself */
    e->eof = b.eof;
    for (size_t i = 0; i < b.n; i++)
        while (take(e, &b.records[i], err) < 0) /* the registry is away: nothing can be judged without it anyway */
            if (!pst_retry("lcm", err, REGISTRY_WAIT_MS)) {
                pst_err_clear(err);
                return pst_err_set(err, PST_ESTOPPED, PST_CLASS_NONE, "lcm", 0, "stopped");
            }
    return (int)b.n;
}

static int read_all(lcm_expected *e, pst_err *err)
{
    int64_t last = pst_mono_us();
    while (!e->eof) {
        int n = poll_once(e, 200, err);
        if (n < 0)
            return n;
        if (n)
            last = pst_mono_us();
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "lcm", 0, "stopped");
        if (!e->eof && pst_mono_us() - last > IDLE_US)
            return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0, "no answer about the states of jobs for %d s",
                               IDLE_US / 1000000);
    }
    return 0;
}

static int topic_info(pst_client *c, pst_topic topic, int timeout_ms, pst_topic_info *ret_info, pst_err *err)
{
    int rc = pst_admin_topic(c->bus, pst_client_topic(c, topic), ret_info, timeout_ms, err);
    if (rc == PST_ENOTFOUND && err) /* `up` creates topics before it starts us; alone we wait for somebody to do so */
        err->cls = PST_CLASS_RETRY;
    return rc;
}

static int open_states(lcm_expected *e, pst_err *err)
{
    pst_topic_info info = {0};
    int rc = topic_info(e->client, PST_TOPIC_JOBS_STATE, 10000, &info, err);
    if (rc < 0)
        return rc;
    pst_range *ranges = pst_alloc((size_t)(info.partitions + 1) * sizeof *ranges);
    for (int p = 0; p < info.partitions; p++)
        ranges[p] = (pst_range){pst_client_topic(e->client, PST_TOPIC_JOBS_STATE), p, info.low[p], -1};
    rc = pst_consumer_new(e->client->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = (size_t)info.partitions, .report_eof = true},
                          &e->states, err);
    free(ranges);
    pst_topic_info_done(&info);
    return rc ? rc : read_all(e, err);
}

int lcm_expected_open(pst_client *client, const char *node, lcm_expected **ret_expected, pst_err *err)
{
    lcm_expected *e = pst_alloc(sizeof *e);
    pst_topic_info info = {0};
    e->client = client;
    e->node = pst_strdup(node);
    int rc = topic_info(client, PST_TOPIC_JOBS_COMMANDS, 10000, &info, err);
    if (!rc) { /* before the states: what stands in them belongs to commands below this */
        e->partitions = info.partitions;
        e->horizon = pst_alloc(((size_t)info.partitions + 1) * sizeof *e->horizon);
        memcpy(e->horizon, info.high, (size_t)info.partitions * sizeof *e->horizon);
        pst_topic_info_done(&info);
        rc = open_states(e, err);
    }
    if (rc < 0) {
        lcm_expected_free(e);
        return rc;
    }
    e->fresh_us = pst_mono_us();
    *ret_expected = e;
    return 0;
}

void lcm_expected_free(lcm_expected *e)
{
    if (!e)
        return;
    pst_consumer_free(e->states);
    for (size_t i = 0; i < e->jobs.n; i++)
        if (e->jobs.at[i].key)
            known_free(e, e->jobs.at[i].value);
    pst_map_done(&e->jobs, NULL);
    free(e->horizon);
    free(e->node);
    free(e);
}

void lcm_expected_poll(lcm_expected *e)
{
    pst_err err = {0};
    int n;
    while ((n = poll_once(e, 0, &err)) == READ_MAX)
        ;
    if (n < 0) {
        pst_log_err("lcm", &err);
        e->eof = false; /* nothing is refused by what cannot be followed */
    }
    if (!e->eof)
        e->probe_us = 0;
    else if (e->probe_us && pst_mono_us() - e->probe_us >= SETTLE_US) {
        e->fresh_us = e->probe_us;
        e->probe_us = 0;
    }
}

int64_t lcm_expected_fresh(const lcm_expected *e)
{
    return e->fresh_us;
}

void lcm_expected_probe(lcm_expected *e)
{
    pst_topic_info info = {0};
    pst_err err = {0};
    if (e->probe_us || !e->eof)
        return;
    if (topic_info(e->client, PST_TOPIC_JOBS_STATE, ASK_MS, &info, &err) == 0) /* each partition's leader answers */
        e->probe_us = pst_mono_us();
    else
        pst_log_err("lcm", &err);
    pst_topic_info_done(&info);
}

bool lcm_expected_is_old(const lcm_expected *e, const pst_record *r)
{
    return r->partition < e->partitions && r->offset < e->horizon[r->partition];
}

static pst_lcm_verdict judge_deploy(const known *k, const pst_job_command *c)
{
    char hex[65];
    if (!k || k->generation < c->generation)
        return PST_LCM_WAIT;
    if (k->generation > c->generation || !k->live || k->elsewhere)
        return PST_LCM_REFUSE;
    pst_deploy_digest(c, hex);
    return *k->digest && strcmp(hex, k->digest) ? PST_LCM_REFUSE : PST_LCM_FOLLOW;
}

pst_lcm_verdict lcm_expected_judge(const lcm_expected *e, const pst_job_command *c)
{
    const known *k = pst_map_get(&e->jobs, c->training_id);
    switch (c->command) {
    case PST_JOB_COMMAND_TYPE_DEPLOY: return judge_deploy(k, c);
    case PST_JOB_COMMAND_TYPE_HALT:
    case PST_JOB_COMMAND_TYPE_KILL: /* a job that is deleted, or has gone on, needs nothing that lives here */
        if (!k || k->generation > c->generation)
            return PST_LCM_FOLLOW;
        return k->generation == c->generation && (!k->live || k->stopping) ? PST_LCM_FOLLOW : PST_LCM_WAIT;
    case PST_JOB_COMMAND_TYPE_CLEAN: return k ? PST_LCM_WAIT : PST_LCM_FOLLOW; /* its tombstone comes with it */
    default: return PST_LCM_FOLLOW;
    }
}

void lcm_expected_members(lcm_expected *e,
                          bool (*fn)(void *arg, const char *training_id, int generation, const pst_members *members, int tries), void *arg)
{
    for (size_t i = 0; i < e->jobs.n && e->n_members; i++) {
        known *k = e->jobs.at[i].key ? e->jobs.at[i].value : NULL;
        if (!k || !k->members.n || pst_mono_us() < k->again_us)
            continue;
        if (!fn(arg, e->jobs.at[i].key, k->generation, &k->members, k->tries)) {
            k->tries++;
            k->again_us = pst_mono_us() + MEMBERS_AGAIN_US;
            continue;
        }
        pst_members_done(&k->members);
        k->met = k->generation;
        e->n_members--;
    }
}

void lcm_expected_each(const lcm_expected *e, void (*fn)(void *arg, const char *training_id, int generation), void *arg)
{
    for (size_t i = 0; i < e->jobs.n; i++) {
        const known *k = e->jobs.at[i].key ? e->jobs.at[i].value : NULL;
        if (k && k->live && k->here)
            fn(arg, e->jobs.at[i].key, k->generation);
    }
}

bool lcm_expected_wants(const lcm_expected *e, const char *training_id, int generation)
{
    const known *k = pst_map_get(&e->jobs, training_id);
    return k && k->live && !k->elsewhere && k->generation == generation;
}

bool lcm_expected_fences(const lcm_expected *e, const char *training_id, int generation)
{
    const known *k = pst_map_get(&e->jobs, training_id);
    return k && (k->generation > generation || (k->generation == generation && (!k->live || k->elsewhere)));
}

bool lcm_expected_stops(const lcm_expected *e, const char *training_id, int generation, bool *ret_halt)
{
    const known *k = pst_map_get(&e->jobs, training_id);
    bool stops = k && k->generation == generation && k->live && !k->elsewhere && k->ends;
    *ret_halt = stops && k->halts;
    return stops;
}
