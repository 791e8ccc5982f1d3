/* lcm_shell.c - carries out what the core decides, each action at its time:
 *
 *     before the commit    INTEND, the record of a STOP: on disk, so that a crash after the commit finds them
 *     in the commit        REPORT, with the offsets of the commands that it follows from
 *     after the commit     START, STOP, ABANDON, END, MARK_ENDED, REMOVE: what cannot be taken back
 *
 * A process that was started before its commit could live without anybody's knowledge; one whose commit was aborted starts with the next. */
#include "lcm/lcm_shell.h"
#include "common/base/settings.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/retry.h"
#include "common/base/stop.h"
#include "lcm/advertise.h"
#include "lcm/commands.h"
#include "lcm/expected.h"
#include "lcm/lcm_core.h"
#include "lcm/membership.h"
#include "lcm/neighbours.h"
#include "lcm/rundirs.h"
#include "lcm/retention.h"
#include "schemas/manifest.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_US          200000
#define HEARTBEAT_US     5000000
#define LAST_WORD_MS     3000
#define FENCED_WINDOW_US 60000000
#define FENCED_MAX       5
#define HELD_WAIT_MS     5
#define RETENTION_US     600000000
#define ADOPT_WAIT_MS    20
#define ROUND_WAIT_MS    200 /* the registry is away, or the queue full */
#define BROKER_WAIT_MS   500
#define END_WAIT_MS      20
#define TYPES_MAX        16  /* of devices, in a heartbeat */
#define STALE_GROUPS_S   600 /* far longer than from making a group to joining it */

struct lcm_shell {
    lcm_shell_conf conf;
    lcm_core *core;
    void *launcher;
    const pst_inventory *inventory; /* the launcher's */
    int adopting;                   /* answers of the launcher that are still to come, at the start */
    bool asked;                     /* something that the launcher may answer at once */
    pst_consumer *consumer;
    pst_txn *txn;
    lcm_neighbours neighbours;
    pst_seal_key key;
    char seal_id[PST_SEAL_ID_MAX];
    pst_producer *side; /* heartbeats; reports while the site is being stopped */
    lcm_expected *expected;
    lcm_commands *commands;
    lcm_retention *retention;
    lcm_actions outbox;             /* REPORTs that are not committed */
    lcm_actions deferred;           /* what follows their commit */
    lcm_actions unwanted;           /* while comparing */
    const pst_job_command *command; /* being stepped, for INTEND */
    pst_map traces;                 /* training id → pst_trace: what its reports are a part of */
    char host[256], computer[LCM_COMPUTER_MAX];
    char *reporter, *worker_id;
    int64_t next_tick_us, next_heartbeat_us;
    int64_t fenced_us; /* monotonic: begin of the window in which these are counted */
    int fenced;
    bool compared; /* the Trainer's view was compared with ours */
};

/* ---- actions ----------------------------------------------------------------------------------------------------------------- */

static void feed(lcm_shell *s, lcm_event e);

static void push(lcm_actions *to, const lcm_action *x)
{
    *lcm_actions_add(to) = *x;
}

/* The first that is heard of a job counts: its DEPLOY, or what is on disk of that. A halt has one of its own. */
static void keep_trace(lcm_shell *s, const char *training_id, const pst_trace *of)
{
    if (!*of->text || pst_map_get(&s->traces, training_id))
        return;
    pst_trace *kept = pst_alloc(sizeof *kept);
    *kept = *of;
    pst_map_put(&s->traces, training_id, kept);
}

static void intend(lcm_shell *s, const lcm_action *a)
{
    const pst_trace *trace = pst_map_get(&s->traces, a->id.training_id);
    PST_ASSERT(s->command && s->command->spec); /* a DEPLOY is being followed */
    const pst_deploy_spec *d = s->command->spec;
    pst_err err = {0};
    pst_rundir_spec spec = {.training_id = (char *)a->id.training_id,
                            .generation = a->id.generation,
                            .site = (char *)s->conf.site,
                            .node = s->conf.node->name,
                            .state_dir = (char *)s->conf.state_dir,
                            .name = d->name,
                            .user = d->user,
                            .manifest = d->manifest,
                            .code_uri = d->code ? d->code->uri : NULL,
                            .code_sha256 = d->code ? d->code->sha256 : NULL,
                            .code_media_type = d->code ? d->code->media_type : NULL,
                            .learners = d->learners,
                            .cpus = d->cpus,
                            .gpus = d->gpus,
                            .memory_bytes = d->memory_bytes,
                            .grace_ms = d->grace_ms,
                            .floor = s->conf.floor,
                            .stores = (char *)s->conf.stores,
                            .address = (char *)(d->n_nodes ? s->conf.address : NULL),
                            .n_sets = a->command.n_sets,
                            .traceparent = trace ? (char *)trace->text : NULL};
    memcpy(spec.sets, a->command.sets, sizeof spec.sets);
    int rc = lcm_rundirs_intend(s->conf.state_dir, &spec, a->command.nonce, &err);
    if (rc < 0)
        pst_log_err("lcm", &err);
    feed(s, (lcm_event){.type = rc < 0 ? PST_LCM_INTENT_FAILED : PST_LCM_INTENDED, .id = a->id, .text = rc < 0 ? err.text : NULL});
}

