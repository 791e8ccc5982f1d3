/* supervise_main.c - penstock supervise: config, wire, run, drain of the process that an LCM starts beside each learner, in a session of its own,
 * so that neither the LCM's end nor a terminal's reaches it. A run dir has one supervisor (its lock); one that comes to a run that has ended
 * publishes what its predecessor could not. */
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/address.h"
#include "common/base/proc.h"
#include "common/base/stop.h"
#include "common/base/clock.h"
#include "lcm/supervisor/install.h"
#include "lcm/supervisor/keeper.h"
#include "lcm/supervisor/run.h"
#include "lcm/supervisor/sink_kafka.h"
#include "lcm/supervisor/status.h"
#include "lcm/supervisor/stores.h"
#include "lcm/supervisor/supervise_opts.h"
#include "lcm/supervisor/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BEGIN_MS = 100, /* a start that is quick is not held up by connecting to Kafka; one that downloads says so soon */
    OBJECTS_PATIENCE_MS = 600000
};

/* A run that cannot even begin ends on record, so that the Trainer hears why. */
static void end_unbegun(const char *dir, const char *code, const pst_err *why)
{
    pst_rundir_exit x = {.stop_reason = pst_rundir_stop_reason_read(dir), .time_us = pst_now_us()};
    pst_err err = {0};
    snprintf(x.reason_code, sizeof x.reason_code, "%s", code);
    snprintf(x.reason, sizeof x.reason, "%s", why->text);
    if (pst_rundir_exit_write(dir, &x, &err) < 0)
        pst_log_err("supervisor", &err);
}

/* Where the LCM's folder is not to be seen, it came with the settings. Nothing that is started from here is to find it. */
static void read_nonce(const pst_rundir_spec *spec, char ret_nonce[PST_RUNDIR_NONCE_MAX])
{
    const char *given = getenv("PENSTOCK_RUN_NONCE");
    pst_rundir_nonce_read(spec->state_dir, spec->training_id, spec->generation, ret_nonce);
    if (!*ret_nonce && given)
        snprintf(ret_nonce, PST_RUNDIR_NONCE_MAX, "%s", given);
    unsetenv("PENSTOCK_RUN_NONCE");
}

static int open_outlet(const supervise_opts *o, const pst_rundir_spec *spec, pst_client *client, sup_outlet **ret_outlet, pst_err *err)
{
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    char *reporter = pst_sprintf("supervisor:%s", host), nonce[PST_RUNDIR_NONCE_MAX];
    read_nonce(spec, nonce);
    sup_outlet_conf conf = {.run_dir = o->run_dir,
                            .training_id = spec->training_id,
                            .process = spec->process,
                            .generation = spec->generation,
                            .reporter = reporter,
                            .host = host,
                            .node = spec->node,
                            .nonce = nonce,
                            .spool_bytes_max = o->spool_bytes,
                            .begin_ms = BEGIN_MS,
                            .sink = sup_sink_kafka(client)};
    int rc = sup_outlet_open(&conf, ret_outlet, err);
    free(reporter);
    return rc;
}

/* Whatever keeps a run from beginning becomes its end, on record and published: a supervisor that only exits leaves a job that nobody explains. */
static int supervise(const supervise_opts *o, const pst_settings *settings, const pst_rundir_spec *spec, sup_status *status, pst_err *err)
{
    pst_client *client = NULL;
    pst_objects *objects = NULL;
    sup_outlet *outlet = NULL;
    sup_run run = {0};
    pst_rundir_exit x;
    pst_err why = {0};
    char *id = pst_sprintf("penstock-supervise-%s", spec->process);
    int rc = pst_client_open(settings, id, &client, err);
    if (!rc)
        pst_trace_parse(spec->traceparent, spec->traceparent ? strlen(spec->traceparent) : 0, &client->trace);
    if (!rc)
        rc = open_outlet(o, spec, client, &outlet, err);
    free(id);
    if (rc < 0)
        goto out;
    sup_status_outlet(status, outlet);
    bool ended = pst_rundir_exit_read(o->run_dir, &x, NULL) != PST_ENOTFOUND; /* else all of it, or the rest from the model on */
    if (pst_objects_open(settings->objects.value, &objects, &why) < 0) {
        rc = ended ? sup_results_missed(o->run_dir, spec, &why, err) : 0;
        if (!ended)
            end_unbegun(o->run_dir, "S301", &why);
    } else if (sup_run_open(o->run_dir, &run, &why) < 0) {
        rc = ended ? sup_results_missed(o->run_dir, spec, &why, err) : 0;
        if (!ended)
            end_unbegun(o->run_dir, why.cls == PST_CLASS_DATA ? "C101" : "S104", &why);
    } else {
        run.address = o->address;
        run.status = status;
        run.outlet = outlet;
        run.objects = objects;
        pst_objects_patience(objects, OBJECTS_PATIENCE_MS);
        run.client = client;
        run.settings = settings;
        if (ended)
            sup_status_phase(status, SUP_PHASE_PUBLISHING);
        rc = ended ? sup_finish(&run, err)
                   : sup_supervise(&run, &(sup_output_limits){.lines_per_s = o->lines_per_s, .bytes_per_s = (double)o->bytes_per_s}, err);
        goto out;
    }
    sup_status_phase(status, SUP_PHASE_PUBLISHING);
    if (!rc)
        rc = sup_publish(o->run_dir, outlet, err);
out:
    sup_status_outlet(status, NULL);
    sup_outlet_close(outlet);
    if (run.dir)
        sup_run_close(&run);
    pst_objects_close(objects);
    pst_client_close(client);
    return rc;
}

