/* trainer_main.c - penstock trainer: config, wire, loop, drain. One is active, others stand by (standby.h): whoever loses its place, or is
 * fenced, begins anew in place of ending, because an outage does that to all of them at once. */
#include "trainer/trainer.h"

#include "common/base/clock.h"
#include "common/base/dump.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/base/settings.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "common/loop/http.h"
#include "common/platform/view.h"
#include "trainer/job_fsm.h"
#include "trainer/replay.h"
#include "trainer/shell.h"
#include "trainer/standby.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STANDBY_SAID_US = 5000000 }; /* joining the group takes a moment; longer than this, another one is active */

typedef struct trainer_opts {
    double cpus;
    int64_t memory_bytes, gpus, platform_retries, silent_us, half_life_us, port, keep_code_us;
    bool view, print_fsm, trust_gateway_roles;
    const char *operators, *stores;
} trainer_opts;

static const pst_opt opts[] = {
    {"cpus", 0, PST_OPT_DOUBLE, offsetof(trainer_opts, cpus), "N 0..1000000", "0",
     "CPUs of every node, in place of what its LCM reports; 0 = as reported"},
    {"memory", 0, PST_OPT_BYTES, offsetof(trainer_opts, memory_bytes), "SIZE", "0", "memory of every node, likewise"},
    {"gpus", 0, PST_OPT_INT, offsetof(trainer_opts, gpus), "N -1..100000", "-1", "GPUs of every node, likewise; -1 = as reported"},
    {"platform-retries", 0, PST_OPT_INT, offsetof(trainer_opts, platform_retries), "N 0..1000", "3",
     "new tries of a job after lost processes or failed deployments"},
    {"silent-after", 0, PST_OPT_SPAN, offsetof(trainer_opts, silent_us), "SPAN", "30s",
     "a node whose LCM has not reported for this long is silent: it gets no new jobs"},
    {"half-life", 0, PST_OPT_SPAN, offsetof(trainer_opts, half_life_us), "SPAN", "1d",
     "whose turn it is goes by what each queue's jobs have had, where the past counts half as much after this time"},
    {"operators", 0, PST_OPT_STR, offsetof(trainer_opts, operators), "NAMES", NULL,
     "users, comma-separated, who may halt, resume, end and delete everybody's jobs [the user who runs this Trainer]"},
    {"trust-gateway-roles", 0, PST_OPT_BOOL, offsetof(trainer_opts, trust_gateway_roles), NULL, NULL,
     "obey the operators of the gateway's --users as well: requests carry a mark (options.role), which whoever may write jobs.requests can "
     "set, so let the gateway alone do so (Kafka's ACLs)"},
    {"stores", 0, PST_OPT_STR, offsetof(trainer_opts, stores), "HOSTS", NULL,
     "S3 servers that jobs may name, comma-separated: host, host:port, *.domain; a job that names another is rejected [any]"},
    {"keep-code", 0, PST_OPT_SPAN, offsetof(trainer_opts, keep_code_us), "SPAN", "8d",
     "how long archives of submitted code stay in the object store that no job can use any more (none that waits, runs, or may be "
     "resumed); counted from when they were last put or submitted, so it must be longer than a request may lie unread; 0s = for ever"},
    {"port", 0, PST_OPT_INT, offsetof(trainer_opts, port), "PORT 0..65535", "0", "serve /health and /metrics on 127.0.0.1:PORT; 0 = not"},
    {"view", 0, PST_OPT_BOOL, offsetof(trainer_opts, view), NULL, "true", "keep the document store (--store) equal to the topics"},
    {"print-fsm", 0, PST_OPT_BOOL, offsetof(trainer_opts, print_fsm), NULL, NULL, "print the table of job states as Markdown and exit"},
};

static const pst_usage usage = {
    .verb = "trainer",
    .args = "",
    .summary = "admit, queue and remember jobs",
    .text =
        "Consumes job requests and the reports of LCMs and supervisors, decides, and publishes job events, states and commands, each "
        "round in\n"
        "one Kafka transaction. Keeps the document store, a view of the topics, equal to them.\n"
        "Jobs wait in queues (`penstock queues`): the queue that has had least for its weight goes first, in it priority, then time of\n"
        "submission. A job starts when its queue's quota and its whole gang fit; `penstock why ID` says for what it waits.\n"
        "One trainer is active; further ones stand by and take over when it ends.",
    .examples = "penstock trainer --cpus 8 --memory 16GiB\npenstock trainer --store mongodb://localhost/penstock --port 9101",
    .opts = opts,
    .n_opts = sizeof opts / sizeof *opts};

typedef struct trainer {
    pst_client *client;
    trainer_shell shell;
    trainer_standby standby;
    pst_view *view;
    pst_dump *dump;
} trainer;