/* Why it is to stop goes to disk before anything is committed; the signal follows the commit. */
static void record_stop(lcm_shell *s, const lcm_action *a)
{
    bool first = false;
    pst_err err = {0};
    if (lcm_rundirs_stop(s->conf.state_dir, &a->id, a->stop_reason, &first, &err) < 0) {
        pst_log_err("lcm", &err);
        first = true; /* without a record of it the signal has to do */
    }
    pst_log(PST_LOG_INFO, "lcm", "event=stop training_id=%s generation=%d process=%s stop_reason=%s", a->id.training_id, a->id.generation,
            a->id.process, pst_rundir_stop_reason_name(a->stop_reason));
    if (first)
        push(&s->deferred, a);
}

static void feed(lcm_shell *s, lcm_event e)
{
    lcm_actions a = {0};
    const char *before = pst_log_job(e.id.training_id);
    e.now_us = pst_mono_us(); /* grace is time that passes, whatever becomes of the clock */
    lcm_step(s->core, &e, &a);
    for (size_t i = 0; i < a.n; i++) {
        if (!a.at[i].exit.time_us)
            a.at[i].exit.time_us = pst_now_us();
        switch (a.at[i].type) {
        case PST_LCM_INTEND: intend(s, &a.at[i]); break;
        case PST_LCM_REPORT: push(&s->outbox, &a.at[i]); break;
        case PST_LCM_STOP: record_stop(s, &a.at[i]); break;
        default: push(&s->deferred, &a.at[i]); break;
        }
    }
    lcm_actions_done(&a);
    pst_log_job(before);
}

static void perform(lcm_shell *s, const lcm_action *a)
{
    const char *before = pst_log_job(a->id.training_id);
    const pst_launcher_ops *ops = s->conf.launcher;
    pst_err err = {0};
    int rc = 0;
    switch (a->type) {
    case PST_LCM_START:
        pst_log(PST_LOG_INFO, "lcm", "event=starting training_id=%s generation=%d process=%s", a->id.training_id, a->id.generation,
                a->id.process);
        ops->create(s->launcher, &a->id, &a->devices);
        s->asked = true;
        break;
    case PST_LCM_STOP:
    case PST_LCM_ABANDON: ops->stop(s->launcher, &a->id); break;
    case PST_LCM_END:
        ops->delete (s->launcher, &a->id, a->force);
        s->asked = true;
        break;
    case PST_LCM_MARK_ENDED: rc = lcm_rundirs_mark_ended(s->conf.state_dir, &a->id, &a->exit, &err); break;
    case PST_LCM_REMOVE:
        rc = lcm_rundirs_remove(s->conf.state_dir, a->id.training_id, &err);
        free(pst_map_take(&s->traces, a->id.training_id));
        break;
    default: break;
    }
    if (rc < 0)
        pst_log_err("lcm", &err);
    pst_log_job(before);
}

/* None of them adds to the queue: what becomes of a request is told by the launcher's poll, in a later round. */
static void perform_deferred(lcm_shell *s)
{
    for (size_t i = 0; i < s->deferred.n; i++)
        perform(s, &s->deferred.at[i]);
    s->deferred.n = 0;
}

/* ---- reports ----------------------------------------------------------------------------------------------------------------- */

static int encode_report(lcm_shell *s, const lcm_action *a, pst_buf *out, pst_err *err)
{
    static const enum pst_report_type types[] = {
        [PST_LCM_REPORT_DEPLOYING] = PST_REPORT_TYPE_DEPLOYING, [PST_LCM_REPORT_DEPLOY_FAILED] = PST_REPORT_TYPE_DEPLOY_FAILED,
        [PST_LCM_REPORT_EXITED] = PST_REPORT_TYPE_EXITED,       [PST_LCM_REPORT_LOST] = PST_REPORT_TYPE_LOST,
        [PST_LCM_REPORT_CLEANED] = PST_REPORT_TYPE_CLEANED,     [PST_LCM_REPORT_REFUSED] = PST_REPORT_TYPE_OTHER,
        [PST_LCM_REPORT_REMARK] = PST_REPORT_TYPE_OTHER};
    const pst_rundir_exit *x = &a->exit;
    pst_str_pair stop = {(char *)"stop_reason", (char *)pst_rundir_stop_reason_name(x->stop_reason)};
    pst_process_report r = {.training_id = (char *)a->id.training_id,
                            .generation = a->id.generation,
                            .process = *a->id.process ? (char *)a->id.process : NULL,
                            .type = types[a->report],
                            .time = x->time_us,
                            .reporter = s->reporter,
                            .node = s->conf.node->name,
                            .nonce = (char *)a->nonce,
                            .host = s->host,
                            .has_exit_code = x->has_exit_code,
                            .exit_code = x->exit_code,
                            .has_signal = x->has_signal,
                            .signal = x->signal,
                            .reason_code = *x->reason_code ? (char *)x->reason_code : NULL,
                            .reason = *x->reason ? (char *)x->reason : NULL,
                            .details = &stop,
                            .n_details = x->stop_reason != PST_STOP_REASON_NONE};
    return pst_codec_encode(s->conf.client->codec, &pst_process_report_type, pst_client_topic(s->conf.client, PST_TOPIC_JOBS_REPORTS), &r,
                            out, err);
}

