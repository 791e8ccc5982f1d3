/* training.h - the training loop: epochs of shuffled minibatches over prepared rows, stoppable and resumable at any minibatch.
 *
 *     pst_training *t = pst_training_new(&settings, &ready);
 *     pst_training_run(t, &(pst_training_hooks){.arg = me, .on_epoch = print, .save = checkpoint, .stopped = told}, &err);
 *
 * The order of epoch e comes from (seed, e) alone, so that a run that was stopped and resumed gives the same bits as one that was not.
 * Pure but for the hooks, which do all I/O and tell the time. @thread any, one owner. */
#ifndef PST_LEARNER_TRAINING_H
#define PST_LEARNER_TRAINING_H

#include "trainer/learner/data.h"
#include "trainer/learner/net.h"

typedef struct pst_progress {
    int64_t epoch;   /* epochs completed */
    int64_t batch;   /* minibatches done of the running epoch */
    double loss_sum; /* of the running epoch: loss · rows */
    int64_t rows, right;
    double train_loss, validation_loss, best_loss; /* of the last epoch; best validation loss so far. NaN = none yet */
    double train_accuracy, validation_accuracy;
    int64_t best_epoch;
    bool finished; /* all epochs, or stopped early */
} pst_progress;

typedef struct pst_training {
    const pst_learn_settings *settings; /* borrowed */
    const pst_ready *data;              /* borrowed */
    pst_net *net;
    pst_progress progress;
    float *best; /* parameters of the best epoch; NULL without patience */
    float *batch_x, *batch_y;
    uint32_t *order;
} pst_training;

typedef struct pst_training_hooks {
    void *arg;
    void (*on_epoch)(void *arg, const pst_training *t, int64_t rows_trained); /* rows of this epoch trained by this process */
    int (*save)(void *arg, const pst_training *t, pst_err *err);              /* after an epoch and when stopped; an error ends the run */
    bool (*stopped)(void *arg);
} pst_training_hooks;

pst_training *pst_training_new(const pst_learn_settings *s, const pst_ready *data); /* initial weights by the seed */
void pst_training_free(pst_training *t);
/* 0 finished; PST_ESTOPPED after a save; PST_EINVAL/DATA: the loss is no number any more, with what to do. */
int pst_training_run(pst_training *t, const pst_training_hooks *hooks, pst_err *err);
/* Errors of single training rows, sorted: the q-quantile. For thresholds. */
double pst_training_error_quantile(pst_training *t, double q);

#endif
