/* learn.c - one training, from settings by the last checkpoint and the data to a model (learner.h). The checkpoint is looked for before the data are
 * read, since it may name the features; one of other settings or features is said and left, never mixed with these. Metrics are lines on
 * stdout, as any learner's are. */
#include "trainer/learner/learner.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/stop.h"
#include "trainer/learner/checkpoint.h"
#include "trainer/learner/export.h"
#include "trainer/learner/pool.h"
#include "trainer/learner/ranges.h"
#include "trainer/learner/shares.h"
#include "trainer/learner/sources.h"
#include "common/platform/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAY_EVERY_US = 200000, CAUSE_FIRST_MS = 3000, TICK_MS = 50, WORDS_SHOWN = 8 };
static const double threshold_quantile = 0.995;

typedef struct learn {
    const learn_job *job;
    pst_learn_settings s;
    pst_client *client;
    learn_data data;
    learn_ready ready;
    learn_training *training;
    learn_pool *pool;      /* NULL: alone */
    learn_checkpoint last; /* to go on from */
    bool resumed;
    int64_t epoch_began_us, said_us;
    bool save_failed;
} learn;

static void say(void *arg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(void *arg, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

static bool is_stopped(void *arg)
{
    learn *l = arg;
    if (l->pool)
        learn_pool_alive(l->pool);
    return pst_stop_requested();
}

/* The rank that speaks for all: checkpoints, metrics and the model are its. */
static bool is_first(const learn *l)
{
    return !l->pool || l->pool->rank == 0;
}

/* ---- the gang ------------------------------------------------------------------------------------------------------------------ */

static learn_ring_opts gang_of(learn *l)
{
    learn_ring_opts o = *l->job->gang;
    o.timeout_us = (int64_t)l->s.peer_timeout * 1000000;
    o.arg = l;
    o.stopped = is_stopped;
    return o;
}

static int join(learn *l, pst_err *err)
{
    if (!l->job->gang)
        return 0;
    learn_ring_opts o = gang_of(l);
    say(l, "rank %d of %d: meeting the others", o.rank, o.world);
    int rc = learn_pool_open(&o, (int)l->s.staleness, &l->pool, err);
    if (!rc)
        say(l, "rank %d of %d: all are there", o.rank, o.world);
    return rc;
}

/* A rank that fails takes the others along. What failed first decides whether the job is tried again: it is given the time to be heard first, and
 * when the platform ends the others meanwhile they were told to stop. */
static int let_the_cause_be_heard(learn *l, int rc, pst_err *err)
{
    if (rc >= 0 || rc == PST_ESTOPPED || !l->job->gang || err->cls != PST_CLASS_RETRY || strcmp(err->origin, "ring") != 0)
        return rc;
    say(l, "warning: %s; the last checkpoint is what a new generation goes on from", err->text);
    for (int ms = 0; ms < CAUSE_FIRST_MS && !pst_stop_requested(); ms += TICK_MS)
        pst_sleep_ms(TICK_MS);
    return pst_stop_requested() ? PST_ESTOPPED : rc;
}

/* ---- settings ------------------------------------------------------------------------------------------------------------------ */

static int read_settings(learn *l, pst_err *err)
{
    const pst_manifest *m = l->job->manifest;
    pst_complaints wrong = {0};
    pst_learn_settings_of(m, &l->s, &wrong);
    if (!l->s.data && !wrong.n && !m->n_stores && !(l->job->data_dir && *l->job->data_dir))
        pst_complain(&wrong, "data_stores", 0, "is missing: the records to learn from, a store of type topic, mount or files");
    for (size_t i = 0; i < wrong.n; i++)
        fprintf(stderr, "penstock learn: %s: %s\n", wrong.at[i].field, wrong.at[i].text);
    int rc = wrong.n ? pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%zu setting%s of the learner cannot be used", wrong.n,
                                   wrong.n == 1 ? "" : "s")
                     : 0;
    pst_complaints_done(&wrong);
    return rc;
}

/* ---- checkpoints --------------------------------------------------------------------------------------------------------------- */

static void passed_over(void *arg, const char *file, const char *why)
{
    say(arg, "warning: checkpoint %s cannot be used: %s", file, why);
}

/* A list of words is a setting, and must be the same; words that were learnt are the checkpoint's. */
static bool same_words(const learn_checkpoint_words *c, const pst_learn_feature *f)
{
    bool same = f->one_hot == (c->n > 0) && f->learn_words == c->learnt && (f->unknown == PST_LEARN_UNKNOWN_OTHER) == c->other;
    if (same && !f->learn_words)
        same = f->n_words == c->n;
    for (int i = 0; same && !f->learn_words && i < c->n; i++)
        same = !strcmp(f->words[i], c->at[i]);
    return same;
}

static bool same_features(const learn_checkpoint *c, const pst_learn_settings *s)
{
    bool same = !s->n_features || s->n_features == c->n_fields;
    for (int i = 0; same && i < s->n_features; i++)
        same = !strcmp(s->features[i].field, c->fields[i]) && same_words(&c->words[i], &s->features[i]);
    return same;
}

static bool read_checkpoint(learn *l)
{
    if (learn_checkpoint_read_last(l->job->checkpoint_dir, &l->last, passed_over, l) != 1)
        return false;
    char *digest = pst_learn_settings_digest(&l->s);
    bool same = !strcmp(digest, l->last.settings_digest) && same_features(&l->last, &l->s);
    free(digest);
    if (!same) {
        say(l, "warning: the checkpoint of generation %d was made with other settings; starting anew", l->last.generation);
        learn_checkpoint_done(&l->last);
    }
    return same;
}

/* Rank 0's is everybody's: another may not see its folder, or another file in it. */
static int spread_checkpoint(learn *l, pst_err *err)
{
    pst_buf b = {0};
    if (l->resumed)
        learn_checkpoint_encode(&l->last, &b);
    int rc = learn_pool_spread(l->pool, &b, err);
    if (!rc && l->pool->rank && b.len) {
        rc = learn_checkpoint_decode(b.data, b.len, &l->last, err);
        l->resumed = !rc;
    }
    pst_buf_done(&b);
    return rc;
}

static int find_checkpoint(learn *l, pst_err *err)
{
    l->resumed = is_first(l) && read_checkpoint(l);
    int rc = l->pool ? spread_checkpoint(l, err) : 0;
    if (rc < 0 || !l->resumed)
        return rc;
    say(l, "resuming from the checkpoint of generation %d: epoch %lld, step %lld%s", l->last.generation, (long long)l->last.progress.epoch,
        (long long)l->last.steps, l->last.progress.finished ? ", trained to the end" : "");
    int world = l->pool ? l->pool->world : 1;
    if (l->last.world != world)
        say(l,
            "warning: the records were shared out among %d, and are shared out anew among %d; the model will not be the same to the last "
            "bit",
            l->last.world, world);
    if (!l->s.n_features)
        pst_learn_settings_take_fields(&l->s, (const char *const *)l->last.fields, l->last.n_fields);
    for (int i = 0; i < l->s.n_features && i < l->last.n_fields; i++)
        if (l->s.features[i].learn_words && l->last.words[i].n > 0)
            pst_learn_feature_take_words(&l->s.features[i], (const char *const *)l->last.words[i].at, l->last.words[i].n);
    return 0;
}

static int save(void *arg, const learn_training *t, pst_err *err)
{
    learn *l = arg;
    learn_checkpoint c;
    pst_err e = {0};
    if (!is_first(l))
        return 0;
    if (l->pool && l->pool->servers && t->begun) {
        int rc = learn_servers_pull(l->pool->servers, t->net, err);
        if (rc < 0)
            return rc;
        if (t->progress.finished && t->best) /* which the servers know nothing of */
            memcpy(learn_net_values(t->net), t->best, learn_net_parameters(t->net) * sizeof(float));
    }
    learn_checkpoint_take(t, &l->data, l->job->training_id, l->job->generation, &c);
    int rc = learn_checkpoint_write(l->job->checkpoint_dir, &c, &e);
    learn_checkpoint_done(&c);
    if (rc < 0 && pst_stop_requested()) {
        *err = e;
        return rc;
    }
    if (rc < 0) /* training is worth more than one checkpoint: the next may succeed */
        say(l, "warning: the checkpoint after epoch %lld was not written: %s", (long long)t->progress.epoch, e.text);
    else if (l->save_failed)
        say(l, "checkpoints can be written again");
    if (rc == 0)
        printf("{\"penstock\":\"checkpoint\",\"epoch\":%lld,\"step\":%lld}\n", (long long)t->progress.epoch,
               (long long)learn_net_steps(t->net));
    l->save_failed = rc < 0;
    return 0;
}

/* ---- data ---------------------------------------------------------------------------------------------------------------------- */

/* The client lives for the reading only: a training may take hours, and needs no broker for them. */
static int read_topics(learn *l, const learn_source_hooks *hooks, pst_err *err)
{
    const pst_manifest *m = l->job->manifest;
    learn_ranges whole = {0};
    int rc = pst_client_open(l->job->settings, "penstock-learner", &l->client, err);
    if (!rc && l->pool)
        rc = learn_shares_read_topics(&l->data, &l->s, l->client, m->stores, m->n_stores, l->resumed ? &l->last : NULL, hooks, err);
    else if (!rc) {
        learn_ranges_join(l->last.ranges, l->last.n_ranges, &whole); /* several ranks may have made the checkpoint */
        rc = learn_data_read_topics(&l->data, &l->s, l->client, m->stores, m->n_stores, l->resumed ? whole.at : NULL,
                                    l->resumed ? whole.n : 0, hooks, err);
        learn_ranges_done(&whole);
    }
    pst_client_close(l->client);
    l->client = NULL;
    return rc;
}

/* Which words were learnt: the first few, for people. */
static void say_words(learn *l)
{
    for (int i = 0; i < l->s.n_features; i++) {
        const pst_learn_feature *f = &l->s.features[i];
        pst_buf list = {0};
        for (int k = 0; k < f->n_words && k < WORDS_SHOWN; k++)
            pst_buf_printf(&list, "%s%.40s", k ? ", " : "", f->words[k]);
        size_t seen = f->one_hot ? learn_words_seen(l->data.words[i]) : 0;
        if (f->learn_words && seen > (size_t)f->n_words)
            say(l, "%s: the %d most frequent of %zu words (words_max): %s%s", f->field, f->n_words, seen, list.data,
                f->n_words > WORDS_SHOWN ? ", …" : "");
        else if (f->learn_words)
            say(l, "%s: %d words: %s%s", f->field, f->n_words, list.data, f->n_words > WORDS_SHOWN ? ", …" : "");
        else if (f->one_hot && seen < (size_t)f->n_words)
            say(l, "warning: %s: no record has %zu of the %d words of its one_hot", f->field, (size_t)f->n_words - seen, f->n_words);
        pst_buf_done(&list);
    }
}

/* Words are settled between reading and preparing: how many columns there are is known when all records are, and statistics are taken by column. */
static int read_data(learn *l, pst_err *err)
{
    const pst_manifest *m = l->job->manifest;
    const learn_source_hooks hooks = {l, is_stopped, say};
    int64_t began = pst_mono_us();
    bool topics = false;
    for (size_t i = 0; i < m->n_stores; i++)
        topics = topics || !strcmp(m->stores[i].type, "topic");
    learn_data_init(&l->data, &l->s, (size_t)(m->memory_bytes > 0 ? m->memory_bytes / 2 : 256 << 20));
    l->data.pool = l->pool;
    int rc = 0;
    if (topics && !l->s.data)
        rc = read_topics(l, &hooks, err);
    else if (l->job->data_dir && *l->job->data_dir)
        rc = l->pool ? learn_shares_read_csv(&l->data, &l->s, l->job->data_dir, &hooks, err)
                     : learn_data_read_csv(&l->data, &l->s, l->job->data_dir, l->s.data, 0, &hooks, err);
    else
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "learner", 0,
                         "there is nothing to learn from: DATA_DIR is not set, and no data store is of type topic");
    if (rc < 0)
        return rc;
    char span[32];
    say(l, "%zu records of %d numbers read in %s", l->data.rows, l->data.columns, pst_span_text(pst_mono_us() - began, span));
    if (l->data.bad)
        say(l, "warning: %lld records could not be read; the first: %s", (long long)l->data.bad, l->data.why_bad);
    if (l->data.dropped)
        say(l, "warning: %lld records are left out; the first: %s", (long long)l->data.dropped, l->data.why_dropped);
    rc = learn_words_settle(&l->data, &l->s, err);
    if (!rc && is_first(l))
        say_words(l);
    return rc ? rc : learn_prepare(&l->data, l->resumed ? &l->last.stats : NULL, &l->ready, err);
}