/* All of the outbox by the transaction or, while the site is being stopped, by the side producer. */
static int send_outbox(lcm_shell *s, bool by_txn, pst_err *err)
{
    pst_buf value = {0};
    int rc = 0;
    for (size_t i = 0; i < s->outbox.n && !rc; i++) {
        const lcm_action *a = &s->outbox.at[i];
        pst_buf_clear(&value);
        rc = encode_report(s, a, &value, err);
        const pst_trace *of = pst_map_get(&s->traces, a->id.training_id);
        pst_trace trace = {0};
        pst_header header;
        pst_out out;
        if (of)
            pst_trace_child(of, &trace);
        pst_trace_out(&trace, pst_client_topic(s->conf.client, PST_TOPIC_JOBS_REPORTS), a->id.training_id, &value, &header, &out);
        if (!rc)
            rc = by_txn ? pst_txn_send(s->txn, &out, err) : pst_producer_send(s->side, &out, err);
    }
    pst_buf_done(&value);
    return rc;
}

/* ---- commands ---------------------------------------------------------------------------------------------------------------- */

static lcm_event to_event(const lcm_shell *s, const pst_job_command *c)
{
    static const pst_lcm_command_kind kinds[] = {[PST_JOB_COMMAND_TYPE_DEPLOY] = PST_LCM_DEPLOY,
                                                 [PST_JOB_COMMAND_TYPE_HALT] = PST_LCM_HALT,
                                                 [PST_JOB_COMMAND_TYPE_KILL] = PST_LCM_KILL,
                                                 [PST_JOB_COMMAND_TYPE_CLEAN] = PST_LCM_CLEAN,
                                                 [PST_JOB_COMMAND_TYPE_CHECK] = PST_LCM_CHECK};
    lcm_event e = {
        .type = PST_LCM_COMMAND, .id = pst_process_id_of(c->training_id, c->generation, NULL), .command = {.kind = kinds[c->command]}};
    snprintf(e.command.nonce, sizeof e.command.nonce, "%s", c->nonce);
    if (c->command != PST_JOB_COMMAND_TYPE_DEPLOY)
        return e;
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(c->spec->manifest, strlen(c->spec->manifest), &m, &errors,
                       &warnings); /* the supervisor says what is wrong with it */
    lcm_membership_sets(&m, c->spec, s->conf.node->name, &e.command);
    e.command.grace_ms = c->spec->grace_ms;
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return e;
}

static void drain_node(lcm_shell *s, bool draining)
{
    pst_err err = {0};
    if (lcm_node_id_drain(s->conf.node, draining, &err) < 0)
        pst_log_err("lcm", &err);
    pst_log(PST_LOG_INFO, "lcm", "event=%s node=%s", draining ? "draining" : "accepting", s->conf.node->name);
    s->next_heartbeat_us = 0; /* said at once */
}

static void on_command(void *arg, const pst_job_command *c, const pst_trace *of)
{
    lcm_shell *s = arg;
    if (c->command == PST_JOB_COMMAND_TYPE_DRAIN || c->command == PST_JOB_COMMAND_TYPE_ACCEPT) {
        drain_node(s, c->command == PST_JOB_COMMAND_TYPE_DRAIN);
        return;
    }
    if (c->command == PST_JOB_COMMAND_TYPE_DEPLOY)
        keep_trace(s, c->training_id, of);
    pst_log(PST_LOG_DEBUG, "lcm", "event=command training_id=%s generation=%d command=%s", c->training_id, c->generation,
            pst_job_command_type_text(c->command));
    s->command = c;
    feed(s, to_event(s, c));
    s->command = NULL;
}

/* In the folder of its generation, where its supervisors wait for it. A generation that is not here, or not any more, needs none. */
static bool on_members(void *arg, const char *training_id, int generation, const pst_members *members, int tries)
{
    lcm_shell *s = arg;
    pst_err err = {0};
    if (lcm_generation(s->core, training_id) != generation)
        return true;
    if (lcm_rundirs_members(s->conf.state_dir, training_id, generation, members, &err) == 0)
        return true;
    pst_log_err("lcm", &err);
    if (!tries) { /* once; the Trainer ends the gang when that lasts */
        lcm_action x = {.type = PST_LCM_REPORT,
                        .id = pst_process_id_of(training_id, generation, NULL),
                        .report = PST_LCM_REPORT_REFUSED,
                        .exit.time_us = pst_now_us()};
        pst_rundir_nonce_read(s->conf.state_dir, training_id, generation, x.nonce);
        snprintf(x.exit.reason, sizeof x.exit.reason, "node %s cannot write the list of the gang's members, and tries again: %.300s",
                 s->conf.node->name, err.text);
        push(&s->outbox, &x);
    }
    return false;
}

