/* training.c - one loop that may stop after any minibatch. Everything it needs to go on is in the structure that a checkpoint copies: there
 * is no other state, and the order of an epoch is computed from seed and number again. */
#include "trainer/learner/training.h"

#include "common/base/hash.h"
#include "trainer/learner/evaluation.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_WEIGHTS = 2, STREAM_EPOCHS = 1000, STREAM_RANK = 1 << 24, EVALUATE_ROWS = 256, SCORES_MAX = 1 << 22 };

learn_training *learn_training_new(const pst_learn_settings *s, const learn_ready *data, learn_pool *pool)
{
    learn_training *t = pst_alloc(sizeof *t);
    int widths[PST_LEARN_HIDDEN_MAX + 2], n = 0;
    widths[n++] = data->columns;
    for (int i = 0; i < s->n_hidden; i++)
        widths[n++] = s->hidden[i];
    int outputs = s->n_classes ? s->n_classes : 1;
    widths[n++] = s->autoencoder ? data->columns : outputs;
    int rows_max = s->batch > EVALUATE_ROWS ? s->batch : EVALUATE_ROWS;
    *t = (learn_training){.settings = s, .data = data, .pool = pool};
    t->net = learn_net_new(widths, n, s->activation, s->loss, rows_max);
    learn_rng rng;
    learn_rng_seed(&rng, s->seed, STREAM_WEIGHTS);
    learn_net_init(t->net, &rng);
    t->progress = (learn_progress){.train_loss = NAN,
                                   .validation_loss = NAN,
                                   .best_loss = NAN,
                                   .train_accuracy = NAN,
                                   .validation_accuracy = NAN,
                                   .validation_auc = NAN};
    t->batch_x = pst_alloc((size_t)s->batch * (size_t)data->columns * sizeof(float));
    t->batch_y = pst_alloc((size_t)s->batch * (size_t)data->target_width * sizeof(float));
    t->order = pst_alloc(data->train * sizeof *t->order);
    if (pool)
        t->shared = pst_alloc((learn_net_parameters(t->net) + LEARN_TAIL) * sizeof *t->shared);
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
    free(t->scores);
    free(t->shared);
    free(t);
}

static void shuffle_epoch(learn_training *t)
{
    for (size_t i = 0; i < t->data->train; i++)
        t->order[i] = (uint32_t)i;
    learn_rng rng;
    uint64_t rank = t->pool ? (uint64_t)t->pool->rank : 0;
    learn_rng_seed(&rng, t->settings->seed, rank * STREAM_RANK + STREAM_EPOCHS + (uint64_t)t->progress.epoch);
    learn_rng_shuffle(&rng, t->order, t->data->train);
}

static void take_rows(learn_training *t, size_t from, size_t rows)
{
    const learn_ready *d = t->data;
    size_t k = (size_t)d->columns, w = (size_t)d->target_width;
    for (size_t i = 0; i < rows; i++) {
        size_t at = t->order[from + i];
        memcpy(t->batch_x + i * k, d->z + at * k, k * sizeof(float));
        if (d->target != d->z)
            memcpy(t->batch_y + i * w, d->target + at * w, w * sizeof(float));
    }
}

static int ran_away(const learn_training *t, double loss, pst_err *err)
{
    const pst_learn_settings *s = t->settings;
    return pst_err_set(
        err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
        "the loss became %s in epoch %lld, minibatch %lld: training has run away. Lower learning_rate (it is %g; try %g), or give "
        "features that reach far a scale",
        isnan(loss) ? "NaN" : "infinite", (long long)t->progress.epoch + 1, (long long)t->progress.batch + 1, s->learning_rate,
        s->learning_rate / 10);
}

/* The servers take the step, and tell where all stop. */
static int step_by_servers(learn_training *t, float *gradient, float *tail, pst_err *err)
{
    int64_t stop_at = 0;
    int rc = learn_servers_step(t->pool->servers, t->net, gradient, tail, &stop_at, err);
    t->pushes++;
    t->told = t->told || (stop_at && t->pushes >= stop_at);
    return rc;
}

static int step_by_all(learn_training *t, float *shared, size_t n, pst_err *err)
{
    int rc = learn_ring_sum(t->pool->ring, shared, n + LEARN_TAIL, err);
    if (rc < 0)
        return rc;
    t->told = t->told || shared[n + LEARN_TAIL_STOP] > 0;
    if (isfinite(shared[n + LEARN_TAIL_LOSS]))
        learn_net_adam(t->net, shared, &(learn_adam){t->settings->learning_rate, t->settings->weight_decay});
    return 0;
}

