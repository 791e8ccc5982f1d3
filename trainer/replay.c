/* replay.c - the Trainer's decisions are a function of its inputs, and its inputs are topics: so whatever it did can be done again, one record at a
 * time, at a desk. Events are compared by what was decided (type, state, generation, process, reason code), not by their times or sentences. */
#include "trainer/replay.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/settings.h"
#include "common/platform/verb.h"
#include "schemas/training_id.h"
#include "trainer/shell.h"

#include <stdlib.h>
#include <string.h>

/* Ticks are as close as the Trainer's where something may be about to happen, and far apart in the days between. */
enum { TICK_US = 200000, CLOSE_US = 60 * 1000000, FAR_TICK_US = 5 * 1000000, AFTER_US = 2 * 1000000 };

typedef struct replay {
    tcore *core;
    const char *job;
    FILE *out;
    trainer_actions actions;
    pst_map recorded;  /* "training id/seq" → const pst_job_event; taken out when the core comes to it */
    pst_map kinds;     /* nonce of a recorded command → "training id/generation/command" */
    pst_map nonces;    /* that → the nonce that the core gave */
    pst_map submitted; /* training ids; values unused */
    pst_map answers;   /* training id → the recorded event that tells what its data stores answered; only in answer_stores */
    pst_map steady;    /* node → its entry, of those whose heartbeats were compacted away */
    int64_t now_us, shown_us;
    trainer_replay_result *result;
} replay;

/* ---- telling ----------------------------------------------------------------------------------------------------------------- */

static bool is_shown(const replay *p, const char *training_id)
{
    return !p->job || (training_id && !strcmp(training_id, p->job));
}

static bool texts_equal(const char *a, const char *b)
{
    return !strcmp(a ? a : "", b ? b : "");
}

static bool same_decision(const pst_job_event *a, const pst_job_event *b)
{
    return a->type == b->type && a->state == b->state && a->generation == b->generation && texts_equal(a->process, b->process) &&
           texts_equal(a->reason_code, b->reason_code);
}

static void print_event(FILE *out, const char *mark, const pst_job_event *e)
{
    fprintf(out, "  %s %s seq=%lld %s generation=%d state=%s%s%s%s%s\n", mark, e->training_id, (long long)e->seq,
            pst_job_event_type_text(e->type), e->generation, pst_job_public_state_text(e->state), e->process ? " process=" : "",
            e->process ? e->process : "", e->reason_code ? " reason_code=" : "", e->reason_code ? e->reason_code : "");
}

static void tell_event(replay *p, const pst_job_event *e)
{
    if (!is_shown(p, e->training_id))
        return;
    char *key = pst_sprintf("%s/%lld", e->training_id, (long long)e->seq);
    const pst_job_event *then = pst_map_take(&p->recorded, key);
    bool same = then && same_decision(e, then);
    print_event(p->out, same ? "=" : "!", e);
    if (!same && then)
        print_event(p->out, "  recorded:", then);
    else if (!same)
        fprintf(p->out, "    recorded: nothing\n");
    if (same || e->seq > 0) /* answers that belong to no job have no number to be found by */
        (*(same ? &p->result->same : &p->result->different))++;
    free(key);
}

static void tell_time(replay *p)
{
    char text[32];
    if (p->now_us != p->shown_us)
        fprintf(p->out, "%s\n", pst_time_text(p->now_us, text));
    p->shown_us = p->now_us;
}

static void keep_nonce(replay *p, const pst_job_command *c)
{
    char *kind = pst_sprintf("%s/%d/%s", c->training_id, c->generation, pst_job_command_type_text(c->command));
    free(pst_map_put(&p->nonces, kind, pst_strdup(c->nonce)));
    free(kind);
}

static void take_actions(replay *p)
{
    for (size_t i = 0; i < p->actions.n; i++) {
        const trainer_action *a = &p->actions.at[i];
        if (a->kind == PST_DO_COMMAND)
            keep_nonce(p, &a->command);
        if (a->kind == PST_DO_COMMAND && is_shown(p, a->command.training_id)) {
            tell_time(p);
            fprintf(p->out, "  > %s %s generation=%d node=%s\n", a->command.training_id, pst_job_command_type_text(a->command.command),
                    a->command.generation, a->command.node);
        } else if (a->kind == PST_DO_EVENT && is_shown(p, a->event.training_id)) {
            tell_time(p);
            tell_event(p, &a->event);
        }
    }
    trainer_actions_clear(&p->actions);
}