static bool is_needed(void *arg, const char *training_id, int generation)
{
    const lcm_shell *s = arg;
    return lcm_is_busy(s->core, training_id) || lcm_expected_wants(s->expected, training_id, generation);
}

static void on_swept(void *arg, const char *training_id, int generation)
{
    lcm_shell *s = arg;
    lcm_forget(s->core, training_id, generation);
}

static int generation_here(void *arg, const char *training_id)
{
    lcm_shell *s = arg;
    return lcm_generation(s->core, training_id);
}

static int no_other_here(void *arg)
{
    lcm_shell *s = arg;
    return lcm_neighbours_alone(&s->neighbours);
}

/* For whoever looks into it: the topic keeps what was refused. The Trainer concludes nothing from it. */
static void on_refused(void *arg, const pst_job_command *c, const char *reason)
{
    lcm_shell *s = arg;
    lcm_action x = {.type = PST_LCM_REPORT,
                    .id = pst_process_id_of(c->training_id, c->generation, NULL),
                    .report = PST_LCM_REPORT_REFUSED,
                    .exit.time_us = pst_now_us()};
    snprintf(x.exit.reason, sizeof x.exit.reason, "node %s refused a %s: %s", s->conf.node->name, pst_job_command_type_text(c->command),
             reason);
    push(&s->outbox, &x);
}

/* One transaction around what was polled and what waits. */
static int commit_round(lcm_shell *s, const pst_batch *b, pst_err *err)
{
    int rc = pst_txn_begin(s->txn, err);
    if (rc < 0)
        return rc;
    size_t done = 0;
    for (; done < b->n; done++) {
        const pst_record *r = &b->records[done];
        if ((rc = lcm_commands_take(s->commands, r, err)) < 0)
            break;
        pst_txn_owes(s->txn, r);
        pst_consumer_mark(s->consumer, r->topic, r->partition, r->offset + 1);
    }
    if (!rc)
        rc = send_outbox(s, true, err);
    if (rc < 0) { /* the registry is away, or the queue is full: everything again */
        pst_retry("lcm", err, ROUND_WAIT_MS);
        pst_err_clear(err);
        return pst_txn_abort(s->txn, err);
    }
    rc = pst_txn_commit(s->txn, err);
    if (rc < 0)
        return rc;
    s->outbox.n = 0;
    perform_deferred(s);
    return 0;
}

/* ---- time -------------------------------------------------------------------------------------------------------------------- */

static void log_news(const pst_launcher_news *n)
{
    const pst_process_id *id = &n->process;
    if (n->type == PST_LAUNCHER_FOUND && n->seen == PST_LCM_SEEN_ALIVE)
        pst_log(PST_LOG_INFO, "lcm", "event=adopted training_id=%s generation=%d process=%s", id->training_id, id->generation, id->process);
    else if (n->type == PST_LAUNCHER_NOT_CREATED)
        pst_log(PST_LOG_ERROR, "lcm", "event=not_started training_id=%s generation=%d process=%s reason=\"%s\"", id->training_id,
                id->generation, id->process, n->why);
    else if (n->type == PST_LAUNCHER_GONE)
        pst_log(PST_LOG_WARN, "lcm", "event=ended_by_force training_id=%s generation=%d process=%s", id->training_id, id->generation,
                id->process);
}

/* People are told, by the job's events; nothing is decided from it. */
static void remark(lcm_shell *s, const pst_launcher_news *n)
{
    lcm_action x = {.type = PST_LCM_REPORT, .id = n->process, .report = PST_LCM_REPORT_REMARK, .exit.time_us = pst_now_us()};
    pst_rundir_nonce_read(s->conf.state_dir, n->process.training_id, n->process.generation, x.nonce);
    snprintf(x.exit.reason, sizeof x.exit.reason, "%s", n->why);
    snprintf(x.exit.reason_code, sizeof x.exit.reason_code, "%s", n->exit.reason_code);
    pst_log(PST_LOG_INFO, "lcm", "event=waits training_id=%s generation=%d process=%s reason=\"%s\"", n->process.training_id,
            n->process.generation, n->process.process, n->why);
    push(&s->outbox, &x);
}

