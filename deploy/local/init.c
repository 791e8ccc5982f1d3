/* init.c - `penstock init DIR`: a manifest and a learner to start from, in a folder that did not exist or is empty. */
#include "common/base/fs.h"
#include "common/platform/verb.h"
#include "deploy/local/local.h"

#include <dirent.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char manifest_text[] =
    "# A job of penstock: `penstock submit manifest.yml .` publishes it; `penstock logs -f ID` follows it.\n"
    "name: %s\n"
    "description: what this job is for\n"
    "version: \"1.0\"\n"
    "cpus: 0.5            # of each learner\n"
    "gpus: 0\n"
    "memory: 512 MiB\n"
    "learners: 1\n"
    "framework:\n"
    "  name: custom       # native = the built-in learner, which trains straight from a topic\n"
    "  version: \"1\"\n"
    "  command: sh train.sh\n"
    "penstock:\n"
    "  retries: 0\n"
    "  # once train.sh leaves a model in $RESULT_DIR/model (model.onnx, model.ubj, model.json, model.txt), this registers it; without one "
    "the job fails\n"
    "  # model: {name: %s, alias: champion}\n";

static const char train_text[] =
    "#!/bin/sh\n"
    "# Runs in the folder of the submitted code. stdout becomes log events; JSON lines with \"penstock\":\"metrics\" become metric "
    "events.\n"
    "# $DATA_DIR $RESULT_DIR $CHECKPOINT_DIR $LEARNER_ID $NUM_LEARNERS are set; SIGTERM means: save and leave.\n"
    "step=$(cat \"$CHECKPOINT_DIR/step\" 2>/dev/null || echo 0)\n"
    "trap 'echo \"saving step $step\"; echo $step >\"$CHECKPOINT_DIR/step\"; exit 0' TERM\n"
    "while [ \"$step\" -lt 10 ]; do\n"
    "    step=$((step + 1))\n"
    "    echo \"step $step of learner $LEARNER_ID\"\n"
    "    echo \"{\\\"penstock\\\":\\\"metrics\\\",\\\"step\\\":$step,\\\"loss\\\":$(awk \"BEGIN{print 1/$step}\")}\"\n"
    "    sleep 0.2\n"
    "done\n";

static const pst_usage init_usage = {"init",
                                     "DIR",
                                     "Make a folder with a manifest and a learner to start from.",
                                     NULL,
                                     "penstock init myjob && penstock submit myjob/manifest.yml myjob --wait",
                                     NULL,
                                     0,
                                     false};

static bool has_entries(const char *dir)
{
    DIR *d = opendir(dir);
    bool any = false;
    for (struct dirent *e; d && !any && (e = readdir(d));)
        any = strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d)
        closedir(d);
    return any;
}

static int put(const char *dir, const char *name, const char *text, mode_t mode, pst_err *err)
{
    char *path = pst_fs_join(dir, name);
    int rc = pst_fs_write_atomic(path, text, strlen(text), mode, err);
    free(path);
    return rc;
}

/* Nothing of the user's is ever replaced: only an empty folder, or one that is not there, is written to. */
static int init_run(int argc, char **argv)
{
    pst_verb_run v;
    int none = 0, rc = 0, status = pst_verb_parse(&v, &init_usage, argc, argv, &none, 1, 1);
    if (status >= 0)
        return status;
    const char *dir = v.args[0];
    if (has_entries(dir))
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s is not empty; nothing was written", dir);
    if (!rc)
        rc = pst_fs_mkdirs(dir, 0755, &v.err);
    if (!rc) {
        char *copy = pst_strdup(dir), *name = basename(copy), *text = pst_sprintf(manifest_text, name, name);
        rc = put(dir, "manifest.yml", text, 0644, &v.err);
        if (!rc)
            rc = put(dir, "train.sh", train_text, 0755, &v.err);
        free(text);
        free(copy);
    }
    if (!rc && !v.settings.quiet)
        printf("%s/manifest.yml and %s/train.sh are there; next: penstock submit %s/manifest.yml %s --wait\n", dir, dir, dir, dir);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_init_verb = {"init", "a folder with a manifest and a learner to start from", "jobs", init_run, PST_USAGES(&init_usage)};