/* ---- playing ----------------------------------------------------------------------------------------------------------------- */

static void step(replay *p, const trainer_in *in)
{
    tcore_step(p->core, in, p->now_us, &p->actions);
    take_actions(p);
}

static void beat(replay *p, const pst_worker_state *w)
{
    step(p, &(trainer_in){.kind = PST_TRAINER_WORKER, .worker = w, .seen_us = p->now_us});
}

/* What a server answered is on no topic, but what came of it is: the next event of such a job is its admission, its rejection, or another end. */
static void note_answer(void *arg, const pst_job_state *s)
{
    replay *p = arg;
    char *key = pst_sprintf("%s/%lld", s->training_id, (long long)s->seq + 1);
    const pst_job_event *e = pst_map_get(&p->recorded, key);
    if (e && e->time <= p->now_us && (e->type == PST_JOB_EVENT_TYPE_ADMITTED || e->state == PST_JOB_PUBLIC_STATE_REJECTED))
        pst_map_put(&p->answers, s->training_id, (void *)(uintptr_t)e);
    free(key);
}

static void answer_stores(replay *p)
{
    tcore_stores_awaited(p->core, note_answer, p);
    for (size_t i = 0; i < p->answers.n; i++) {
        const pst_job_event *e = p->answers.at[i].key ? p->answers.at[i].value : NULL;
        if (e)
            step(p, &(trainer_in){.kind = PST_TRAINER_STORES,
                                  .training_id = e->training_id,
                                  .stores_refused = e->type == PST_JOB_EVENT_TYPE_ADMITTED ? NULL
                                                    : e->reason                            ? e->reason
                                                                                           : ""});
    }
    pst_map_done(&p->answers, NULL);
}

static void advance(replay *p, int64_t to_us)
{
    int64_t from = p->now_us;
    while (p->now_us < to_us) {
        int64_t next = p->now_us + (p->now_us - from < CLOSE_US ? TICK_US : FAR_TICK_US);
        p->now_us = next < to_us ? next : to_us;
        for (size_t i = 0; i < p->steady.n; i++)
            if (p->steady.at[i].key)
                beat(p, p->steady.at[i].value);
        answer_stores(p);
        step(p, &(trainer_in){.kind = PST_TRAINER_TICK, .caught_up = true});
    }
}

static void play_request(replay *p, const trainer_entry *e)
{
    char sha[65] = "", *uri = NULL, id[64];
    pst_job_request r = e->request; /* borrows */
    bool has_code = !e->bad && r.action == PST_JOB_ACTION_SUBMIT && r.code && r.code->content.data;
    if (has_code) {
        pst_sha256_hex(r.code->content.data, r.code->content.len, sha);
        uri = pst_sprintf("recorded:code/%s", sha);
    }
    if (!e->bad && r.action == PST_JOB_ACTION_SUBMIT) {
        pst_training_id(r.user, r.request_id, id);
        pst_map_put(&p->submitted, id, p);
    }
    const char *of = r.action == PST_JOB_ACTION_SUBMIT ? id : r.training_id;
    if (e->bad || !of)
        of = "";
    if (is_shown(p, of)) {
        tell_time(p);
        fprintf(p->out, "  < %s %s\n", e->bad ? "no request" : pst_job_action_text(r.action), of);
    }
    r.time = r.time > 0 ? r.time : e->time_us;
    if (e->bad)
        step(p, &(trainer_in){.kind = PST_TRAINER_BAD_REQUEST, .bad_reason = e->bad});
    else
        step(p, &(trainer_in){.kind = PST_TRAINER_REQUEST,
                              .request = &r,
                              .published_us = e->time_us,
                              .live = true,
                              .code_uri = uri,
                              .code_sha256 = has_code ? sha : NULL,
                              .code_error = has_code ? trainer_code_problem(r.code) : NULL});
    free(uri);
}