static void on_news(void *arg, const pst_launcher_news *n)
{
    static const lcm_event_type types[] = {[PST_LAUNCHER_FOUND] = PST_LCM_FOUND_PROCESS,
                                           [PST_LAUNCHER_CHANGED] = PST_LCM_NOTICED,
                                           [PST_LAUNCHER_NOT_CREATED] = PST_LCM_START_FAILED,
                                           [PST_LAUNCHER_GONE] = PST_LCM_EMPTIED};
    lcm_shell *s = arg;
    if (n->type == PST_LAUNCHER_WAITS) {
        remark(s, n);
        return;
    }
    PST_ASSERT(n->type >= PST_LAUNCHER_FOUND && n->type <= PST_LAUNCHER_GONE);
    PST_ASSERT(n->type != PST_LAUNCHER_FOUND || s->adopting > 0); /* each adopt is answered once */
    s->adopting -= n->type == PST_LAUNCHER_FOUND;
    log_news(n);
    feed(s, (lcm_event){.type = types[n->type],
                        .id = n->process,
                        .seen = n->seen,
                        .exit = n->seen == PST_LCM_SEEN_ENDED ? &n->exit : NULL,
                        .published = n->published,
                        .stop_reason = n->stop_reason,
                        .devices = &n->devices,
                        .text = n->why});
}

static void poll_launcher(lcm_shell *s)
{
    s->asked = false;
    s->conf.launcher->poll(s->launcher, on_news, s);
}

/* The kinds of devices that there are, each once; borrowed. */
static size_t device_types(const pst_inventory *v, char *ret_types[TYPES_MAX])
{
    size_t n = 0;
    for (int i = 0; i < v->n_devices; i++) {
        bool known = !*v->devices[i].type;
        for (size_t k = 0; k < n && !known; k++)
            known = !strcmp(ret_types[k], v->devices[i].type);
        if (!known && n < TYPES_MAX)
            ret_types[n++] = v->devices[i].type;
    }
    return n;
}

/* How the node is, for the Trainer's queue and for people. By the side producer: it must go out while transactions cannot. */
static void heartbeat(lcm_shell *s, const char *state)
{
    int counts[3];
    char texts[3][16];
    static const char *const names[] = {"jobs", "processes", "gpus_in_use"};
    pst_str_pair details[] = {[3] = {(char *)PST_SEAL_DETAIL, s->seal_id},
                              {(char *)PST_ADDRESS_DETAIL, (char *)s->conf.address},
                              {(char *)PST_COMPUTER_DETAIL, s->computer},
                              {(char *)PST_YIELDS_DETAIL, (char *)"yes"},
                              {(char *)PST_ISOLATION_DETAIL, (char *)pst_isolation_name(s->conf.floor)}};
    char *types[TYPES_MAX];
    size_t n_types = device_types(s->inventory, types);
    lcm_counts(s->core, counts);
    for (int i = 0; i < 3; i++) {
        snprintf(texts[i], sizeof texts[i], "%d", counts[i]);
        details[i] = (pst_str_pair){(char *)names[i], texts[i]};
    }
    pst_worker_state w = {.worker_id = s->worker_id,
                          .kind = (char *)"lcm",
                          .site = (char *)s->conf.site,
                          .host = s->host,
                          .time = pst_now_us(),
                          .node = s->conf.node->name,
                          .epoch = s->conf.node->epoch,
                          .state = (char *)(s->conf.node->draining && !strcmp(state, "running") ? "draining" : state),
                          .cpus = s->inventory->cpus * s->conf.overcommit,
                          .memory_bytes = s->inventory->memory_bytes,
                          .gpus = s->inventory->n_devices,
                          .gpu_types = types,
                          .n_gpu_types = n_types,
                          .version = (char *)PST_VERSION,
                          .details = details,
                          .n_details = sizeof details / sizeof *details - (s->conf.floor == PST_ISOLATION_DEFAULT)};
    const char *topic = pst_client_topic(s->conf.client, PST_TOPIC_WORKERS);
    pst_buf value = {0};
    pst_err err = {0};
    int rc = pst_codec_encode(s->conf.client->codec, &pst_worker_state_type, topic, &w, &value, &err);
    if (!rc && pst_producer_pending(s->side) < 10) /* during an outage the latest few are enough */
        rc = pst_producer_send(s->side,
                               &(pst_out){.topic = topic,
                                          .partition = -1,
                                          .key = s->worker_id,
                                          .key_len = strlen(s->worker_id),
                                          .value = value.data,
                                          .value_len = value.len},
                               &err);
    if (rc < 0)
        pst_log_err("lcm", &err);
    pst_buf_done(&value);
}

static void tick(lcm_shell *s, const char *state)
{
    int64_t now = pst_mono_us();
    poll_launcher(s);
    if (now >= s->next_tick_us) {
        s->next_tick_us = now + TICK_US;
        if (s->compared)
            lcm_retention_step(s->retention, now, pst_now_us());
        feed(s, (lcm_event){.type = PST_LCM_TICK});
    }
    if (s->side && now >= s->next_heartbeat_us) {
        s->next_heartbeat_us = now + HEARTBEAT_US;
        heartbeat(s, state);
        s->neighbours.since_us = s->neighbours.since_us ? s->neighbours.since_us : now;
    }
    if (s->side)
        pst_producer_poll(s->side, 0);
}

static void on_expected(void *arg, const char *training_id, int generation)
{
    feed(arg, (lcm_event){.type = PST_LCM_EXPECTED, .id = pst_process_id_of(training_id, generation, NULL)});
}

