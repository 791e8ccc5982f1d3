/* supervise.c - the sequence of one run: STARTED, DOWNLOADING, RUNNING, STORING, RESULT_STORED, EXITED. How it ended is on disk before it is
 * published, so that whoever comes next (another supervisor, the LCM) says the same. The learner runs once; from the moment in which its model
 * may stand on the topic the rest can be taken up again by whoever comes next, and is, so that no end contradicts what was registered. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/retry.h"
#include "common/base/stop.h"
#include "lcm/supervisor/mpi.h"
#include "lcm/supervisor/stores.h"
#include "schemas/avro.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STORE_WAIT_MS = 2000, DISK_WAIT_MS = 1000 };

static void set_text(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text);
}

static void apply_stop(pst_rundir_exit *x, pst_rundir_stop_reason stop_reason)
{
    x->stop_reason = stop_reason;
    if (stop_reason == PST_STOP_REASON_PLATFORM_DOWN)
        set_text(x->reason_code, sizeof x->reason_code, "PLATFORM_DOWN");
}

/* What of the learner's end goes on record. A stop that nobody asked for (the computer is shut down) must not look like success, whatever
 * the command makes of its SIGTERM. */
static void describe(const sup_learner_end *end, pst_rundir_exit *x)
{
    static const char *const stops[] = {[PST_STOP_REASON_NONE] = "the platform was stopped",
                                        [PST_STOP_REASON_HALT] = "halted",
                                        [PST_STOP_REASON_KILL] = "ended on request",
                                        [PST_STOP_REASON_PLATFORM_DOWN] = "the platform was stopped"};
    char how[64] = "";
    x->has_exit_code = WIFEXITED(end->status);
    x->exit_code = x->has_exit_code ? WEXITSTATUS(end->status) : 0;
    x->has_signal = WIFSIGNALED(end->status);
    x->signal = x->has_signal ? WTERMSIG(end->status) : 0;
    if (x->has_signal)
        snprintf(how, sizeof how, "was ended by signal %d (%s)", x->signal, sigabbrev_np(x->signal) ? sigabbrev_np(x->signal) : "unknown");
    else
        snprintf(how, sizeof how, "exited with status %d", x->exit_code);
    bool bad = x->has_signal || x->exit_code;
    const char *stop = stops[end->stop_reason];
    if (end->stop_reason == PST_STOP_REASON_NONE && getenv("PENSTOCK_POD_IP"))
        stop = "its pod was deleted or evicted, and not by its LCM";
    if (end->stopped)
        snprintf(x->reason, sizeof x->reason, "%s: the command %s%s", stop, how, end->forced ? " after the grace time" : "");
    else if (bad && *end->limit)
        snprintf(x->reason, sizeof x->reason, "the command %s: %s", how, end->limit);
    else if (bad && *end->last_error)
        snprintf(x->reason, sizeof x->reason, "the command %s: %.190s", how, end->last_error);
    else if (bad)
        snprintf(x->reason, sizeof x->reason, "the command %s", how);
    if (bad && !end->stopped)
        set_text(x->reason_code, sizeof x->reason_code, "C201");
    if (end->stopped)
        apply_stop(x, end->stop_reason == PST_STOP_REASON_NONE ? PST_STOP_REASON_PLATFORM_DOWN : end->stop_reason);
}

static void describe_error(pst_rundir_exit *x, const char *code, const pst_err *err)
{
    set_text(x->reason_code, sizeof x->reason_code, code);
    set_text(x->reason, sizeof x->reason, err->text);
}

/* The end of a run whose command was done, and whose model could not be registered. Asked to end before that began: that is the end. */
static void describe_unstored(const sup_run *r, int rc, const pst_err *err, pst_rundir_exit *x)
{
    pst_rundir_stop_reason stop_reason = pst_rundir_stop_reason_read(r->dir);
    bool stopped = stop_reason != PST_STOP_REASON_NONE || pst_stop_requested();
    x->has_exit_code = false;
    if (stopped && (rc == PST_ESTOPPED || err->cls == PST_CLASS_RETRY)) {
        snprintf(x->reason, sizeof x->reason, "its model is not registered: %s", err->text);
        apply_stop(x, stop_reason == PST_STOP_REASON_NONE ? PST_STOP_REASON_PLATFORM_DOWN : stop_reason);
    } else {
        describe_error(x, "S303", err);
        apply_stop(x, stop_reason);
    }
}

static bool is_hurried(void *arg)
{
    return pst_stop_forced();
}

/* The command is done; what is left is to keep what it made. The broker or the store being away is waited through; only a bad model, or being
 * asked to stop, ends the attempts. PST_ESTOPPED: what became of a registration is not known, and the next supervisor finds out. */
static int store(sup_run *r, pst_rundir_exit *x)
{
    pst_err err = {0};
    int rc;
    sup_status_phase(r->status, SUP_PHASE_STORING);
    sup_run_report(r, PST_REPORT_TYPE_STORING, NULL);
    for (;;) {
        rc = sup_run_store_model(r, &err);
        if (rc >= 0 || err.cls != PST_CLASS_RETRY)
            break;
        sup_status_trouble(r->status, &err);
        if (!pst_retry(NULL, &err, STORE_WAIT_MS))
            break;
    }
    if (rc >= 0) /* what was registered is acknowledged before the end is on record: a successor that finds one says no more of it */
        return pst_rundir_registering(r->dir) ? sup_outlet_flush(r->outlet, is_hurried, NULL) : 0;
    if (pst_rundir_registering(r->dir) && (rc == PST_ESTOPPED || err.cls == PST_CLASS_RETRY))
        return PST_ESTOPPED;
    describe_unstored(r, rc, &err, x);
    return 0;
}