static int set_up(learn *l, pst_err *err)
{
    l->training = learn_training_new(&l->s, &l->ready, l->pool);
    size_t n = learn_net_parameters(l->training->net), most = PST_CHECKPOINT_BYTES_MAX / 16 - (1 << 16);
    if (n > most)
        return pst_err_set(
            err, PST_ELIMIT, PST_CLASS_FATAL, "learner", 0,
            "the network has %zu parameters; %zu are what a checkpoint holds: make penstock.learner.hidden fewer or narrower", n, most);
    say(l, "%s of %zu parameters, %zu records to train on, %zu to validate", l->s.autoencoder ? "autoencoder" : "mlp",
        learn_net_parameters(l->training->net), l->ready.all_train, l->ready.all_rows - l->ready.all_train);
    if (!l->resumed)
        return save(l, l->training, err);                             /* from here on every generation learns from the same records */
    bool as_before = l->last.world == (l->pool ? l->pool->world : 1); /* else the order is another */
    if ((int64_t)l->ready.all_rows != l->last.data_rows || (as_before && l->ready.crc != l->last.data_crc))
        say(l, "warning: the records are not those of the earlier generation (%zu now, %lld then); going on with them", l->ready.all_rows,
            (long long)l->last.data_rows);
    return learn_checkpoint_restore(&l->last, l->training, err);
}

