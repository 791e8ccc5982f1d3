/* manifest_keys.c - the table of manifest_keys.h. Words stand in the order of the enums that their readers give. FfDL's keys that only
 * warn are here as well: what is not here is unknown, and said to be. */
#include "schemas/manifest_keys.h"

#include "common/base/isolation.h"
#include "schemas/learn_settings.h"

const char *const av_learn_missing_words[] = {"mean", "value", "reject", "zeros", NULL};
const char *const av_learn_unknown_words[] = {"zeros", "other", "reject", NULL};
const char *const av_activation_words[] = {"relu", "tanh", "sigmoid", "elu", "leaky_relu", NULL};

#define WORDS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
#define NAME_BYTES    256
#define DAY_US        86400e6
#define MEMORY_MAX    1125899906842624.0 /* 2^50 */
#define ANY           1e300
#define FROM_FORM     "`beginning`, or an offset"
#define TO_FORM       "`end`, or an offset"
#define IGNORED_IMAGE "FfDL's; ignored with a warning: the local launcher runs the command on its host, not in a container image."

static const pst_key rows[] = {
    {"", "name", PST_KEY_TEXT, .hi = NAME_BYTES, .help = "Required. What you call this job."},
    {"", "description", PST_KEY_BLOCK, .hi = 4096, .help = "For people."},
    {"", "version", PST_KEY_TEXT, .hi = NAME_BYTES, .help = "For people."},
    /* FfDL takes 5 CPUs and 12 GiB where a manifest is silent; on a laptop no such job would ever start. Less than 0.001 CPU would be
     * charged as nothing. */
    {"", "cpus", PST_KEY_NUMBER, .lo = 0.001, .hi = 4096, .def = "1", .help = "Of each process."},
    {"", "gpus", PST_KEY_NUMBER, .lo = 0, .hi = 1024, .def = "0", .help = "Of each learner; a fraction is cut, as FfDL does."},
    {"", "gpu_type", PST_KEY_TEXT, .hi = NAME_BYTES, .help = "Kept, but does not choose among GPUs yet."},
    {"", "learners", PST_KEY_WHOLE, .lo = 1, .hi = PST_JOB_PROCESSES_MAX, .def = "1", .help = "Processes that run the command."},
    {"", "memory", PST_KEY_BYTES, .hi = MEMORY_MAX, .def = "512 MiB",
     .help = "Of each process: a number and a unit (MB, MiB, GB, GiB, TB, TiB)."},
    {"", "storage", PST_KEY_BYTES, .hi = MEMORY_MAX, .help = "Of each process, on disk. Without it: no limit."},
    {"", "data_stores", PST_KEY_LIST, .hi = 16, .help = "Where data come from and results go."},
    {"", "framework", PST_KEY_MAPPING, .help = "Required. What runs."},
    {"", "evaluation_metrics", PST_KEY_MAPPING, .help = "FfDL's extractors of metrics."},
    {"", "penstock", PST_KEY_MAPPING, .help = "All that FfDL's manifest does not have."},

    {"framework", "name", PST_KEY_TEXT, .hi = NAME_BYTES,
     .help = "Required. `native` is the built-in learner; every other name runs the command."},
    {"framework", "version", PST_KEY_TEXT, .hi = NAME_BYTES, .help = "Required, except for `native`."},
    {"framework", "command", PST_KEY_BLOCK, .hi = PST_MANIFEST_BYTES_MAX,
     .help = "Required, except for `native`. Run by bash (else sh) in the folder of the submitted code."},
    {"framework", "image", PST_KEY_TEXT, .hi = NAME_BYTES,
     .help =
         "The container image, where an LCM runs its processes as pods (`penstock lcm --launcher kubernetes`); by default FfDL's for the "
         "framework and version. The local launcher runs the command on its host."},
    {"framework", "image_tag", PST_KEY_OTHER, .form = "text", .help = IGNORED_IMAGE},
    {"framework", "image_location", PST_KEY_OTHER, .form = "mapping", .help = IGNORED_IMAGE},

    {"data_stores[]", "id", PST_KEY_TEXT, .hi = NAME_BYTES, .help = "A name; with several stores, that of its link in `$DATA_DIR`."},
    {"data_stores[]", "type", PST_KEY_TEXT,
     .form = "`s3_datastore`, `mount_cos`, `s3`, `mount`, `host_mount`, `mount_volume`, `files`, `topic`", .hi = NAME_BYTES,
     .help = "Required. `s3_datastore`, `mount_cos`, `s3`: a bucket, copied before and after. FfDL's Swift stores are known and REJECTED "
             "with C103."},
    {"data_stores[]", "training_data", PST_KEY_MAPPING, .help = "What is read."},
    {"data_stores[]", "training_results", PST_KEY_MAPPING, .help = "Where results go."},
    {"data_stores[]", "connection", PST_KEY_MAPPING,
     .help = "How the store is reached. Secrets in it never reach state, events, logs or answers."},
    {"data_stores[]", "topic", PST_KEY_TEXT, .hi = 249,
     .help = "Type `topic`: its name. It and its range may stand under `connection` as well."},
    {"data_stores[]", "from", PST_KEY_OTHER, .form = FROM_FORM, .def = "beginning", .help = "The first offset of every partition."},
    {"data_stores[]", "to", PST_KEY_OTHER, .form = TO_FORM, .def = "end",
     .help = "The first offset that is left out; `end` = the end when the "
             "job starts."},
    {"data_stores[]", "records", PST_KEY_WHOLE, .lo = 0, .hi = (double)INT64_MAX, .def = "0", .help = "At most so many; 0 = all."},
    {"data_stores[].training_data", "container", PST_KEY_TEXT, .hi = 4096,
     .help = "Folder below `connection.path`; a topic's name; a file; a bucket."},
    {"data_stores[].training_results", "container", PST_KEY_TEXT, .hi = 4096, .help = "Folder below `connection.path`; a bucket."},
    {"data_stores[].connection", "type", PST_KEY_OTHER, .form = "text", .help = "FfDL's; says nothing for these types."},
    {"data_stores[].connection", "name", PST_KEY_OTHER, .form = "text", .help = "FfDL's; says nothing for these types."},
    {"data_stores[].connection", "path", PST_KEY_TEXT, .form = "absolute path",
     .help = "`mount`, `host_mount`, `mount_volume`: required, a folder of the host. `files`: one file or folder."},
    {"data_stores[].connection", "paths", PST_KEY_LIST, .form = "[absolute path]", .help = "`files`: several."},
    {"data_stores[].connection", "auth_url", PST_KEY_OTHER, .form = "http(s)://host:port", .help = "Buckets: required, the S3 server."},
    {"data_stores[].connection", "user_name", PST_KEY_OTHER, .form = "text", .help = "Buckets: required, the access key."},
    {"data_stores[].connection", "password", PST_KEY_OTHER, .form = "text", .help = "Buckets: required, its secret."},
    {"data_stores[].connection", "region", PST_KEY_OTHER, .form = "text", .def = "us-east-1", .help = "Buckets: what the signature names."},
    {"data_stores[].connection", "topic", PST_KEY_TEXT, .hi = 249, .help = "As beside `id`."},
    {"data_stores[].connection", "from", PST_KEY_OTHER, .form = FROM_FORM, .def = "beginning", .help = "As beside `id`."},
    {"data_stores[].connection", "to", PST_KEY_OTHER, .form = TO_FORM, .def = "end", .help = "As beside `id`."},
    {"data_stores[].connection", "records", PST_KEY_WHOLE, .lo = 0, .hi = (double)INT64_MAX, .def = "0", .help = "As beside `id`."},

    {"evaluation_metrics", "type", PST_KEY_TEXT, .hi = NAME_BYTES,
     .help = "`regex_extractor`: points from lines of the output, by `groups`. `tensorboard`: from event files. `emetrics_file`, `logger`: "
             "lines and "
             "`evaluation-metrics.txt` are read in any case."},
    {"evaluation_metrics", "image_tag", PST_KEY_OTHER, .form = "text", .help = "FfDL's; ignored."},
    {"evaluation_metrics", "in", PST_KEY_OTHER, .form = "path, or a list of them",
     .help = "`regex_extractor`: files read beside the output and `user_log.txt`. `tensorboard`: folders with event files, `$LOG_DIR` "
             "without it. Begins with `$LOG_DIR`, `$JOB_STATE_DIR`, `$RESULT_DIR`, "
             "`$CHECKPOINT_DIR` or `$MODEL_DIR`; without one it is below `$MODEL_DIR`."},
    {"evaluation_metrics", "line_lookahead", PST_KEY_OTHER, .form = "whole number, 1 to 64", .def = "4",
     .help = "Lines that one match may span. `linelookahead` is the same."},
    {"evaluation_metrics", "linelookahead", PST_KEY_OTHER, .form = "whole number, 1 to 64", .help = "As `line_lookahead`."},
    {"evaluation_metrics", "eventTypes", PST_KEY_OTHER, .form = "list", .help = "FfDL's; kept: scalars are what is read."},
    {"evaluation_metrics", "groups", PST_KEY_OTHER, .form = "NAME: {regex, scalars, etimes, meta}",
     .help = "`regex_extractor`: the first whose `regex` matches gives a point of group NAME (docs/learner.md)."},

    {"penstock", "queue", PST_KEY_NAME, .hi = 64, .def = "default",
     .help = "The queue that it waits in; `penstock queues list` shows which there are."},
    {"penstock", "priority", PST_KEY_WHOLE, .lo = -1e6, .hi = 1e6, .def = "0", .help = "Higher runs first."},
    {"penstock", "after", PST_KEY_TEXTS, .form = "[ID]", .hi = 64,
     .help = "Ids of jobs: it waits until all are COMPLETED, and fails when one ends otherwise. A halted one is waited for."},
    {"penstock", "array", PST_KEY_OTHER, .form = "`0-99`, `0-9:3`, `1,4,7`; `%5` behind",
     .help =
         "One job an index, with `PENSTOCK_ARRAY_INDEX` in its environment; `%5`: five at once at most. Indices from 0 to 999999, 10,000 "
         "tasks at most."},
    {"penstock", "hold", PST_KEY_OTHER, .form = "true or false", .def = "false", .help = "It waits until `penstock release ID`."},
    {"penstock", "checkpoint", PST_KEY_MAPPING,
     .help = "Checkpoints that the command announces are committed with digests, verified on resume, and removed by the rule below "
             "(docs/learner.md)."},
    {"penstock", "deadline", PST_KEY_SPAN, .lo = 1, .hi = 366 * DAY_US,
     .help = "From the start of PROCESSING; then the job fails. Without it: none."},
    {"penstock", "retries", PST_KEY_WHOLE, .form = "whole number, or a mapping", .lo = 0, .hi = 100, .def = "0",
     .help = "New generations after a failure of the job's own: how many, or `max` and `on` as below."},
    {"penstock", "grace", PST_KEY_SPAN, .lo = 0, .hi = DAY_US, .def = "10s", .help = "Between SIGTERM and SIGKILL at halt and terminate."},
    {"penstock", "system_metrics", PST_KEY_SPAN, .lo = 0, .hi = DAY_US, .def = "10s",
     .help = "Between the points of the group `system` that the platform makes itself (`penstock metrics ID --group system`); 0 = none, "
             "else at least 1s."},
    {"penstock", "roles", PST_KEY_MAPPING,
     .help = "Kinds of processes: `chief`, `worker`, `ps`, `evaluator`, or names of your own (small letters, digits, -; 20 at most), each "
             "with the "
             "keys of `penstock.roles.NAME`. They replace `learners`; with `ps` and `evaluator` alone the learners stay."},
    {"penstock", "gpu_preference", PST_KEY_OTHER, .form = "list of kinds of GPUs, `[h100, a100]`; 8 at most",
     .help =
         "Of nodes that have room for a job with GPUs, those with the first kind come first, then those with the second, then all others: "
         "none is "
         "demanded, and nothing is waited for. A kind is found in what the driver calls the device (`penstock nodes --json`): `h100` in "
         "`nvidia-NVIDIAH100PCIe`."},
    {"penstock", "env", PST_KEY_MAPPING, .form = "NAME: text", .hi = 500,
     .help = "Environment of the processes. Names beginning with "
             "`PENSTOCK_` are ignored; a native job may not set what steers a program."},
    {"penstock", "model", PST_KEY_MAPPING, .help = "The model that the job leaves."},
    {"penstock", "learner", PST_KEY_MAPPING, .help = "Settings of the built-in learner (`framework.name: native`)."},
    {"penstock", "site", PST_KEY_NAME, .hi = 64, .def = "local", .help = "Whose nodes may run it."},
    {"penstock", "node", PST_KEY_NAME, .hi = 64,
     .help = "The one node of the site that may run it; the job waits for that. Without it: any, or several."},
    {"penstock", "isolation", PST_KEY_NAME, .form = "`none`, `user`, `sandbox`", .hi = 16,
     .help = "Without it: `user`, as far as the host allows, or what the node asks for (`penstock lcm --isolation`); weaker than that is "
             "refused."},
    {"penstock.roles", "ps", PST_KEY_WHOLE, .form = "whole number, or a mapping", .lo = 0, .hi = PST_JOB_PROCESSES_MAX, .def = "0",
     .help = "`ps: N` is short for `ps: {count: N}`: parameter servers with the job's command, cpus and memory."},
    {"penstock.roles.NAME", "count", PST_KEY_WHOLE, .lo = 1, .hi = PST_JOB_PROCESSES_MAX, .def = "1",
     .help = "Processes of this role; of a chief there is one. At most 256 in all."},
    {"penstock.roles.NAME", "min", PST_KEY_WHOLE, .lo = 1, .hi = PST_JOB_PROCESSES_MAX,
     .help = "Kept, but a gang starts with all of `count` yet. Without it: `count`."},
    {"penstock.roles.NAME", "command", PST_KEY_BLOCK, .hi = PST_MANIFEST_BYTES_MAX, .help = "Without it: `framework.command`."},
    {"penstock.roles.NAME", "cpus", PST_KEY_NUMBER, .lo = 0.001, .hi = 4096, .help = "Of each process. Without it: the job's."},
    {"penstock.roles.NAME", "memory", PST_KEY_BYTES, .hi = MEMORY_MAX, .help = "Of each process. Without it: the job's."},
    {"penstock.roles.NAME", "gpus", PST_KEY_WHOLE, .lo = 0, .hi = 1024,
     .help = "Of each process. Without it: the job's, and none for `ps`."},
    {"penstock.roles.NAME", "env", PST_KEY_MAPPING, .form = "NAME: text", .hi = 500, .help = "Over the job's `penstock.env`."},
    {"penstock.retries", "max", PST_KEY_WHOLE, .lo = 0, .hi = 100, .help = "Required. New generations at most."},
    {"penstock.retries", "on", PST_KEY_LIST, .form = "[`exit:N`, `signal:N`, `lost`, `oom`]", .hi = 64,
     .help = "Which end of the process that failed first is worth one. Without it: every failure of the job's own."},
    {"penstock.checkpoint", "keep_last", PST_KEY_WHOLE, .lo = 1, .hi = 1000,
     .help = "The newest so many are kept. Without it: all; with `keep_best`: 1."},
    {"penstock.checkpoint", "keep_best", PST_KEY_WHOLE, .lo = 1, .hi = 1000, .help = "Beside them the best so many by `metric`."},
    {"penstock.checkpoint", "metric", PST_KEY_TEXT, .hi = 100,
     .help = "Required with `keep_best`: a number of the checkpoint line, else of the last metrics line before it that has it."},
    {"penstock.checkpoint", "mode", PST_KEY_TEXT, .form = "`min`, `max`", .hi = 3, .def = "min", .help = "What is better: less, or more."},
    {"penstock.model", "name", PST_KEY_NAME, .hi = 128, .help = "Required. Registered under this name; a job that leaves none fails."},
    {"penstock.model", "alias", PST_KEY_NAME, .hi = 64, .help = "Moved to the new version."},
    {"penstock.model", "file", PST_KEY_TEXT, .hi = 1024,
     .help = "Path inside `$RESULT_DIR/model`. Without it: model.onnx, model.ubj, model.json, model.txt."},

    {"penstock.learner", "model", PST_KEY_WORD, .words = WORDS("autoencoder", "mlp"),
     .help = "Without it: mlp with a `target`, else autoencoder."},
    {"penstock.learner", "features", PST_KEY_LIST, .help = "Names, or mappings as below. Without it: every number of the records."},
    {"penstock.learner", "target", PST_KEY_TEXT, .hi = 1000, .help = "mlp: required, the field to tell from the features."},
    {"penstock.learner", "classes", PST_KEY_OTHER, .form = "[name], or their number", .lo = 2, .hi = PST_LEARN_CLASSES_MAX,
     .help = "mlp: the target is one of them. Without it: regression."},
    {"penstock.learner", "other_classes", PST_KEY_WORD, .words = WORDS("error", "leave_out"), .def = "error",
     .help = "Records of none of `classes`."},
    {"penstock.learner", "loss", PST_KEY_WORD, .words = WORDS("mse", "cross_entropy"),
     .help = "Without it: cross_entropy with classes, else mse."},
    {"penstock.learner", "hidden", PST_KEY_OTHER, .form = "[width]",
     .help = "Widths of the hidden layers, 1 to 8192 each, at most 16. Without it: "
             "[8, 4, 8] for an autoencoder, [16, 16] for an mlp."},
    {"penstock.learner", "activation", PST_KEY_WORD, .words = av_activation_words,
     .help = "Without it: tanh for an autoencoder, relu for an mlp."},
    {"penstock.learner", "epochs", PST_KEY_WHOLE, .lo = 1, .hi = 1e6, .def = "20", .help = "A resumed job may have more of them."},
    {"penstock.learner", "batch", PST_KEY_WHOLE, .lo = 1, .hi = PST_LEARN_BATCH_MAX, .def = "32", .help = "Records of one step."},
    {"penstock.learner", "learning_rate", PST_KEY_NUMBER, .lo = 0, .hi = 10, .above = true, .def = "0.001", .help = "Of Adam."},
    {"penstock.learner", "weight_decay", PST_KEY_NUMBER, .lo = 0, .hi = 10, .def = "0", .help = "Decoupled, as in AdamW."},
    {"penstock.learner", "validation", PST_KEY_NUMBER, .lo = 0, .hi = 0.9, .def = "0.1",
     .help = "The part of the records that is held out."},
    {"penstock.learner", "seed", PST_KEY_WHOLE, .lo = 0, .hi = (double)INT64_MAX, .def = "1",
     .help = "The same data and seed give the same model."},
    {"penstock.learner", "patience", PST_KEY_WHOLE, .lo = 0, .hi = 1e6, .def = "0",
     .help = "Epochs without a better validation loss until it stops; 0 = never."},
    {"penstock.learner", "checkpoint_every", PST_KEY_WHOLE, .lo = 1, .hi = 1e6, .def = "1", .help = "Epochs."},
    {"penstock.learner", "staleness", PST_KEY_WHOLE, .lo = 0, .hi = 1000, .def = "0",
     .help =
         "With parameter servers (role `ps`): minibatches that a learner may be ahead of the slowest. 0: all step together, and the same "
         "data and seed give the same model."},
    {"penstock.learner", "peer_timeout", PST_KEY_WHOLE, .lo = 5, .hi = 3600, .def = "60",
     .help = "Seconds. Of several learners: one that is silent for so long ends the others, with status 75, for a retry."},
    {"penstock.learner", "data", PST_KEY_TEXT, .hi = 1000, .help = "CSV file or folder below `$DATA_DIR`. Without it: `$DATA_DIR` itself."},
    {"penstock.learner.features[]", "field", PST_KEY_TEXT, .hi = 1000, .help = "Required. Dotted path, or a column of a CSV file."},
    {"penstock.learner.features[]", "scale", PST_KEY_NUMBER, .lo = -ANY, .hi = ANY, .def = "1",
     .help = "The model sees x · scale + offset."},
    {"penstock.learner.features[]", "offset", PST_KEY_NUMBER, .lo = -ANY, .hi = ANY, .def = "0", .help = "See `scale`."},
    {"penstock.learner.features[]", "missing", PST_KEY_WORD, .words = av_learn_missing_words, .def = "mean",
     .help = "For a record without a value; reject leaves it out. With `one_hot`: zeros in all slots (default), or reject."},
    {"penstock.learner.features[]", "value", PST_KEY_NUMBER, .lo = -ANY, .hi = ANY, .help = "With `missing: value`: what stands for x."},
    {"penstock.learner.features[]", "slots", PST_KEY_WHOLE, .lo = 1, .hi = PST_LEARN_COLUMNS_MAX, .def = "1",
     .help = "An array of numbers fills several."},
    {"penstock.learner.features[]", "noise", PST_KEY_NUMBER, .lo = 0, .hi = ANY, .def = "0",
     .help = "Differences up to this size (of x) mean nothing: its deviation is never taken to be less."},
    {"penstock.learner.features[]", "one_hot", PST_KEY_OTHER, .form = "[word], or `learn`", .lo = 1, .hi = PST_LEARN_WORDS_MAX,
     .help = "For a field of words (text, enum, boolean, whole number): a slot each, 1 for the record's word. learn: the words of the "
             "records."},
    {"penstock.learner.features[]", "words_max", PST_KEY_WHOLE, .lo = 1, .hi = PST_LEARN_WORDS_MAX, .def = "64",
     .help = "With `one_hot: learn`: the most frequent ones; the others are unknown."},
    {"penstock.learner.features[]", "unknown", PST_KEY_WORD, .words = av_learn_unknown_words, .def = "zeros",
     .help =
         "With `one_hot`, for other words, also when scoring: zeros in all slots, a slot of their own behind the words, or (with a list) "
         "reject."},
};

const pst_keys pst_manifest_keys = {rows, sizeof rows / sizeof *rows};