static int configure(int argc, char **argv, supervise_opts *ret_opts, pst_settings *ret_settings, pst_err *err)
{
    char **args = NULL;
    int n_args = 0, rc = pst_opt_parse(&pst_supervise_usage, argc, argv, ret_opts, ret_settings, &args, &n_args, err);
    if (!rc && (n_args || !ret_opts->run_dir) && !ret_opts->install)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "give the run directory: --run-dir DIR");
    if (!rc && !ret_opts->settings != !ret_opts->settings_to)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--settings and --settings-to belong together");
    if (!rc && ret_opts->address && !pst_address_is_numeric(ret_opts->address))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--address: '%s' is no numeric address", ret_opts->address);
    free(args);
    return rc;
}

/* Who we are goes on record. Of a run that has ended the learner's identity stays there: it is how what it left is found. */
static int write_owner(const char *run_dir, pid_t keeper, pst_err *err)
{
    pst_rundir_owner before, owner = {.pid = getpid(),
                                      .start_time = pst_proc_start_time(getpid()),
                                      .keeper_pid = keeper,
                                      .keeper_start_time = pst_proc_start_time(keeper)};
    if (pst_rundir_owner_read(run_dir, &before, NULL) == 0) {
        owner.learner_pid = before.learner_pid;
        owner.learner_start_time = before.learner_start_time;
    }
    return pst_rundir_owner_write(run_dir, &owner, err);
}

/* The lock before everything: of two supervisors of one run dir the second must not even write who it is. */
static int take_run_dir(const char *run_dir, pst_rundir_spec *ret_spec, pst_err *err)
{
    int lock;
    pid_t keeper = 0;
    int rc = pst_rundir_lock(run_dir, &lock, err);
    if (!rc)
        rc = sup_keeper_start(lock, &keeper, err); /* from here on below it */
    if (!rc)
        rc = pst_rundir_spec_read(run_dir, ret_spec, err);
    if (!rc)
        pst_log_job_always(ret_spec->training_id);
    if (!rc)
        rc = write_owner(run_dir, keeper, err);
    return rc;
}

static int supervise_run(int argc, char **argv)
{
    supervise_opts o = {0};
    pst_settings settings;
    pst_rundir_spec spec = {0};
    sup_status *status = NULL;
    pst_err err = {0};
    int rc = configure(argc, argv, &o, &settings, &err);
    if (rc == 1)
        return 0;
    if (rc < 0) {
        pst_say_err("supervise", &err);
        return pst_err_exit(&err);
    }
    if (o.install) {
        rc = sup_install(o.install, o.settings, o.settings_to, &err);
        if (rc < 0)
            pst_say_err("supervise", &err);
        pst_settings_done(&settings);
        return rc < 0 ? pst_err_exit(&err) : 0;
    }
    pst_stop_install();
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &children, NULL); /* before any thread: the learner's end is read from a signalfd */
    rc = take_run_dir(o.run_dir, &spec, &err);
    if (!rc)
        pst_log(PST_LOG_INFO, "supervisor", "event=started generation=%d process=%s", spec.generation, spec.process);
    if (!rc)
        rc = sup_status_open(&spec, o.run_dir, &status, &err);
    if (!rc)
        rc = supervise(&o, &settings, &spec, status, &err);
    sup_status_close(status);
    if (!rc)
        pst_log(PST_LOG_INFO, "supervisor", "event=ended generation=%d process=%s", spec.generation, spec.process);
    if (rc < 0 && rc != PST_ESTOPPED)
        pst_log_err("supervisor", &err);
    pst_rundir_spec_done(&spec);
    pst_settings_done(&settings);
    return rc == 0 || rc == PST_ESTOPPED ? 0 : pst_err_exit(&err);
}

const pst_verb pst_supervise_verb = {"supervise", "run one process of a job (started by the LCM)", NULL, supervise_run,
                                     PST_USAGES(&pst_supervise_usage)};
