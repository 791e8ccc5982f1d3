/* learner.h - the built-in learner (`framework.name: native`): `penstock learn`, started by the supervisor beside every native job.
 *
 *     run dir or manifest → settings → last checkpoint → data → training → model.onnx, model.json below RESULT_DIR
 *
 * It is a learner like any other: it talks by stdout (JSON lines with "penstock":"metrics"), by its exit status, and by files below
 * RESULT_DIR and CHECKPOINT_DIR. Exit 0: done, or told to stop and the checkpoint is written; 1: training failed; 2: settings are wrong; 75 (a temporary
 * failure): another rank is gone, and a new generation goes on from the last checkpoint.
 *
 * A gang's ranks train one model: each reads its share of the records, gradients are summed over the ring (ring.h), and rank 0 alone writes checkpoints,
 * model and metrics. */
#ifndef PST_LEARNER_H
#define PST_LEARNER_H

#include "common/platform/client.h"
#include "schemas/manifest.h"
#include "common/base/settings.h"
#include "trainer/learner/ring.h"

typedef struct learn_job {
    const pst_manifest *manifest; /* borrowed */
    const pst_settings *settings; /* where Kafka is; borrowed */
    const char *training_id;      /* "" outside a job */
    int generation;
    const char *data_dir, *result_dir, *checkpoint_dir;
    const learn_ring_opts *gang; /* NULL: it learns alone. Time-out and hooks are filled in. Borrowed */
    bool check;                  /* only say whether the settings are right */
} learn_job;

#define LEARN_STATUS_PEER_LOST 75

/* 0; PST_ESTOPPED after the checkpoint was written; class RETRY of origin "ring": another rank is gone; PST_EINVAL/FATAL: settings, all violations on stderr; else: training failed. */
int learn_train(const learn_job *job, pst_err *err);

#endif