/* ---- training ------------------------------------------------------------------------------------------------------------------ */

static void metrics_line(const char *group, const learn_training *t, double loss, double accuracy, double auc, double records_per_s)
{
    json_t *o = json_pack("{s:s,s:s,s:I,s:I,s:f}", "penstock", "metrics", "group", group, "epoch", (json_int_t)t->progress.epoch, "step",
                          (json_int_t)learn_net_steps(t->net), "loss", loss);
    if (isfinite(accuracy))
        json_object_set_new(o, "accuracy", json_real(accuracy));
    if (isfinite(auc))
        json_object_set_new(o, "auc", json_real(auc));
    if (records_per_s > 0)
        json_object_set_new(o, "records_per_s", json_real(floor(records_per_s)));
    char *text = pst_json_text(o);
    puts(text);
    free(text);
    json_decref(o);
}

static void on_epoch(void *arg, const learn_training *t, int64_t rows)
{
    learn *l = arg;
    const learn_progress *p = &t->progress;
    int64_t now = pst_mono_us();
    if (!is_first(l))
        return;
    double rate = (double)rows * 1e6 / (double)(now > l->epoch_began_us ? now - l->epoch_began_us : 1);
    metrics_line("train", t, p->train_loss, p->train_accuracy, NAN, rate);
    if (isfinite(p->validation_loss))
        metrics_line("validation", t, p->validation_loss, p->validation_accuracy, p->validation_auc, 0);
    if (p->epoch <= 3 || p->finished || now - l->said_us > SAY_EVERY_US) { /* people need no thousand lines a second */
        l->said_us = now;
        char more[160] = "";
        size_t n = 0;
        if (isfinite(p->validation_loss))
            n += (size_t)snprintf(more, sizeof more, "  validation %.6f", p->validation_loss);
        if (isfinite(p->validation_accuracy))
            n += (size_t)snprintf(more + n, sizeof more - n, "  accuracy %.4f", p->validation_accuracy);
        if (isfinite(p->validation_auc))
            snprintf(more + n, sizeof more - n, "  auc %.4f", p->validation_auc);
        printf("epoch %lld/%lld  loss %.6f%s  %.0f records/s\n", (long long)p->epoch, (long long)t->settings->epochs, p->train_loss, more,
               rate);
    }
    if (p->finished && p->epoch < t->settings->epochs)
        printf("stopping early: the validation loss has not fallen for %lld epochs; the model is that of epoch %lld\n",
               (long long)t->settings->patience, (long long)p->best_epoch);
    fflush(stdout);
    l->epoch_began_us = pst_mono_us();
}