static void on_living(void *arg, const char *training_id, int generation)
{
    lcm_shell *s = arg;
    bool halt = false, fenced = lcm_expected_fences(s->expected, training_id, generation);
    if (!fenced && !lcm_expected_stops(s->expected, training_id, generation, &halt))
        return;
    push(&s->unwanted, &(lcm_action){.id = pst_process_id_of(training_id, generation, NULL),
                                     .force = fenced,
                                     .stop_reason = halt ? PST_STOP_REASON_HALT : PST_STOP_REASON_KILL});
}

/* Both ways: what should live here and does not; what lives here and was given up while we were silent, or should be ending. */
static void compare(lcm_shell *s)
{
    lcm_expected_each(s->expected, on_expected, s);
    lcm_each_living(s->core, on_living, s);
    for (size_t i = 0; i < s->unwanted.n; i++) {
        const lcm_action *x = &s->unwanted.at[i];
        pst_log(PST_LOG_WARN, "lcm", "event=%s training_id=%s generation=%d reason=\"%s\"", x->force ? "fenced" : "stopped",
                x->id.training_id, x->id.generation,
                x->force ? "it was given up while this node was silent; what is left of it is ended"
                         : "the Trainer's state of it says so, whether the command came through or not");
        feed(s, (lcm_event){.type = PST_LCM_COMMAND,
                            .id = x->id,
                            .command = {.kind = x->stop_reason == PST_STOP_REASON_HALT ? PST_LCM_HALT : PST_LCM_KILL}});
    }
    lcm_actions_done(&s->unwanted);
}

/* A group, a member and a transactional id of its own for each node. Static membership: a restarted LCM takes the place of its dead predecessor at once instead of waiting for its session to time out. */
static int open_input(lcm_shell *s, pst_err *err)
{
    const pst_client *c = s->conf.client;
    const char *topic = pst_client_topic(c, PST_TOPIC_JOBS_COMMANDS);
    char *group = pst_sprintf("%slcm.%s.%s", c->settings->prefix.value, s->conf.site, s->conf.node->name);
    pst_consumer_opts opts = {
        .group = group, .topics = &topic, .n_topics = 1, .start = PST_START_EARLIEST, .instance_id = s->conf.at_least_once ? NULL : group};
    int rc = pst_consumer_new(c->bus, &opts, &s->consumer, err);
    if (!rc)
        rc = pst_txn_new(c->bus, group, s->conf.at_least_once ? PST_TXN_AT_LEAST_ONCE : PST_TXN_EXACTLY_ONCE, s->consumer, &s->txn, err);
    if (!rc)
        pst_txn_expect(s->txn, pst_client_topic(c, PST_TOPIC_JOBS_REPORTS));
    free(group);
    return rc;
}

static void close_input(lcm_shell *s)
{
    pst_txn_free(s->txn);
    s->txn = NULL;
    pst_consumer_free(s->consumer);
    s->consumer = NULL;
}

/* Who holds the lock of its node's folder has no rival: being fenced comes from our own shadow (a request of ours that was answered while
 * we thought it lost). We come back under the same name; only if that happens again and again there is a copy of this state folder. So we do
 * when the consumer's position is not known any more: a node does not leave its jobs because a broker was away for long. */
static int come_back(lcm_shell *s, int why, pst_err *err)
{
    int64_t now = pst_mono_us();
    if (now - s->fenced_us > FENCED_WINDOW_US) {
        s->fenced_us = now;
        s->fenced = 0;
    }
    if (why == PST_EFENCED && ++s->fenced > FENCED_MAX) {
        pst_err_prefix(err, "another LCM runs as node %s of site %s (a copy of the state folder %s?)", s->conf.node->name, s->conf.site,
                       s->conf.state_dir);
        return PST_EFENCED;
    }
    pst_log_err("lcm", err);
    pst_err_clear(err);
    close_input(s);
    return open_input(s, err);
}

/* What lives is looked after before anything is said: news from the launcher need no broker. A round without commands or reports needs no
 * transaction, and most have none. */
int lcm_shell_round(lcm_shell *s, int timeout_ms, pst_err *err)
{
    pst_batch b;
    int wait_ms = timeout_ms;
    if (s->outbox.n || s->deferred.n || s->asked)
        wait_ms = 0;
    else if (lcm_commands_young(s->commands))
        wait_ms = HELD_WAIT_MS;
    int rc = pst_consumer_poll(s->consumer, &(pst_poll){.records_max = 100, .timeout_ms = wait_ms}, &b, err);
    if (pst_bus_reopens(rc, err))
        return come_back(s, rc, err);
    if (rc < 0)
        return rc;
    if (err->cls == PST_CLASS_RETRY) {
        pst_log_err("lcm", err);
        pst_err_clear(err);
    }
    tick(s, "running");
    lcm_expected_poll(s->expected);
    lcm_expected_members(s->expected, on_members, s);
    lcm_commands_again(s->commands);
    if (!s->compared && !b.n && pst_consumer_at_end(s->consumer) && !lcm_commands_held(s->commands)) {
        s->compared = true; /* caught up: what the Trainer thinks lives here must be known now */
        compare(s);
    }
    if (!b.n && !s->outbox.n && s->deferred.n) { /* nothing to say about it: no transaction needed */
        perform_deferred(s);
        return 0;
    }
    if (b.n || s->outbox.n)
        rc = commit_round(s, &b, err);
    if (rc != PST_EAGAIN && pst_bus_reopens(rc, err))
        return come_back(s, rc, err);
    if (rc == PST_EAGAIN) {
        pst_err_clear(err);
        rc = 0;
    }
    return rc;
}