/* The proof that it had then becomes the proof that the core asks for now; one that was none stays none. */
static void play_report(replay *p, const trainer_entry *e)
{
    pst_process_report r = e->report; /* borrows */
    const char *kind = pst_map_get(&p->kinds, r.nonce), *ours = kind ? pst_map_get(&p->nonces, kind) : NULL;
    if (ours)
        r.nonce = (char *)ours;
    if (is_shown(p, r.training_id)) {
        tell_time(p);
        fprintf(p->out, "  < %s %s generation=%d%s%s\n", r.training_id, pst_report_type_text(r.type), r.generation,
                r.process ? " process=" : "", r.process ? r.process : "");
    }
    step(p, &(trainer_in){.kind = PST_TRAINER_REPORT, .report = &r, .published_us = e->time_us, .live = true});
}

static void define(replay *p, const trainer_entry *e)
{
    step(p, &(trainer_in){.kind = PST_TRAINER_QUEUE, .queue_name = e->queue.name, .queue = &e->queue});
}

static void play(replay *p, const trainer_entry *e)
{
    advance(p, e->time_us);
    switch (e->topic) {
    case PST_TOPIC_JOBS_REQUESTS: play_request(p, e); break;
    case PST_TOPIC_JOBS_REPORTS: play_report(p, e); break;
    case PST_TOPIC_WORKERS: beat(p, &e->worker); break;
    case PST_TOPIC_QUEUES: define(p, e); break;
    default: return; /* what it said then tells only that time went on */
    }
    p->result->records++;
}

/* ---- before and after -------------------------------------------------------------------------------------------------------- */

/* A node that was given something before the first heartbeat that is left of it: the topic keeps one a node when it is compacted. */
static void find_steady(replay *p, const trainer_recording *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const pst_job_command *c = &r->at[i].command;
        if (r->at[i].topic != PST_TOPIC_JOBS_COMMANDS || c->command != PST_JOB_COMMAND_TYPE_DEPLOY || pst_map_get(&p->steady, c->node))
            continue;
        const trainer_entry *first = NULL;
        for (size_t k = 0; k < r->n && !first; k++)
            if (r->at[k].topic == PST_TOPIC_WORKERS && !strcmp(r->at[k].worker.kind, "lcm") && !strcmp(r->at[k].worker.node, c->node))
                first = &r->at[k];
        if (first && first->time_us > r->at[i].time_us) {
            pst_map_put(&p->steady, c->node, (void *)&first->worker);
            fprintf(p->out, "# node %s: its heartbeats of before %lld were compacted away; it is taken to have been there\n", c->node,
                    (long long)first->time_us);
        }
    }
}

/* The topic keeps one record a queue: as its first one left says, it is taken to have been from the beginning. */
static void define_first(replay *p, const trainer_recording *r)
{
    for (size_t i = r->n; i-- > 0;)
        if (r->at[i].topic == PST_TOPIC_QUEUES)
            define(p, &r->at[i]);
}

static void index_recorded(replay *p, const trainer_recording *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const trainer_entry *e = &r->at[i];
        if (e->topic == PST_TOPIC_JOBS_COMMANDS && *e->command.nonce)
            free(pst_map_put(
                &p->kinds, e->command.nonce,
                pst_sprintf("%s/%d/%s", e->command.training_id, e->command.generation, pst_job_command_type_text(e->command.command))));
        if (e->topic != PST_TOPIC_JOBS_EVENTS || !is_shown(p, e->event.training_id))
            continue;
        char *key = pst_sprintf("%s/%lld", e->event.training_id, (long long)e->event.seq);
        pst_map_put(&p->recorded, key, (void *)&e->event);
        free(key);
    }
}

/* What was said then and is not now. */
static void tell_missing(replay *p)
{
    for (size_t i = 0; i < p->recorded.n; i++) {
        const pst_job_event *e = p->recorded.at[i].key ? p->recorded.at[i].value : NULL;
        if (!e)
            continue;
        if (e->seq <= 0 || !pst_map_get(&p->submitted, e->training_id)) {
            p->result->older += e->seq > 0;
            continue;
        }
        print_event(p->out, "! only recorded:", e);
        p->result->different++;
    }
}

