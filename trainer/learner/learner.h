/* learner.h - the built-in learner (`framework.name: native`): `penstock learn`, started by the supervisor beside every native job.
 *
 *     run dir or manifest → settings → last checkpoint → data → training → model.onnx, model.json below RESULT_DIR
 *
 * It is a learner like any other: it talks by stdout (JSON lines with "penstock":"metrics"), by its exit status, and by files below
 * RESULT_DIR and CHECKPOINT_DIR. Exit 0: done, or told to stop and the checkpoint is written; 1: training failed; 2: settings are wrong. */
#ifndef PST_LEARNER_H
#define PST_LEARNER_H

#include "common/platform/client.h"
#include "schemas/manifest.h"
#include "common/base/settings.h"

typedef struct learn_job {
    const pst_manifest *manifest; /* borrowed */
    const pst_settings *settings; /* where Kafka is; borrowed */
    const char *training_id;      /* "" outside a job */
    int generation;
    const char *data_dir, *result_dir, *checkpoint_dir;
    bool check; /* only say whether the settings are right */
} learn_job;

/* 0; PST_ESTOPPED after the checkpoint was written; PST_EINVAL/FATAL: settings, all violations on stderr; else: training failed. */
int learn_train(const learn_job *job, pst_err *err);

#endif