/* Servers have what rank 0 has before anybody pushes. */
static int begin(learn *l, pst_err *err)
{
    const pst_buf *all;
    if (!l->pool || !l->pool->servers)
        return 0;
    int rc = is_first(l) ? learn_servers_begin(l->pool->servers, l->training->net, err) : 0;
    l->training->begun = true;
    return rc ? rc : learn_pool_gather(l->pool, "", 0, true, &all, err);
}

static int train(learn *l, pst_err *err)
{
    const learn_training_hooks hooks = {l, on_epoch, save, is_stopped};
    l->epoch_began_us = pst_mono_us();
    int rc = begin(l, err);
    if (!rc)
        rc = learn_training_run(l->training, &hooks, err);
    if (rc == PST_ESTOPPED && is_first(l) && l->pool && l->pool->servers)
        learn_servers_end(l->pool->servers, err); /* the checkpoint is written: what they say to it changes nothing */
    if (rc == PST_ESTOPPED)
        say(l, "told to stop: %s in epoch %lld, step %lld", is_first(l) ? "checkpoint written" : "rank 0 writes the checkpoint",
            (long long)l->training->progress.epoch + 1, (long long)learn_net_steps(l->training->net));
    return rc;
}

/* ---- result -------------------------------------------------------------------------------------------------------------------- */