/* This rank's rows of a minibatch of `of`: gradient, loss and whether somebody shall stop are summed in one go, and the step is taken by all alike. With
 * staleness every rank's rows are a minibatch of their own, and sums are of this rank. */
static int step_together(learn_training *t, const float *y, size_t rows, int64_t of, bool stop, double *ret_loss, int64_t *ret_right,
                         pst_err *err)
{
    int right = 0;
    size_t n = learn_net_parameters(t->net);
    double sum = learn_net_backward_part(t->net, t->batch_x, y, (int)rows, of, &right);
    float *tail = t->shared + n;
    memcpy(t->shared, learn_net_gradient(t->net), n * sizeof *t->shared);
    tail[LEARN_TAIL_LOSS] = (float)(of ? sum / (double)of : 0);
    tail[LEARN_TAIL_RIGHT] = (float)right;
    tail[LEARN_TAIL_STOP] = stop ? 1 : 0;
    tail[LEARN_TAIL_ROWS] = (float)rows;
    int rc = t->pool->servers ? step_by_servers(t, t->shared, tail, err) : step_by_all(t, t->shared, n, err);
    *ret_loss = (double)tail[LEARN_TAIL_LOSS];
    *ret_right = (int64_t)tail[LEARN_TAIL_RIGHT];
    return rc;
}

/* One minibatch from the shuffled order; returns its rows over all ranks, 0 with none, or PST_EINVAL when training has run away. */
static int64_t one_batch(learn_training *t, bool stop, pst_err *err)
{
    const pst_learn_settings *s = t->settings;
    const learn_ready *d = t->data;
    size_t from = (size_t)t->progress.batch * (size_t)s->batch,
           to = d->train - from < (size_t)s->batch ? d->train : from + (size_t)s->batch;
    int64_t of = t->pool ? learn_pool_rows(t->pool, t->progress.batch, s->batch, &from, &to) : (int64_t)(to - from);
    PST_ASSERT(of >= 0 && to >= from && to - from <= (size_t)s->batch && to <= d->train);
    if (!of) { /* smaller minibatches than there are ranks: their rows fell to the ones beside it */
        t->progress.batch++;
        return 0;
    }
    if (t->pool && t->pool->staleness)
        of = (int64_t)(to - from);
    take_rows(t, from, to - from);
    const float *y = d->target == d->z ? t->batch_x : t->batch_y;
    int64_t right = 0;
    double loss = 0;
    int one = 0, rc = 0;
    if (t->pool)
        rc = step_together(t, y, to - from, of, stop, &loss, &right, err);
    else {
        loss = learn_net_step(t->net, t->batch_x, y, (int)of, &(learn_adam){s->learning_rate, s->weight_decay}, &one);
        right = one;
    }
    if (!rc && !isfinite(loss))
        rc = ran_away(t, loss, err);
    if (rc < 0)
        return rc;
    t->progress.loss_sum += loss * (double)of;
    t->progress.rows += of;
    t->progress.right += right;
    t->progress.batch++;
    return of;
}

/* The ranks have taken the same steps from the same numbers. Where one has other weights all the same (a faulty computer, other programs), nothing that
 * follows is worth having. */
static int validate_together(learn_training *t, double *sum, double *right, double *n, pst_err *err)
{
    struct {
        double sum, right, n;
        uint64_t crc;
    } one = {*sum, *right, *n, pst_crc32c(0, learn_net_values(t->net), learn_net_parameters(t->net) * sizeof(float))};
    const uint64_t mine = one.crc;
    const pst_buf *all;
    int rc = learn_pool_gather(t->pool, &one, sizeof one, true, &all, err);
    *sum = *right = *n = 0;
    for (int rank = 0; !rc && rank < t->pool->world; rank++) {
        memcpy(&one, all[rank].data, sizeof one);
        *sum += one.sum;
        *right += one.right;
        *n += one.n;
        if (one.crc != mine)
            rc = pst_err_set(
                err, PST_EINCOMPAT, PST_CLASS_FATAL, "learner", 0,
                "rank %d has other weights than rank %d after epoch %lld, though both took the same steps: do all nodes run the "
                "same penstock, and is their memory sound?",
                rank, t->pool->rank, (long long)t->progress.epoch);
    }
    return rc;
}

/* Areas need every row's scores, of all ranks at once: beyond so many numbers they cost more than the epoch. All ranks see it alike. */
static bool has_areas(const learn_training *t)
{
    size_t held = t->data->all_rows - t->data->all_train;
    return t->settings->n_classes && held && held <= SCORES_MAX / (size_t)t->settings->n_classes;
}

