/* training.h - the training loop: epochs of shuffled minibatches over prepared rows, stoppable and resumable at any minibatch.
 *
 *     learn_training *t = learn_training_new(&settings, &ready);
 *     learn_training_run(t, &(learn_training_hooks){.arg = me, .on_epoch = print, .save = checkpoint, .stopped = told}, &err);
 *
 * The order of epoch e comes from (seed, e) alone, so that a run that was stopped and resumed gives the same bits as one that was not. With a pool every rank
 * takes its rows of each minibatch, the gradients are summed, and every rank takes the same step.
 * Pure but for the hooks, which do all I/O and tell the time. @thread any, one owner. */
#ifndef PST_LEARNER_TRAINING_H
#define PST_LEARNER_TRAINING_H

#include "trainer/learner/data.h"
#include "trainer/learner/net.h"

typedef struct learn_progress {
    int64_t epoch;   /* epochs completed */
    int64_t batch;   /* minibatches done of the running epoch */
    double loss_sum; /* of the running epoch: loss · rows */
    int64_t rows, right;
    double train_loss, validation_loss, best_loss; /* of the last epoch; best validation loss so far. NaN = none yet */
    double train_accuracy, validation_accuracy;
    double validation_auc; /* NaN = none: no classes, or too many numbers for it */
    int64_t best_epoch;
    bool finished; /* all epochs, or stopped early */
} learn_progress;

typedef struct learn_training {
    const pst_learn_settings *settings; /* borrowed */
    const learn_ready *data;            /* borrowed */
    learn_pool *pool;                   /* whose other ranks do the same at the same time; NULL = alone. Borrowed */
    int64_t pushes;                     /* to the pool's servers so far */
    bool begun;                         /* the pool's servers have the parameters */
    bool told;                          /* one of the ranks is to stop: all do, after the same minibatch */
    learn_net *net;
    learn_progress progress;
    float *best; /* parameters of the best epoch; NULL without patience */
    float *batch_x, *batch_y;
    uint32_t *order;
    float *scores; /* with classes: what the validation part was taken for, (rows, classes) */
    float *shared; /* with a pool: gradient, and what else is summed with it */
} learn_training;

typedef struct learn_training_hooks {
    void *arg;
    void (*on_epoch)(void *arg, const learn_training *t, int64_t rows_trained); /* rows of this epoch trained by this process, or pool */
    int (*save)(void *arg, const learn_training *t, pst_err *err);              /* after an epoch and when stopped; an error ends the run */
    bool (*stopped)(void *arg);
} learn_training_hooks;

learn_training *learn_training_new(const pst_learn_settings *s, const learn_ready *data,
                                   learn_pool *pool); /* initial weights by the seed */
void learn_training_free(learn_training *t);
/* 0 finished; PST_ESTOPPED after a save; PST_EINVAL/DATA: the loss is no number any more, with what to do. */
int learn_training_run(learn_training *t, const learn_training_hooks *hooks, pst_err *err);
/* Of classes: how many rows of the validation part, of all ranks, are of the one (row) and taken for the other (column): (classes, classes). */
int learn_training_confusion(learn_training *t, int64_t *ret_counts, pst_err *err);
/* Errors of single training rows (of all ranks), sorted: the q-quantile. For thresholds. */
int learn_training_error_quantile(learn_training *t, double q, double *ret_error, pst_err *err);

#endif