void trainer_replay(const trainer_recording *r, const trainer_policy *policy, const char *job, FILE *out, trainer_replay_result *ret)
{
    *ret = (trainer_replay_result){0};
    replay p = {.core = tcore_new(policy), .job = job, .out = out, .result = ret, .now_us = r->n ? r->at[0].time_us : 0};
    tcore_loaded(p.core);
    index_recorded(&p, r);
    find_steady(&p, r);
    define_first(&p, r);
    for (size_t i = 0; i < r->n; i++)
        play(&p, &r->at[i]);
    advance(&p, p.now_us + AFTER_US);
    tell_missing(&p);
    trainer_actions_done(&p.actions);
    pst_map_done(&p.recorded, NULL);
    pst_map_done(&p.submitted, NULL);
    pst_map_done(&p.steady, NULL);
    pst_map_done(&p.kinds, free);
    pst_map_done(&p.nonces, free);
    tcore_free(p.core);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------------------- */

typedef struct replay_opts {
    const char *job, *operators;
    bool trust_gateway_roles;
    int64_t platform_retries, silent_us;
} replay_opts;
#define AT(f) offsetof(replay_opts, f)
static const pst_opt opts[] = {
    {"job", 0, PST_OPT_STR, AT(job), "ID", NULL, "tell and compare only this one; the others are played all the same"},
    {"platform-retries", 0, PST_OPT_INT, AT(platform_retries), "N 0..1000", "3", "as the Trainer had it"},
    {"silent-after", 0, PST_OPT_SPAN, AT(silent_us), "SPAN", "30s", "likewise"},
    {"operators", 0, PST_OPT_STR, AT(operators), "NAMES", NULL, "likewise [the user who runs this]"},
    {"trust-gateway-roles", 0, PST_OPT_BOOL, AT(trust_gateway_roles), NULL, NULL, "likewise"},
};

const pst_usage trainer_replay_usage = {
    .verb = "trainer replay",
    .args = "[FILE]",
    .summary = "play what the topics have into the Trainer's core, and compare its decisions with those of then",
    .text =
        "Reads queues, jobs.requests, jobs.reports, workers, jobs.commands and jobs.events from the beginning to their present end, or "
        "FILE (- is\n"
        "stdin): lines of `penstock cat -J` of these topics. Nothing is written to Kafka; no running Trainer is needed or disturbed.\n"
        "Lines: < what came, > a command, = an event as jobs.events has it, ! one that differs, with what is recorded.\n"
        "Topics have no order among them: records are taken in that of their timestamps. Where two came within a moment (a submission, and "
        "the\n"
        "first heartbeat of its node), the Trainer may have read them the other way round, and what rests on that differs.\n"
        "Exit status 1 where any differs. Manifests are in such a FILE as they were submitted, with what is secret in them.",
    .examples = "penstock trainer replay --job training-…\n"
                "for t in queues jobs.requests jobs.reports workers jobs.commands jobs.events; do penstock cat -t penstock.$t -e -J; done "
                ">then.jsonl\n"
                "penstock trainer replay then.jsonl",
    .opts = opts,
    .n_opts = sizeof opts / sizeof *opts};

int trainer_replay_run(int argc, char **argv)
{
    replay_opts o = {0};
    pst_verb_run v;
    trainer_recording r = {0};
    trainer_replay_result result = {0};
    int status = pst_verb_begin(&v, &trainer_replay_usage, argc, argv, &o, 0, 1);
    if (status >= 0)
        return status;
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    policy.platform_retries = (int)o.platform_retries;
    policy.silent_us = o.silent_us;
    policy.operators = o.operators ? o.operators : pst_account_name(NULL);
    policy.trust_gateway_roles = o.trust_gateway_roles;
    int rc = v.n_args ? trainer_recording_of_file(&r, v.args[0], &v.err) : trainer_recording_of_topics(&r, v.client, &v.err);
    if (!rc) {
        trainer_replay(&r, &policy, o.job, stdout, &result);
        printf("%zu records, %zu left out; %zu events as recorded, %zu different, %zu of jobs from before the recording\n", result.records,
               r.left_out, result.same, result.different, result.older);
    }
    trainer_recording_done(&r);
    status = pst_verb_end(&v, rc);
    return status ? status : result.different > 0;
}