static int write_result(learn *l, const pst_buf *onnx, const char *json, char **ret_path, pst_err *err)
{
    char *dir = pst_fs_join(l->job->result_dir, "model"), *model = pst_fs_join(dir, "model.onnx"), *about = pst_fs_join(dir, "model.json");
    int rc = pst_fs_mkdirs(dir, 0755, err);
    if (!rc)
        rc = pst_fs_write_atomic(about, json, strlen(json), 0644, err);
    if (!rc)
        rc = pst_fs_write_atomic(model, onnx->data, onnx->len, 0644, err);
    free(dir);
    free(about);
    *ret_path = model;
    return rc;
}

static int export(learn *l, double threshold, pst_err *err)
{
    const pst_manifest *m = l->job->manifest;
    learn_result r = {.name = m->model_name ? m->model_name : m->name,
                      .training_id = l->job->training_id,
                      .generation = l->job->generation,
                      .ranges = l->data.ranges,
                      .n_ranges = l->data.n_ranges,
                      .records = (int64_t)l->ready.all_rows,
                      .threshold = threshold};
    pst_buf onnx = {0};
    double difference = 0;
    learn_export_onnx(l->training, &r, &onnx);
    char *json = learn_export_json(l->training, &r), *path = NULL, digest[65];
    int rc = learn_export_verify(l->training, onnx.data, onnx.len, &difference, err);
    if (!rc)
        rc = write_result(l, &onnx, json, &path, err);
    if (!rc) {
        pst_sha256_hex(onnx.data, onnx.len, digest);
        say(l, "model %s, %zu bytes, sha256:%s; the engine agrees with the training to %.1e", path, onnx.len, digest, difference);
    }
    free(path);
    free(json);
    pst_buf_done(&onnx);
    return rc;
}