/* Active until told to stop, the lock is lost, or a newer instance has taken over. */
static int be_active(trainer *t, const pst_batch *first, pst_err *err)
{
    pst_batch beats = *first;
    bool live = false; /* the heartbeats of the past are read */
    int rc = trainer_shell_activate(&t->shell, err);
    pst_log(PST_LOG_INFO, "trainer", "event=active");
    while (!rc && !pst_stop_requested() && trainer_standby_is_active(&t->standby)) {
        bool took = false;
        pst_dump_serve(t->dump);
        rc = trainer_shell_round(&t->shell, &beats, live, &took, err);
        if (rc || !took)
            continue;
        live = live || beats.eof;
        pst_err outage = {0};
        rc = pst_consumer_poll(t->standby.beats, &(pst_poll){.timeout_ms = 0}, &beats, &outage);
        if (rc < 0)
            *err = outage;
    }
    if (pst_stop_requested() || !trainer_standby_is_active(&t->standby)) /* whoever comes next need not wait for our session to end */
        pst_consumer_leave(t->shell.inputs);
    trainer_shell_deactivate(&t->shell);
    return rc;
}

static int loop(trainer *t, pst_err *err)
{
    bool said = false;
    int64_t since = pst_mono_us();
    int rc = trainer_standby_open(&t->standby, err);
    while (!rc && !pst_stop_requested()) {
        pst_batch beats = {0};
        pst_err outage = {0};
        pst_dump_serve(t->dump);
        rc = pst_consumer_poll(t->standby.beats, &(pst_poll){.timeout_ms = 200}, &beats, &outage);
        if (rc < 0) {
            *err = outage;
            if (pst_bus_reopens(rc, err))
                rc = trainer_standby_reopen(&t->standby, err);
        } else if (trainer_standby_is_active(&t->standby)) {
            rc = be_active(t, &beats, err);
            if (pst_bus_reopens(rc, err))
                rc = trainer_standby_reopen(&t->standby, err);
            said = false;
            since = pst_mono_us();
        } else if (!said && pst_mono_us() - since > STANDBY_SAID_US) {
            pst_log(PST_LOG_INFO, "trainer", "event=standby reason=\"another trainer is active, or the broker is away\"");
            said = true;
        }
    }
    return rc == PST_ESTOPPED && pst_stop_requested() ? 0 : rc;
}

static void fill_dump(void *arg, json_t *to)
{
    const trainer *t = arg;
    trainer_shell_dump(&t->shell, to);
}

/* What it tells about itself: counters where a port is given, its state there and at SIGUSR1. */
static int open_windows(trainer *t, int64_t port, pst_http_thread **ret_http, pst_err *err)
{
    int rc = pst_dump_new("trainer", fill_dump, t, &t->dump, err);
    if (rc < 0 || !port)
        return rc;
    rc = pst_http_thread_metrics(&(pst_http_conf){.port = (int)port, .name = "trainer"}, t->shell.metrics.set, NULL, NULL, ret_http, err);
    if (rc < 0)
        return rc;
    char *path = pst_token_path(t->client->settings->state_dir.value);
    pst_http_thread_set_dump(*ret_http, t->dump, path);
    free(path);
    return 0;
}

/* The folder's lock comes before the shell and the view: a second Trainer of the same state folder stands by until it is free. */
static int run(int argc, char **argv)
{
    trainer_opts o = {0};
    pst_verb_run v;
    trainer t = {0};
    pst_http_thread *http = NULL;
    if (argc > 1 && !strcmp(argv[1], "replay"))
        return trainer_replay_run(argc - 1, argv + 1);
    int status = pst_verb_begin(&v, &usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    if (o.print_fsm) {
        pst_buf text = {0};
        job_fsm_markdown(&text);
        fputs(text.data, stdout);
        pst_buf_done(&text);
        return pst_verb_end(&v, 0);
    }
    trainer_policy policy = {.cpus = o.cpus,
                             .memory_bytes = o.memory_bytes,
                             .gpus = (int)o.gpus,
                             .platform_retries = (int)o.platform_retries,
                             .silent_us = o.silent_us,
                             .half_life_us = o.half_life_us > 0 ? o.half_life_us : 1,
                             .operators = o.operators ? o.operators : pst_account_name(NULL),
                             .trust_gateway_roles = o.trust_gateway_roles};
    pst_random(policy.nonce_key, sizeof policy.nonce_key);
    t.client = v.client;
    t.standby = (trainer_standby){.client = v.client, .grouped = !v.settings.embedded};
    int rc = trainer_standby_lock_folder(v.client, &v.err);
    if (!rc)
        rc = trainer_shell_open(&t.shell, v.client, &policy, o.keep_code_us, o.stores, &v.err);
    if (!rc)
        rc = open_windows(&t, o.port, &http, &v.err);
    if (!rc && o.view)
        rc = pst_view_start(v.client, pst_setting_full(&v.settings.store), &t.view, &v.err);
    if (!rc)
        rc = loop(&t, &v.err);
    else if (rc == PST_ESTOPPED)
        rc = 0;
    pst_log(PST_LOG_INFO, "trainer", "event=ended");
    pst_http_thread_stop(http);
    pst_dump_free(t.dump);
    pst_view_stop(t.view);
    pst_consumer_leave(t.standby.beats);
    trainer_standby_close(&t.standby);
    if (t.shell.core)
        trainer_shell_close(&t.shell);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_trainer_verb = {"trainer", "admit, queue and remember jobs", "services", run, PST_USAGES(&usage, &trainer_replay_usage)};
