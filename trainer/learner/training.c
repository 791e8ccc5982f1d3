/* training.c - one loop that may stop after any minibatch. Everything it needs to go on is in the structure that a checkpoint copies: there
 * is no other state, and the order of an epoch is computed from seed and number again. */
#include "trainer/learner/training.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_WEIGHTS = 2, STREAM_EPOCHS = 1000, EVALUATE_ROWS = 256 };

learn_training *learn_training_new(const pst_learn_settings *s, const learn_ready *data)
{
    learn_training *t = pst_alloc(sizeof *t);
    int widths[PST_LEARN_HIDDEN_MAX + 2], n = 0;
    widths[n++] = data->columns;
    for (int i = 0; i < s->n_hidden; i++)
        widths[n++] = s->hidden[i];
    int outputs = s->n_classes ? s->n_classes : 1;
    widths[n++] = s->autoencoder ? data->columns : outputs;
    int rows_max = s->batch > EVALUATE_ROWS ? s->batch : EVALUATE_ROWS;
    *t = (learn_training){.settings = s, .data = data};
    t->net = learn_net_new(widths, n, s->activation, s->loss, rows_max);
    learn_rng rng;
    learn_rng_seed(&rng, s->seed, STREAM_WEIGHTS);
    learn_net_init(t->net, &rng);
    t->progress =
        (learn_progress){.train_loss = NAN, .validation_loss = NAN, .best_loss = NAN, .train_accuracy = NAN, .validation_accuracy = NAN};
    t->batch_x = pst_alloc((size_t)s->batch * (size_t)data->columns * sizeof(float));
    t->batch_y = pst_alloc((size_t)s->batch * (size_t)data->target_width * sizeof(float));
    t->order = pst_alloc(data->train * sizeof *t->order);
    return t;
}

void learn_training_free(learn_training *t)
{
    if (!t)
        return;
    learn_net_free(t->net);
    free(t->best);
    free(t->batch_x);
    free(t->batch_y);
    free(t->order);
    free(t);
}

static void shuffle_epoch(learn_training *t)
{
    for (size_t i = 0; i < t->data->train; i++)
        t->order[i] = (uint32_t)i;
    learn_rng rng;
    learn_rng_seed(&rng, t->settings->seed, STREAM_EPOCHS + (uint64_t)t->progress.epoch);
    learn_rng_shuffle(&rng, t->order, t->data->train);
}

/* One minibatch from the shuffled order; returns its rows, or PST_EINVAL when training has run away. */
static int64_t one_batch(learn_training *t, size_t from, pst_err *err)
{
    const pst_learn_settings *s = t->settings;
    const learn_ready *d = t->data;
    size_t rows = d->train - from < (size_t)s->batch ? d->train - from : (size_t)s->batch;
    size_t k = (size_t)d->columns, w = (size_t)d->target_width;
    for (size_t i = 0; i < rows; i++) {
        size_t at = t->order[from + i];
        memcpy(t->batch_x + i * k, d->z + at * k, k * sizeof(float));
        if (d->target != d->z)
            memcpy(t->batch_y + i * w, d->target + at * w, w * sizeof(float));
    }
    int right = 0;
    const float *y = d->target == d->z ? t->batch_x : t->batch_y;
    double loss = learn_net_step(t->net, t->batch_x, y, (int)rows, &(learn_adam){s->learning_rate, s->weight_decay}, &right);
    if (!isfinite(loss))
        return pst_err_set(
            err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
            "the loss became %s in epoch %lld, minibatch %lld: training has run away. Lower learning_rate (it is %g; try %g), or give "
            "features that reach far a scale",
            isnan(loss) ? "NaN" : "infinite", (long long)t->progress.epoch + 1, (long long)t->progress.batch + 1, s->learning_rate,
            s->learning_rate / 10);
    t->progress.loss_sum += loss * (double)rows;
    t->progress.rows += (int64_t)rows;
    t->progress.right += right;
    t->progress.batch++;
    return (int64_t)rows;
}