/* Starts that wait for their commit are withdrawn first: from here on nothing is to begin. */
int lcm_shell_stop_site(lcm_shell *s, pst_err *err)
{
    lcm_actions never = {0};
    for (size_t i = 0; i < s->deferred.n; i++) /* their commit did not come; now they must not start any more */
        if (s->deferred.at[i].type == PST_LCM_START)
            push(&never, &s->deferred.at[i]);
    size_t kept = 0;
    for (size_t i = 0; i < s->deferred.n; i++)
        if (s->deferred.at[i].type != PST_LCM_START)
            s->deferred.at[kept++] = s->deferred.at[i];
    s->deferred.n = kept;
    feed(s, (lcm_event){.type = PST_LCM_STOP_SITE});
    for (size_t i = 0; i < never.n; i++)
        feed(s, (lcm_event){.type = PST_LCM_NOTICED, .id = never.at[i].id, .seen = PST_LCM_SEEN_ABSENT});
    lcm_actions_done(&never);
    while (!lcm_idle(s->core) || s->deferred.n || s->outbox.n) {
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_NONE, "lcm", 0, "asked to stop before every process of the site had ended");
        tick(s, "draining");
        if (s->outbox.n && s->side && send_outbox(s, false, err) == 0)
            s->outbox.n = 0;
        if (s->outbox.n && lcm_idle(s->core)) { /* nobody takes the reports: the next LCM of the site finds what there is to say */
            pst_log_err("lcm", err);
            break;
        }
        pst_err_clear(err);
        perform_deferred(s);
        pst_sleep_ms(END_WAIT_MS);
    }
    if (s->side)
        pst_producer_flush(s->side, LAST_WORD_MS, NULL);
    return 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------------------- */

static void on_found(void *arg, const pst_rundir_spec *intent, const char *nonce)
{
    lcm_shell *s = arg;
    lcm_event e = {.type = PST_LCM_FOUND_GANG,
                   .id = pst_process_id_of(intent->training_id, intent->generation, NULL),
                   .command = {.kind = PST_LCM_DEPLOY, .n_sets = intent->n_sets, .grace_ms = intent->grace_ms}};
    memcpy(e.command.sets, intent->sets, sizeof e.command.sets);
    snprintf(e.command.nonce, sizeof e.command.nonce, "%s", nonce);
    pst_trace of;
    if (pst_trace_parse(intent->traceparent, intent->traceparent ? strlen(intent->traceparent) : 0, &of))
        keep_trace(s, intent->training_id, &of);
    feed(s, e);
    for (int i = 0, n = pst_process_sets_count(intent->sets, intent->n_sets); i < n && i < 2 * PST_LCM_LEARNERS_MAX; i++) {
        pst_process_id id = e.id;
        pst_process_sets_name(intent->sets, intent->n_sets, i, id.process);
        s->adopting++;
        s->conf.launcher->adopt(s->launcher, &id);
    }
    poll_launcher(s); /* those that answer at once do so one generation after the other, not all in memory */
}

/* What lives is asked for before anything is decided: a process that the launcher has not answered for yet must not pass for one that never
 * started. */
static int recover(lcm_shell *s, pst_err *err)
{
    int rc = lcm_rundirs_scan(s->conf.state_dir, s->conf.site, on_found, s, err);
    for (bool said = false; s->adopting > 0 && !rc; said = true) {
        if (!said)
            pst_log(PST_LOG_INFO, "lcm", "event=waiting launcher=%s answers=%d", s->conf.launcher->name, s->adopting);
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_NONE, "lcm", 0, "asked to stop before the launcher had said what lives");
        pst_sleep_ms(ADOPT_WAIT_MS);
        poll_launcher(s);
    }
    feed(s, (lcm_event){.type = PST_LCM_RECOVERED});
    return rc;
}