/* The validation part of all ranks with its scores; buffers are the caller's to clear. */
static int score_all(const learn_training *t, pst_buf *scores, pst_buf *truth, learn_scored *ret, pst_err *err)
{
    const learn_ready *d = t->data;
    size_t held = d->rows - d->train, k = (size_t)t->settings->n_classes;
    const pst_buf *all;
    pst_buf_add(scores, t->scores, held * k * sizeof(float));
    pst_buf_add(truth, d->target + d->train, held * sizeof(float));
    for (int i = 0; i < 2 && t->pool; i++) {
        pst_buf *b = i ? truth : scores;
        int rc = learn_pool_gather(t->pool, b->data, b->len, false, &all, err);
        if (rc < 0)
            return rc;
        pst_buf_clear(b);
        for (int rank = 0; rank < t->pool->world; rank++)
            pst_buf_add(b, all[rank].data, all[rank].len);
    }
    *ret = (learn_scored){(const float *)scores->data, (const float *)truth->data, truth->len / sizeof(float), (int)k};
    if (scores->len != truth->len * k)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "learner", 0, "the ranks gave scores of %zu numbers for %zu records",
                           scores->len / sizeof(float), ret->n);
    return 0;
}

static int measure_area(learn_training *t, pst_err *err)
{
    pst_buf scores = {0}, truth = {0};
    learn_scored s;
    int rc = score_all(t, &scores, &truth, &s, err);
    if (!rc)
        t->progress.validation_auc = learn_auc(&s);
    pst_buf_done(&scores);
    pst_buf_done(&truth);
    return rc;
}