/* The steps up to the end of the work. Returns with *x filled, or PST_ESTOPPED: as store(). */
static int work(sup_run *r, const sup_output_limits *limits, pst_rundir_exit *x)
{
    x->has_exit_code = false;
    const char *code = "S104";
    pst_err err = {0};
    sup_learner_end end = {0};
    sup_run_report(r, PST_REPORT_TYPE_STARTED, NULL);
    int rc = sup_gang_open(r, &err); /* first of all: the others wait for this one's address */
    if (!rc) {
        sup_status_phase(r->status, SUP_PHASE_DOWNLOADING);
        sup_run_report(r, PST_REPORT_TYPE_DOWNLOADING, NULL);
        rc = sup_run_prepare(r, &code, &err);
    }
    if (!rc) {
        code = "S104";
        sup_status_phase(r->status, SUP_PHASE_MEETING);
        rc = sup_gang_meet(r, &err);
    }
    pst_rundir_stop_reason stop_reason = pst_rundir_stop_reason_read(r->dir);
    if (pst_stop_requested() || stop_reason != PST_STOP_REASON_NONE) {
        set_text(x->reason, sizeof x->reason, "stopped before the command was started");
        apply_stop(x, stop_reason == PST_STOP_REASON_NONE ? PST_STOP_REASON_PLATFORM_DOWN : stop_reason);
        return 0;
    }
    if (!rc) {
        code = "S104";
        sup_status_phase(r->status, SUP_PHASE_RUNNING);
        if (sup_mpi_waits(r)) {
            sup_run_report(r, PST_REPORT_TYPE_RUNNING, NULL);
            sup_outlet_begin(r->outlet);
            sup_mpi_wait(r, x);
            return 0;
        }
        rc = sup_learner_run(r, limits, &end, &err);
        if (rc == PST_EUNSUPPORTED)
            code = "S101";
    }
    if (rc < 0) {
        describe_error(x, code, &err);
        sup_run_say(r, "%s", err.text);
        return 0;
    }
    describe(&end, x);
    sup_run_keep_logs(r);
    return end.stopped || x->has_signal || x->exit_code ? 0 : store(r, x);
}

static bool asked_to_stop(void *arg)
{
    return pst_stop_requested();
}

/* Logs first, then the end: whoever sees the end has everything of the run. */
int sup_publish(const char *run_dir, sup_outlet *outlet, pst_err *err)
{
    pst_rundir_exit x;
    int rc = pst_rundir_exit_read(run_dir, &x, err);
    if (!rc)
        rc = sup_outlet_flush(outlet, asked_to_stop, NULL);
    if (rc < 0 || pst_rundir_published(run_dir))
        return rc;
    if (!x.lost) { /* LOST was reported by the LCM, which saw it */
        pst_str_pair details[] = {{(char *)"stop_reason", (char *)pst_rundir_stop_reason_name(x.stop_reason)}};
        sup_outlet_report(outlet, &(pst_process_report){.type = PST_REPORT_TYPE_EXITED,
                                                        .time = x.time_us,
                                                        .has_exit_code = x.has_exit_code,
                                                        .exit_code = x.exit_code,
                                                        .has_signal = x.has_signal,
                                                        .signal = x.signal,
                                                        .reason_code = *x.reason_code ? x.reason_code : NULL,
                                                        .reason = *x.reason ? x.reason : NULL,
                                                        .details = details,
                                                        .n_details = x.stop_reason != PST_STOP_REASON_NONE});
        rc = sup_outlet_flush(outlet, asked_to_stop, NULL);
    }
    return rc < 0 ? rc : pst_rundir_published_mark(run_dir, err);
}

/* The disk may be full just now: without this record nobody may say that it ended, so it is tried until it is there. Not pst_retry(): the
 * request to stop that ended the learner is no reason to give this up. */
static int write_exit(sup_run *r, const pst_rundir_exit *x, pst_err *err)
{
    while (pst_rundir_exit_write(r->dir, x, err) < 0) {
        pst_log_err("supervisor", err);
        sup_status_trouble(r->status, err);
        if (pst_stop_forced())
            return PST_EIO;
        pst_err_clear(err);
        pst_sleep_ms(DISK_WAIT_MS);
    }
    return 0;
}

/* Of a lost run the LCM has told the end already; its results are put all the same. */
int sup_finish(sup_run *r, pst_err *err)
{
    pst_rundir_exit x;
    bool changed = false;
    int rc = pst_rundir_exit_read(r->dir, &x, err);
    if (!rc && !pst_rundir_published(r->dir))
        rc = sup_run_put_results(r, &x, &changed, err);
    if (!rc && changed)
        rc = write_exit(r, &x, err);
    return rc < 0 ? rc : sup_publish(r->dir, r->outlet, err);
}

int sup_supervise(sup_run *r, const sup_output_limits *limits, pst_err *err)
{
    pst_rundir_exit x = {.has_exit_code = true};
    int rc = pst_rundir_registering(r->dir) ? store(r, &x) : work(r, limits, &x);
    sup_gang_close(&r->gang); /* the command is gone: what it was reached by is anybody's again */
    if (rc < 0)
        return rc;
    x.time_us = pst_now_us();
    rc = write_exit(r, &x, err);
    if (rc < 0)
        return rc;
    sup_status_phase(r->status, SUP_PHASE_PUBLISHING);
    pst_stop_reset(); /* the signal that ended the learner must not end the publishing; a further one does */
    return sup_finish(r, err);
}