enum { CONFUSION_SHOWN = 30 }; /* classes; of more a table helps nobody */

static const char *class_of(const learn *l, int i, char buf[16])
{
    snprintf(buf, 16, "%d", i);
    return l->s.classes ? l->s.classes[i] : buf;
}

/* One line a class for people, and one point of the group confusion: "low/high": so many of class low were taken for high. */
static void say_confusion(const learn *l, const int64_t *counts)
{
    int k = l->s.n_classes;
    char a[16], b[16];
    json_t *o = json_pack("{s:s,s:s,s:I,s:I}", "penstock", "metrics", "group", "confusion", "epoch",
                          (json_int_t)l->training->progress.epoch, "step", (json_int_t)learn_net_steps(l->training->net));
    for (int i = 0; i < k; i++) {
        const char *is = class_of(l, i, a), *sep = "";
        printf("confusion: of class %s", is);
        for (int j = 0; j < k; j++) {
            int64_t n = counts[(size_t)i * (size_t)k + (size_t)j];
            const char *taken = class_of(l, j, b);
            char *key = pst_sprintf("%s/%s", is, taken);
            if (n || i == j) {
                printf("%s %lld taken for %s", sep, (long long)n, taken);
                sep = ",";
            }
            json_object_set_new(o, key, json_integer(n));
            free(key);
        }
        putchar('\n');
    }
    char *text = pst_json_text(o);
    puts(text);
    fflush(stdout);
    free(text);
    json_decref(o);
}

static int confuse(learn *l, pst_err *err)
{
    size_t k = (size_t)l->s.n_classes;
    if (!k || k > CONFUSION_SHOWN || l->ready.all_rows == l->ready.all_train)
        return 0;
    int64_t *counts = pst_alloc(k * k * sizeof *counts);
    int rc = learn_training_confusion(l->training, counts, err);
    if (!rc && is_first(l))
        say_confusion(l, counts);
    free(counts);
    return rc;
}

/* The ranks end together: who is done before rank 0 has written the model would look like one that is gone. */
static int finish(learn *l, pst_err *err)
{
    double threshold = NAN;
    const pst_buf *all;
    int rc = l->s.autoencoder ? learn_training_error_quantile(l->training, threshold_quantile, &threshold, err) : 0;
    if (!rc)
        rc = confuse(l, err);
    if (!rc && is_first(l))
        rc = export(l, threshold, err);
    if (!rc && is_first(l) && l->pool && l->pool->servers)
        rc = learn_servers_end(l->pool->servers, err);
    if (!rc && l->pool)
        rc = learn_pool_gather(l->pool, "", 0, true, &all, err);
    return rc;
}

static int serve(learn *l, pst_err *err)
{
    learn_ring_opts o = gang_of(l);
    say(l, "parameter server %d of %d: awaiting %d workers", o.rank - o.world, o.servers, o.world);
    return learn_serve(&o, &l->s, err);
}

static int train_all(learn *l, pst_err *err)
{
    int rc = join(l, err);
    if (!rc)
        rc = find_checkpoint(l, err);
    if (!rc)
        rc = read_data(l, err);
    if (!rc)
        rc = set_up(l, err);
    if (!rc)
        rc = train(l, err);
    if (!rc)
        rc = finish(l, err);
    return rc;
}

int learn_train(const learn_job *job, pst_err *err)
{
    learn l = {.job = job};
    int rc = read_settings(&l, err);
    if (!rc && job->check)
        say(&l, "the settings of the learner are right");
    else if (!rc) {
        rc = job->gang && job->gang->rank >= job->gang->world ? serve(&l, err) : train_all(&l, err);
        rc = let_the_cause_be_heard(&l, rc, err);
    }
    learn_pool_close(l.pool);
    learn_training_free(l.training);
    learn_ready_done(&l.ready);
    learn_data_done(&l.data);
    learn_checkpoint_done(&l.last);
    pst_learn_settings_done(&l.s);
    return rc;
}