static void validate(learn_training *t)
{
    const learn_ready *d = t->data;
    learn_progress *p = &t->progress;
    double sum = 0;
    int64_t right = 0;
    for (size_t at = d->train; at < d->rows; at += EVALUATE_ROWS) {
        int rows = d->rows - at < EVALUATE_ROWS ? (int)(d->rows - at) : EVALUATE_ROWS, good = 0;
        sum += rows * learn_net_loss(t->net, d->z + at * (size_t)d->columns, d->target + at * (size_t)d->target_width, rows, NULL, &good);
        right += good;
    }
    double n = (double)(d->rows - d->train);
    p->validation_loss = n > 0 ? sum / n : NAN;
    p->validation_accuracy = n > 0 && t->settings->n_classes ? (double)right / n : NAN;
}

/* Whether this epoch was one too many. */
static bool judge(learn_training *t)
{
    learn_progress *p = &t->progress;
    size_t bytes = learn_net_parameters(t->net) * sizeof(float);
    if (isnan(p->best_loss) || p->validation_loss < p->best_loss) {
        p->best_loss = p->validation_loss;
        p->best_epoch = p->epoch;
        if (t->settings->patience) {
            if (!t->best)
                t->best = pst_alloc(bytes);
            memcpy(t->best, learn_net_values(t->net), bytes);
        }
    }
    return t->settings->patience && p->epoch - p->best_epoch >= t->settings->patience;
}

static void end_epoch(learn_training *t)
{
    learn_progress *p = &t->progress;
    p->epoch++;
    p->train_loss = p->rows ? p->loss_sum / (double)p->rows : NAN;
    p->train_accuracy = p->rows && t->settings->n_classes ? (double)p->right / (double)p->rows : NAN;
    validate(t);
    bool enough = judge(t);
    p->batch = p->rows = p->right = 0;
    p->loss_sum = 0;
    p->finished = p->epoch >= t->settings->epochs || enough;
}

/* With patience, the best epoch is the model. */
static void take_best(learn_training *t)
{
    if (!t->best)
        return;
    memcpy(learn_net_values(t->net), t->best, learn_net_parameters(t->net) * sizeof(float));
    validate(t);
}

/* A stop saves where it is, epoch and batch. The order of an epoch depends on the seed and its number alone, so a resumed training goes on
 * with the batch that would have come. */
int learn_training_run(learn_training *t, const learn_training_hooks *hooks, pst_err *err)
{
    learn_progress *p = &t->progress;
    if (p->epoch >= t->settings->epochs)
        p->finished = true;
    while (!p->finished) {
        shuffle_epoch(t);
        int64_t trained = 0;
        for (size_t at = (size_t)p->batch * (size_t)t->settings->batch; at < t->data->train;) {
            if (hooks->stopped && hooks->stopped(hooks->arg)) {
                int rc = hooks->save ? hooks->save(hooks->arg, t, err) : 0;
                return rc < 0 ? rc : PST_ESTOPPED;
            }
            int64_t rows = one_batch(t, at, err);
            if (rows < 0)
                return (int)rows;
            PST_ASSERT(rows > 0 && at + (size_t)rows <= t->data->train); /* else the epoch never ends */
            at += (size_t)rows;
            trained += rows;
        }
        end_epoch(t);
        if (hooks->on_epoch)
            hooks->on_epoch(hooks->arg, t, trained);
        if (p->finished)
            take_best(t);
        int rc = 0;
        if (hooks->save && (p->finished || p->epoch % t->settings->checkpoint_every == 0))
            rc = hooks->save(hooks->arg, t, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

double learn_training_error_quantile(learn_training *t, double q)
{
    const learn_ready *d = t->data;
    float *errors = pst_alloc((d->train + EVALUATE_ROWS) * sizeof *errors);
    for (size_t at = 0; at < d->train; at += EVALUATE_ROWS) {
        int rows = d->train - at < EVALUATE_ROWS ? (int)(d->train - at) : EVALUATE_ROWS;
        learn_net_loss(t->net, d->z + at * (size_t)d->columns, d->target + at * (size_t)d->target_width, rows, errors + at, NULL);
    }
    qsort(errors, d->train, sizeof *errors, by_value);
    double out = d->train ? (double)errors[(size_t)(q * (double)(d->train - 1) + 0.5)] : 0;
    free(errors);
    return out;
}