int lcm_shell_open(const lcm_shell_conf *conf, lcm_shell **ret_shell, pst_err *err)
{
    lcm_shell *s = pst_alloc(sizeof *s);
    s->conf = *conf;
    gethostname(s->host, sizeof s->host - 1);
    s->reporter = pst_sprintf("lcm:%s", conf->node->name);
    s->worker_id = pst_sprintf("lcm.%s", conf->node->name);
    int rc = pst_seal_key_make(conf->state_dir, &s->key, err);
    pst_seal_key_id(&s->key, s->seal_id);
    if (!rc)
        rc = conf->launcher->open(&(pst_launcher_conf){.state_dir = conf->state_dir,
                                                       .environ = conf->environ,
                                                       .site = conf->site,
                                                       .node = conf->node->name,
                                                       .objects = conf->client->settings->objects.value,
                                                       .kubernetes = conf->kubernetes},
                                  &s->launcher, err);
    if (!rc) {
        s->inventory = conf->launcher->inventory(s->launcher);
        s->core = lcm_new(s->inventory->n_devices);
        rc = recover(s, err);
    }
    if (rc < 0) {
        lcm_shell_close(s);
        return rc;
    }
    *ret_shell = s;
    return 0;
}

/* The states are read before the first command is: by them alone a command can be judged. */
int lcm_shell_connect(lcm_shell *s, pst_err *err)
{
    pst_client *c = s->conf.client;
    int rc = pst_producer_new(c->bus, &(pst_producer_opts){.linger_ms = 0}, &s->side, err);
    while (!rc && (rc = lcm_expected_open(c, s->conf.node->name, &s->expected, err)) < 0 && err->cls == PST_CLASS_RETRY) {
        if (!pst_retry("lcm", err, BROKER_WAIT_MS)) {
            pst_err_clear(err);
            return PST_ESTOPPED;
        }
        tick(s, "running"); /* what lives is looked after meanwhile */
        perform_deferred(s);
        rc = 0;
    }
    int stale = rc ? 0 : pst_cgroup_remove_stale(PST_RUN_CGROUP_PREFIX, STALE_GROUPS_S);
    if (stale)
        pst_log(PST_LOG_INFO, "lcm", "event=control_groups_removed count=%d reason=\"empty, and their folders were wiped\"", stale);
    if (!rc)
        s->retention = lcm_retention_new(&(lcm_retention_conf){.state_dir = s->conf.state_dir,
                                                               .site = s->conf.site,
                                                               .keep_us = s->conf.keep_ended_us,
                                                               .bytes_max = s->conf.keep_ended_bytes,
                                                               .every_us = RETENTION_US,
                                                               .needed = is_needed,
                                                               .swept = on_swept,
                                                               .arg = s});
    s->neighbours.client = c;
    s->neighbours.site = s->conf.site;
    s->neighbours.node = s->conf.node->name;
    if (!rc)
        s->commands = lcm_commands_new(&(lcm_commands_conf){.client = c,
                                                            .site = s->conf.site,
                                                            .node = s->conf.node->name,
                                                            .key = &s->key,
                                                            .expected = s->expected,
                                                            .generation = generation_here,
                                                            .alone = no_other_here,
                                                            .follow = on_command,
                                                            .refused = on_refused,
                                                            .arg = s});
    if (!rc)
        rc = open_input(s, err);
    return rc;
}

static void add_living(void *arg, const char *training_id, int generation)
{
    json_array_append_new(arg, json_pack("{s:s, s:i}", "training_id", training_id, "generation", generation));
}

void lcm_shell_dump(void *arg, json_t *to)
{
    const lcm_shell *s = arg;
    int counts[3];
    json_t *living = json_array();
    lcm_counts(s->core, counts);
    lcm_each_living(s->core, add_living, living);
    json_object_set_new(to, "site", json_string(s->conf.site));
    json_object_set_new(to, "node", json_string(s->conf.node->name));
    json_object_set_new(to, "connected", json_boolean(s->consumer != NULL));
    json_object_set_new(to, "compared_with_trainer", json_boolean(s->compared));
    json_object_set_new(to, "launcher_answers_awaited", json_integer(s->adopting));
    json_object_set_new(to, "reports_not_committed", json_integer((json_int_t)s->outbox.n));
    json_object_set_new(to, "heartbeats_not_acknowledged", json_integer(s->side ? (json_int_t)pst_producer_pending(s->side) : 0));
    json_object_set_new(to, "actions_after_commit", json_integer((json_int_t)s->deferred.n));
    json_object_set_new(to, "jobs_known", json_integer(counts[0]));
    json_object_set_new(to, "processes", json_integer(counts[1]));
    json_object_set_new(to, "devices_in_use", json_integer(counts[2]));
    json_object_set_new(to, "generations", living);
}

void lcm_shell_close(lcm_shell *s)
{
    if (!s)
        return;
    if (s->side) {
        heartbeat(s, "stopped");
        pst_producer_flush(s->side, LAST_WORD_MS, NULL);
    }
    close_input(s);
    pst_producer_free(s->side);
    lcm_retention_free(s->retention);
    lcm_commands_free(s->commands);
    lcm_expected_free(s->expected);
    lcm_actions_done(&s->outbox);
    lcm_actions_done(&s->deferred);
    lcm_free(s->core);
    pst_map_done(&s->traces, free);
    s->conf.launcher->close(s->launcher);
    free(s->reporter);
    free(s->worker_id);
    free(s);
}