static int validate(learn_training *t, pst_err *err)
{
    const learn_ready *d = t->data;
    learn_progress *p = &t->progress;
    double sum = 0;
    int64_t right = 0;
    const bool areas = has_areas(t);
    const size_t classes = (size_t)t->settings->n_classes;
    if (areas && !t->scores)
        t->scores = pst_alloc(((d->rows - d->train) * classes + 1) * sizeof *t->scores);
    for (size_t at = d->train; at < d->rows; at += EVALUATE_ROWS) {
        int rows = d->rows - at < EVALUATE_ROWS ? (int)(d->rows - at) : EVALUATE_ROWS, good = 0;
        sum += rows * learn_net_loss(t->net, d->z + at * (size_t)d->columns, d->target + at * (size_t)d->target_width, rows, NULL, &good);
        if (areas)
            memcpy(t->scores + (at - d->train) * classes, learn_net_output(t->net), (size_t)rows * classes * sizeof(float));
        right += good;
    }
    double n = (double)(d->rows - d->train), good = (double)right;
    int rc = t->pool ? validate_together(t, &sum, &good, &n, err) : 0;
    p->validation_loss = n > 0 ? sum / n : NAN;
    p->validation_accuracy = n > 0 && t->settings->n_classes ? good / n : NAN;
    return rc || !areas ? rc : measure_area(t, err);
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

/* Ranks of different speed meet at the end of an epoch: its sums become those of all, and all have the same values again. */
static int meet_again(learn_training *t, pst_err *err)
{
    learn_progress *p = &t->progress;
    double sums[] = {p->loss_sum, (double)p->rows, (double)p->right};
    int rc = learn_pool_sum(t->pool, sums, 3, err);
    if (!rc)
        rc = learn_servers_pull(t->pool->servers, t->net, err);
    p->loss_sum = sums[0];
    p->rows = (int64_t)sums[1];
    p->right = (int64_t)sums[2];
    return rc;
}

static int end_epoch(learn_training *t, pst_err *err)
{
    learn_progress *p = &t->progress;
    int met = t->pool && t->pool->staleness ? meet_again(t, err) : 0;
    if (met < 0)
        return met;
    p->epoch++;
    p->train_loss = p->rows ? p->loss_sum / (double)p->rows : NAN;
    p->train_accuracy = p->rows && t->settings->n_classes ? (double)p->right / (double)p->rows : NAN;
    int rc = validate(t, err);
    bool enough = judge(t);
    p->batch = p->rows = p->right = 0;
    p->loss_sum = 0;
    p->finished = p->epoch >= t->settings->epochs || enough;
    return rc;
}

/* With patience, the best epoch is the model. */
static int take_best(learn_training *t, pst_err *err)
{
    if (!t->best)
        return 0;
    memcpy(learn_net_values(t->net), t->best, learn_net_parameters(t->net) * sizeof(float));
    return validate(t, err);
}

/* A stop saves where it is, epoch and batch. The order of an epoch depends on the seed and its number alone, so a resumed training goes on
 * with the batch that would have come. */
int learn_training_run(learn_training *t, const learn_training_hooks *hooks, pst_err *err)
{
    learn_progress *p = &t->progress;
    if (p->epoch >= t->settings->epochs)
        p->finished = true;
    int64_t batches = t->pool ? learn_pool_batches(t->pool, t->settings->batch)
                              : (int64_t)((t->data->train + (size_t)t->settings->batch - 1) / (size_t)t->settings->batch);
    while (!p->finished) {
        shuffle_epoch(t);
        int64_t trained = 0;
        while (p->batch < batches) {
            bool stop = hooks->stopped && hooks->stopped(hooks->arg);
            if (t->pool ? t->told : stop) {
                int rc = hooks->save ? hooks->save(hooks->arg, t, err) : 0;
                return rc < 0 ? rc : PST_ESTOPPED;
            }
            int64_t rows = one_batch(t, stop, err);
            if (rows < 0)
                return (int)rows;
            trained += rows;
        }
        int rc = end_epoch(t, err);
        if (rc < 0)
            return rc;
        if (hooks->on_epoch)
            hooks->on_epoch(hooks->arg, t, trained);
        if (p->finished)
            rc = take_best(t, err);
        if (!rc && hooks->save && (p->finished || p->epoch % t->settings->checkpoint_every == 0))
            rc = hooks->save(hooks->arg, t, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int learn_training_confusion(learn_training *t, int64_t *ret, pst_err *err)
{
    const learn_ready *d = t->data;
    size_t k = (size_t)t->settings->n_classes;
    double *sums = pst_alloc((k * k + 1) * sizeof *sums);
    int64_t *counts = pst_alloc((k * k + 1) * sizeof *counts);
    for (size_t at = d->train; at < d->rows; at += EVALUATE_ROWS) {
        int rows = d->rows - at < EVALUATE_ROWS ? (int)(d->rows - at) : EVALUATE_ROWS;
        const float *y = learn_net_forward(t->net, d->z + at * (size_t)d->columns, rows);
        learn_confusion(&(learn_scored){y, d->target + at, (size_t)rows, (int)k}, counts);
        for (size_t i = 0; i < k * k; i++)
            sums[i] += (double)counts[i];
    }
    int rc = t->pool ? learn_pool_sum(t->pool, sums, k * k, err) : 0;
    for (size_t i = 0; !rc && i < k * k; i++)
        ret[i] = (int64_t)sums[i];
    free(sums);
    free(counts);
    return rc;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* The k-th of all ranks' errors is among the N − k largest of one of them: nobody sends more. */
static int quantile_together(const learn_training *t, const float *errors, size_t k, double *ret, pst_err *err)
{
    size_t n = t->data->train, most = learn_pool_train(t->pool) - k, mine = n < most ? n : most, have = 0;
    const pst_buf *all;
    int rc = learn_pool_gather(t->pool, errors + (n - mine), mine * sizeof *errors, false, &all, err);
    if (rc < 0)
        return rc;
    pst_buf b = {0};
    for (int rank = 0; rank < t->pool->world; rank++)
        pst_buf_add(&b, all[rank].data, all[rank].len / sizeof(float) * sizeof(float));
    have = b.len / sizeof(float);
    if (have >= most && most) {
        qsort(b.data, have, sizeof(float), by_value);
        float v;
        memcpy(&v, b.data + (have - most) * sizeof v, sizeof v);
        *ret = (double)v;
    } else
        rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "learner", 0, "the ranks gave %zu errors of records, at least %zu were due",
                         have, most);
    pst_buf_done(&b);
    return rc;
}

int learn_training_error_quantile(learn_training *t, double q, double *ret, pst_err *err)
{
    const learn_ready *d = t->data;
    float *errors = pst_alloc((d->train + EVALUATE_ROWS) * sizeof *errors);
    for (size_t at = 0; at < d->train; at += EVALUATE_ROWS) {
        int rows = d->train - at < EVALUATE_ROWS ? (int)(d->train - at) : EVALUATE_ROWS;
        learn_net_loss(t->net, d->z + at * (size_t)d->columns, d->target + at * (size_t)d->target_width, rows, errors + at, NULL);
    }
    qsort(errors, d->train, sizeof *errors, by_value);
    int rc = 0;
    size_t all = t->pool ? learn_pool_train(t->pool) : d->train, k = all ? (size_t)(q * (double)(all - 1) + 0.5) : 0;
    if (t->pool)
        rc = quantile_together(t, errors, k, ret, err);
    else
        *ret = all ? (double)errors[k] : 0;
    free(errors);
    return rc;
}
