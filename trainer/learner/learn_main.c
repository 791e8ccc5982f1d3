/* learn_main.c - `penstock learn`: finds out what to train and where its folders are, then learn_train(). */
#include "schemas/frameworks.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/platform/verb.h"
#include "common/base/stop.h"
#include "common/objects/rundir.h"
#include "trainer/learner/learn_gang.h"
#include "trainer/learner/learner.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct learn_opts {
    const char *run_dir, *manifest, *data_dir, *result_dir, *checkpoint_dir;
    bool check;
} learn_opts;

static const pst_opt learn_table[] = {
    {"run-dir", 0, PST_OPT_STR, offsetof(learn_opts, run_dir), "DIR", NULL,
     "the run folder of a job's process (spec.json); how a supervisor starts it"},
    {"manifest", 'm', PST_OPT_STR, offsetof(learn_opts, manifest), "FILE", NULL, "a manifest, to train without the platform"},
    {"data-dir", 0, PST_OPT_STR, offsetof(learn_opts, data_dir), "DIR", NULL, "where CSV files lie (DATA_DIR)"},
    {"result-dir", 0, PST_OPT_STR, offsetof(learn_opts, result_dir), "DIR", NULL,
     "model/model.onnx and model/model.json go there (RESULT_DIR)"},
    {"checkpoint-dir", 0, PST_OPT_STR, offsetof(learn_opts, checkpoint_dir), "DIR", NULL,
     "checkpoints are written and looked for there (CHECKPOINT_DIR; else RESULT-DIR/checkpoints)"},
    {"check", 0, PST_OPT_BOOL, offsetof(learn_opts, check), NULL, NULL, "only check the settings"},
};
static const pst_usage learn_usage = {
    "learn",
    "",
    "The built-in learner: trains an autoencoder or MLP from a topic's range or CSV files, writes ONNX.",
    "Jobs with framework.name: native run it. Settings under penstock.learner: model (autoencoder, mlp), features, target, classes, loss,\n"
    "other_classes (error, leave_out), hidden, activation, epochs, batch, learning_rate, weight_decay, validation, seed, patience, "
    "checkpoint_every, data.\n"
    "A feature is a field's name or {field, scale, offset, missing: mean|value|reject, value, slots, noise}: the model sees x · scale + "
    "offset;\n"
    "noise is the size up to which differences mean nothing; without features all numbers of the records are taken.\n"
    "Told to stop (SIGTERM) it finishes the minibatch, writes a checkpoint and exits 0; started again it goes on from there.\n"
    "The learners of a job train one model together; where one of them is lost the others exit with 75, and a retry goes on from the "
    "checkpoint.",
    "penstock learn --manifest examples/telemetry/manifest.yml --result-dir /tmp/result\n"
    "penstock learn --manifest manifest.yml --check",
    learn_table,
    sizeof learn_table / sizeof *learn_table,
    false};

static const char *first(const char *a, const char *b)
{
    return a && *a ? a : b && *b ? b : NULL;
}

static int parse_manifest(const char *text, size_t len, pst_manifest *m, pst_err *err)
{
    pst_complaints errors = {0}, warnings = {0};
    int rc = pst_manifest_parse(text, len, m, &errors, &warnings);
    for (size_t i = 0; i < errors.n; i++)
        if (errors.at[i].line)
            fprintf(stderr, "penstock learn: manifest:%d: %s: %s\n", errors.at[i].line, errors.at[i].field, errors.at[i].text);
        else
            fprintf(stderr, "penstock learn: manifest: %s: %s\n", errors.at[i].field, errors.at[i].text);
    if (rc < 0)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "the manifest cannot be used");
    else if (!m->runs || m->runs != pst_framework_of("native"))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "framework.name is %s; the built-in learner runs jobs of framework native", m->framework);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return rc;
}

/* Started by a supervisor all comes from the run's folder; by hand from options, and the environment that a supervisor would set stands in for those left out. */
static int learn(const learn_opts *o, const pst_settings *settings, pst_err *err)
{
    pst_rundir_spec spec = {0};
    pst_manifest m = {0};
    pst_buf text = {0};
    int rc;
    if (!o->run_dir == !o->manifest)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "wanted either --run-dir or --manifest");
    rc = o->run_dir ? pst_rundir_spec_read(o->run_dir, &spec, err) : pst_fs_read(o->manifest, 1 << 20, &text, err);
    if (!rc && o->run_dir)
        pst_buf_adds(&text, spec.manifest);
    if (!rc)
        rc = parse_manifest(text.data ? text.data : "", text.len, &m, err);
    learn_job job = {.manifest = &m,
                     .settings = settings,
                     .training_id = first(spec.training_id, getenv("TRAINING_ID")),
                     .generation = o->run_dir ? spec.generation : 1,
                     .data_dir = first(o->data_dir, getenv("DATA_DIR")),
                     .result_dir = first(o->result_dir, getenv("RESULT_DIR")),
                     .check = o->check};
    char *beside = job.result_dir ? pst_fs_join(job.result_dir, "checkpoints") : NULL;
    job.checkpoint_dir = first(first(o->checkpoint_dir, getenv("CHECKPOINT_DIR")), beside);
    job.training_id = job.training_id ? job.training_id : "";
    pst_log_job_always(job.training_id);
    if (!rc && !job.result_dir && !job.check)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "where shall the model go? give --result-dir, or set RESULT_DIR");
    learn_gang gang = {0};
    if (!rc && o->run_dir && pst_manifest_processes(&m) > 1)
        rc = learn_gang_of(&spec, &gang, err);
    job.gang = gang.opts.world ? &gang.opts : NULL;
    if (!rc && o->manifest && pst_manifest_processes(&m) > 1 && !job.check)
        printf("the manifest asks for %d processes; without the platform there is one\n", pst_manifest_processes(&m));
    if (!rc)
        rc = learn_train(&job, err);
    learn_gang_done(&gang);
    free(beside);
    pst_buf_done(&text);
    pst_manifest_done(&m);
    pst_rundir_spec_done(&spec);
    return rc;
}

/* Stopped because somebody asked for it (halt, kill, the platform's end): success. By a signal out of the blue: say so, as a shell would, lest the
 * job count as completed. */
static int stopped_status(const learn_opts *o)
{
    return o->run_dir && pst_rundir_stop_reason_read(o->run_dir) == PST_STOP_REASON_NONE ? 128 + pst_stop_signal() : 0;
}

static int run_learn(int argc, char **argv)
{
    learn_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_parse(&v, &learn_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    int rc = learn(&o, &v.settings, &v.err);
    status = rc == PST_ESTOPPED ? stopped_status(&o) : 0;
    if (rc < 0 && rc != PST_ESTOPPED) { /* a learner's own statuses: whoever retries a job asks whether its settings are at fault */
        pst_say_err("learn", &v.err);
        bool peer = v.err.cls == PST_CLASS_RETRY && !strcmp(v.err.origin, "ring");
        status = rc == PST_EINVAL && v.err.cls == PST_CLASS_FATAL ? 2 : peer ? LEARN_STATUS_PEER_LOST : 1;
    }
    pst_verb_end(&v, 0);
    return status;
}

const pst_verb pst_learn_verb = {"learn", "the built-in learner", NULL, run_learn, PST_USAGES(&learn_usage)};
