/* score_run.c - the shell of the scorer: wires Kafka, the registry and the models to the core, and loops.
 *
 *     poll ─ batch ─ core ─ fates ─ send ─ … ─ commit (offsets, scores, dead letters: one transaction)
 *       │             │       │       │            │
 *     lost: throw   slow:  must wait: too large:   EAGAIN: the round did not happen, the consumer is back where it was
 *     the round     aside  hold its   dead letter  EFENCED: somebody has our id: take another one, or stand by
 *     away                 partition               else: the position is not known: open consumer and producer again
 *
 * A round is committed as soon as the worker has caught up, else after 100 ms: a transaction costs four round trips however many records it
 * holds. It is begun after the computing, and committed before a batch that may not fit into its time-out. Nothing here exits because of an
 * outage: a partition whose next record has to wait is held, alone, and the consumer goes on being polled. */
#include "inference/run/score_run.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "engine/cuda/events.h"
#include "inference/run/score_load.h"
#include "inference/run/score_priv.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_MAX = 5, ROUND_US = 100000, ROUND_RECORDS = 200000, ROUND_BYTES = 64 << 20 };
enum { HOLD_MS = 100, HOLD_MAX_MS = 10000 }; /* a partition whose next record cannot be handled */
enum {
    BATCH_US = 2000000,
    ASIDE_US = 200000,
    ASIDE_MS = 100
}; /* a batch is cut to this; one that takes longer than ASIDE_US is computed aside */

/* ---- models ---------------------------------------------------------------------------------------------------------------- */

static const char *const variant_names[] = {"PRIMARY", "CANARY", "SHADOW"};

/* A model that would not take what the one in use takes is not taken: the other stays until the alias is moved again. */
static bool refused(scorer *s, score_model_news *n)
{
    pst_err why = {0};
    const pst_binding *b = n->binding, *kept = pst_score_core_binding(s->core, n->variant);
    if (pst_score_core_fits(s->core, n->variant, n->binding, &why) == 0)
        return false;
    pst_log_limited(PST_LOG_ERROR, "score", "model_refused",
                    "event=model_refused pipeline=%s variant=%s model=%s version=%d kept=%d error=\"%s\"", s->p->name,
                    variant_names[n->variant], pst_binding_name(b), pst_binding_version(b), kept ? pst_binding_version(kept) : 0, why.text);
    pst_metric_add(s->stats->swap_failures, 1);
    score_stats_refused(s->stats, pst_binding_name(b), pst_binding_version(b), why.text);
    score_model_news_done(n);
    return true;
}

static void tell_device(const scorer *s, pst_log_level level, const char *event, pst_variant v, const pst_binding *b)
{
    const char *why, *device = pst_binding_device(b, &why);
    pst_log(level, "score", "event=%s pipeline=%s variant=%s model=%s device=%s why=\"%s\"", event, s->p->name, variant_names[v],
            pst_binding_name(b), device, why);
    if (!strncmp(device, "cuda", 4))
        pst_cuda_events_begin();
}

static void tell_threads(const scorer *s, const pst_binding *b)
{
    int threads = pst_binding_threads(b);
    if (s->p->threads > 1)
        pst_log(threads < s->p->threads ? PST_LOG_WARN : PST_LOG_INFO, "score", "event=threads pipeline=%s model=%s threads=%d asked=%d%s",
                s->p->name, pst_binding_name(b), threads, (int)s->p->threads,
                threads < s->p->threads ? " why=\"this process may use no more CPUs\"" : "");
}

/* Behind a run, when nobody else has the core: each model is looked at, also one that is about to be replaced. */
static void look_at_devices(scorer *s)
{
    for (const pst_lane *l; (l = pst_score_core_device_changed(s->core));) {
        const pst_binding *b = pst_score_core_lane_binding(l);
        bool lost = pst_binding_device_lost(b);
        tell_device(s, PST_LOG_WARN, lost ? "device_lost" : "device_changed", pst_score_core_lane_variant(l), b);
        if (lost)
            pst_metric_add(s->stats->device_lost, 1);
    }
}

/* The partitions that are ours: a change that waits for offsets of others waits for nothing, nor does one where its offset is the next to come, as
 * on a partition without records. Inside a round what was read may come again, so that no place is known. */
static void tell_places(scorer *s, pst_variant v)
{
    pst_range at[256];
    size_t have = pst_consumer_assignment(s->consumer, at, 256), n = have < 256 ? have : 256;
    for (size_t i = 0; s->round.open && i < n; i++)
        at[i].from = -1;
    pst_score_core_assigned(s->core, v, at, n);
}

/* Between two batches: models that became ready go to work. */
static void take_models(scorer *s)
{
    if (!s->follow)
        return;
    scorer_canary_hear(s);
    for (int v = 0; v < 3; v++) {
        score_model_news *n = &s->held[v];
        if (!n->binding || !s->consumer)
            continue;
        tell_places(s, (pst_variant)v);
        if (pst_score_core_offer(s->core, n->variant, n->binding, n->from, n->n_from) == PST_EAGAIN)
            continue;
        n->binding = NULL;
        score_model_news_done(n);
    }
    score_model_news n;
    while (!s->held[0].binding && !s->held[1].binding && !s->held[2].binding && score_follow_take(s->follow, &n)) {
        if (refused(s, &n))
            continue;
        const pst_binding *b = n.binding;
        pst_log(PST_LOG_INFO, "score", "event=model_swap pipeline=%s variant=%s model=%s version=%d digest=%.12s at=%s", s->p->name,
                variant_names[n.variant], pst_binding_name(b), pst_binding_version(b), pst_binding_digest(b),
                n.n_from ? "offsets" : "once");
        tell_device(s, PST_LOG_INFO, "device", n.variant, b);
        tell_threads(s, b);
        score_stats_model(s->stats, pst_binding_name(b), pst_binding_version(b), pst_binding_digest(b), variant_names[n.variant]);
        if (!n.kept)
            score_stats_refused(s->stats, NULL, 0, NULL);
        score_note_model(s->note, (int)n.variant, pst_binding_digest(b));
        s->round.row_kept = 0; /* what the model before could not score, this one may */
        s->pace = (score_pace){0};
        if (pst_score_core_offer(s->core, n.variant, n.binding, n.from, n.n_from) == PST_EAGAIN) {
            s->held[n.variant] = n;
            continue;
        }
        n.binding = NULL;
        score_model_news_done(&n);
    }
}

static int await_model(scorer *s)
{
    if (s->p->model.file) {
        pst_binding *b = NULL;
        int rc = pst_score_load_file(s->p, s->p->model.file, &b, &s->err);
        if (rc < 0)
            return rc;
        score_stats_model(s->stats, pst_binding_name(b), 0, pst_binding_digest(b), "PRIMARY");
        tell_device(s, PST_LOG_INFO, "device", PST_VARIANT_PRIMARY, b);
        tell_threads(s, b);
        score_note_model(s->note, PST_VARIANT_PRIMARY, pst_binding_digest(b));
        pst_score_core_offer(s->core, PST_VARIANT_PRIMARY, b, NULL, 0);
        return 0;
    }
    int rc = score_follow_start(s->settings, s->p, s->stats, &s->follow, &s->err);
    int64_t logged_us = 0;
    char said[480] = "";
    while (rc == 0 && !pst_stop_requested()) {
        pst_dump_serve(s->dump);
        take_models(s);
        bool there = pst_score_core_binding(s->core, PST_VARIANT_PRIMARY);
        char why[480];
        score_follow_why(s->follow, why, sizeof(why));
        score_stats_wait(s->stats, PST_WAIT_MODEL, there ? NULL : "model", why);
        if (there)
            return 0;
        if (pst_mono_us() - logged_us > 30000000 || (strcmp(why, said) && pst_mono_us() - logged_us > 2000000)) {
            if (logged_us || why[0] != 't') /* "the topic … is being read": only when it takes long */
                pst_log(PST_LOG_INFO, "score", "event=waiting pipeline=%s for=model why=\"%s\"", s->p->name, why);
            logged_us = pst_mono_us();
            memcpy(said, why, sizeof(said));
        }
        pst_sleep_ms(50);
    }
    return rc < 0 ? rc : PST_ESTOPPED;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------------- */

/* What a step of a round came to, besides 0 and an error: the round was thrown away, its records come again, and so does the batch in hand. */
enum { ROUND_GONE = 1 };

static void round_again(scorer *s, const char *why)
{
    pst_log_limited(PST_LOG_INFO, "score", "round_again", "event=round_again pipeline=%s why=\"%s\"", s->p->name, why);
    score_round_clear(&s->round);
    scorer_state_undo(s);
    pst_metric_add(s->stats->aborts_total, 1);
    s->stats->aborts++;
    pst_err_clear(&s->err);
}

/* Back to the committed offsets, whether or not something was sent. */
static int throw_away(scorer *s, const char *why)
{
    bool open = s->round.open;
    round_again(s, why);
    int rc = open ? pst_txn_abort(s->txn, &s->err) : pst_consumer_rewind(s->consumer, &s->err);
    return rc < 0 ? rc : ROUND_GONE;
}

/* 0, ROUND_GONE or an error. Only PST_EAGAIN says that the consumer is back where the round began: whatever else goes wrong, its position is not
 * known, and it is opened again. */
static int commit(scorer *s)
{
    if (!s->round.open)
        return 0;
    int64_t start = pst_mono_us();
    int rc = scorer_state_send(s);
    if (rc < 0)
        return rc == PST_EAGAIN ? throw_away(s, s->err.text) : rc;
    bool stops = scorer_canary_judge(s);
    scorer_report(s);
    rc = pst_txn_commit(s->txn, &s->err);
    int64_t end = pst_mono_us();
    scorer_canary_commit(s, stops, rc == 0);
    if (rc == 0) {
        s->done += s->round.records;
        s->dead += s->round.dead;
        if (s->round.dead)
            pst_log_limited(PST_LOG_INFO, "score", "dead_letters", "event=dead_letters pipeline=%s count=%llu total=%llu first=%s/%s",
                            s->p->name, (unsigned long long)s->round.dead, (unsigned long long)s->dead, s->round.reasons[0].stage,
                            s->round.reasons[0].reason);
        pst_metric_observe(s->stats->commit, (double)(end - start) / 1e6);
        scorer_was_taken(s);
        scorer_state_committed(s);
        score_round_commit(&s->round, s->core, s->stats, pst_now_us());
        s->stats->lag = pst_consumer_lag(s->consumer);
        s->again = 0;
        return 0;
    }
    scorer_report_failed(s);
    bool by_record = rc == PST_EAGAIN && scorer_was_refused(s);
    score_round_clear(&s->round);
    scorer_state_undo(s);
    if (rc != PST_EAGAIN)
        return rc;
    if (!by_record && ++s->again >= AGAIN_MAX) /* nothing gets through: the consumer or the producer is fenced and does not know */
        return PST_EFENCED;
    round_again(s, s->err.text);
    return ROUND_GONE;
}

/* This record cannot be handled now: its partition waits for it, alone. The round goes on, with what was marked before it. */
static int hold(scorer *s, const pst_record *r, const pst_err *why)
{
    pst_err reason = *why;
    pst_err_clear(&s->err);
    if (pst_mono_us() - s->waiting_logged_us > 10000000) {
        pst_log(PST_LOG_WARN, "score", "event=waiting pipeline=%s topic=%s partition=%d offset=%lld why=\"%s\"", s->p->name, r->topic,
                r->partition, (long long)r->offset, reason.text);
        s->waiting_logged_us = pst_mono_us();
    }
    bool known = reason.code == PST_EAGAIN; /* the registry's answer will not change before that */
    int rc = pst_consumer_hold(s->consumer, r->topic, r->partition, r->offset, known ? PST_SCHEMA_WAIT_MS : HOLD_MS,
                               known ? PST_SCHEMA_WAIT_MS : HOLD_MAX_MS, &s->err);
    if (rc == 0 && pst_consumer_held(s->consumer, r->topic, r->partition)) /* else it was taken away meanwhile */
        scorer_waits(s, r, &reason);
    return rc;
}

static int hold_all(scorer *s, const pst_record *records, size_t n, const pst_err *why)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!pst_consumer_held(s->consumer, records[i].topic, records[i].partition))
            rc = hold(s, &records[i], why);
    return rc;
}

/* ---- one batch ------------------------------------------------------------------------------------------------------------- */

/* After what was before them has been sent. */
static int hold_stopped(scorer *s)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_stops; i++) {
        scorer_state_undo_from(s, s->stops[i].at);
        rc = hold(s, s->stops[i].at, &s->stops[i].why);
    }
    return rc;
}

/* On the worker: the group is served meanwhile, so that nobody waits for us at a rebalance or takes us for dead. */
static int run_aside(scorer *s, pst_err *why, bool *ret_lost)
{
    int rc = 0;
    pst_err e = {0};
    score_work_start(s->work);
    if (!score_work_wait(s->work, ASIDE_MS)) {
        rc = pst_consumer_pause(s->consumer, true);
        while (!score_work_wait(s->work, rc < 0 ? ASIDE_MS : 0))
            if (rc == 0)
                rc = pst_consumer_serve(s->consumer, ASIDE_MS, ret_lost, &e);
        int back = pst_consumer_pause(s->consumer, false);
        if (rc == 0 && back < 0)
            rc = pst_err_set(&e, back, PST_CLASS_FATAL, "kafka", 0, "cannot resume the consumer");
    }
    if (rc < 0) {
        s->err = e;
        *ret_lost = true;
        return rc;
    }
    return score_work_result(s->work, why);
}

static void note_begins(scorer *s)
{
    size_t n = 0;
    const pst_fate *fates = pst_score_core_fates(s->core, &n);
    for (size_t i = 0; i < n; i++) /* of records that are bad already nothing is computed */
        if (fates[i].kind == PST_FATE_OPEN) {
            score_note_begins(s->note, s->round.records, n, fates[n - 1].record);
            return;
        }
}

static int run_here(scorer *s, pst_err *why)
{
    score_note_computes(true);
    int rc = pst_score_core_run(s->core, why);
    score_note_computes(false);
    return rc;
}

static int run_core(scorer *s, size_t n, pst_err *why, bool *ret_lost)
{
    int64_t start = pst_mono_us(), expect = score_pace_expect_us(&s->pace, n);
    bool quick = expect >= 0 && expect < ASIDE_US;
    note_begins(s);
    int rc = quick ? run_here(s, why) : run_aside(s, why, ret_lost);
    int64_t took = pst_mono_us() - start;
    if (rc == 0)
        score_pace_learn(&s->pace, n, took);
    pst_metric_observe(s->stats->decode, (double)took / 1e6);
    return rc;
}

/* Of its transaction's time-out a round uses half, computing included; what comes later goes into a round of its own. */
static bool fits(const scorer *s, int64_t expect_us)
{
    return expect_us >= 0 && pst_mono_us() - s->round.begun_us + expect_us < pst_txn_timeout_ms(s->txn) * 500LL;
}

static int begin(scorer *s)
{
    int rc = s->round.open ? 0 : pst_txn_begin(s->txn, &s->err);
    if (rc < 0 || s->round.open)
        return rc;
    s->round.open = true;
    s->round.begun_us = pst_mono_us();
    return 0;
}

/* A record that did not go out, because it has to wait, because an outage ends the round, or because the pipeline is to end at it. */
static int not_emitted(scorer *s, const pst_fate *fates, size_t i, size_t n, int rc)
{
    const pst_record *r = fates[i].record;
    if (rc == PST_EAGAIN) /* the producer's queue stays full: an outage */
        return throw_away(s, s->err.text);
    pst_err why = s->err;
    if (rc != PST_EFENCED && scorer_retriable(rc, &why)) {
        pst_err_clear(&s->err);
        scorer_stop_at(s, r, &why);
        return 0;
    }
    if (why.cls == PST_CLASS_DATA) { /* the pipeline's own word that it ends here */
        pst_err_clear(&s->err);
        for (; i < n; i++)
            scorer_state_undo_from(s, fates[i].record);
        for (size_t k = 0; k < s->n_stops; k++) /* nor has what lies behind those that stopped their partitions */
            scorer_state_undo_from(s, s->stops[k].at);
        commit(s); /* what was scored before it stays */
        s->err = why;
    }
    return rc;
}

/* The batch's fates go out. */
static int emit_all(scorer *s)
{
    size_t n = 0;
    const pst_fate *fates = pst_score_core_fates(s->core, &n);
    int rc = n ? begin(s) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const pst_record *r = fates[i].record;
        if (scorer_is_stopped(s, r))
            continue; /* it is behind one that waits */
        pst_txn_of(s->txn, r);
        rc = scorer_emit(s, &fates[i]);
        pst_txn_of(s->txn, NULL);
        if (rc < 0) {
            rc = not_emitted(s, fates, i, n, rc);
            continue;
        }
        score_round_record(&s->round, r);
        pst_consumer_mark(s->consumer, r->topic, r->partition, r->offset + 1);
        score_stats_used_record(s->stats, r);
    }
    return rc;
}

/* No record is to blame where each brings the scorer down: it waits for another model. A run that nobody watches ends. */
static int paused_by_crashes(scorer *s, const pst_record *records, size_t n)
{
    bool ends = s->opts->exit_on_eof || s->opts->records_max;
    pst_err why = {0};
    pst_err_set(
        &why, PST_ESTATE, ends ? PST_CLASS_DATA : PST_CLASS_RETRY, "score", 0,
        "paused: the model brought the scorer down at one record after another, so it is not computed again; move the alias to another "
        "version, or delete %s/score/%s.%d.note and start again to try it once more",
        s->settings->state_dir.value, s->p->name, s->slot.number);
    if (!ends)
        return hold_all(s, records, n, &why);
    s->err = why;
    return why.code;
}

/* 0: every record was used, or its partition waits for it. */
static int score_batch(scorer *s, const pst_record *records, size_t n)
{
    pst_err why = {0};
    bool lost = false;
    if (score_note_is_hopeless(s->note))
        return paused_by_crashes(s, records, n);
    if (scorer_state_is_old(s))
        return throw_away(s, "partitions were given or taken");
    int rc = scorer_meet(s, records, n);
    if (rc < 0) {
        why = s->err;
        return scorer_retriable(rc, &why) ? hold_all(s, records, n, &why) : rc;
    }
    bool alone = !fits(s, score_pace_expect_us(&s->pace, n)) || scorer_state_lacks(s, records, n);
    rc = s->round.open && alone ? commit(s) : 0;
    if (rc != 0)
        return rc;
    if ((rc = scorer_take(s, records, n)) < 0)
        return rc;
    if (s->state_lost)
        return throw_away(s, "partitions were given or taken");
    size_t taken = 0;
    pst_score_core_fates(s->core, &taken);
    rc = taken ? run_core(s, taken, &why, &lost) : 0;
    if (rc < 0 || lost)
        score_note_ends(s->note);
    if (taken && rc == 0 && !lost)
        look_at_devices(s);
    s->waits_unsettled |= lost;
    if (lost)
        return rc < 0 && s->err.code ? rc : throw_away(s, "partitions were given or taken");
    if (rc < 0 && scorer_canary_gives_up(s, &why))
        return throw_away(s, "the canary's model fails on every record");
    if (rc < 0 && (s->opts->exit_on_eof || s->opts->records_max || why.cls != PST_CLASS_RETRY)) {
        s->err = why;
        return why.code;
    }
    if (rc < 0) /* the model fails on everything */
        return hold_all(s, records, n, &why);
    int64_t scored = pst_mono_us();
    score_note_computes(true);
    pst_score_core_finish(s->core, pst_now_us());
    score_note_computes(false);
    score_note_ends(s->note);
    s->round.canary.us += pst_score_core_canary_us(s->core);
    if ((rc = emit_all(s)) != 0)
        return rc;
    s->stats->batches++;
    s->stats->batch_records += taken;
    pst_metric_observe(s->stats->emit, (double)(pst_mono_us() - scored) / 1e6);
    return hold_stopped(s);
}

/* One poll and what follows from it. 1 = the end that the options asked for. */
static int step(scorer *s)
{
    const pst_pipeline *p = s->p;
    pst_batch b = {0};
    pst_err e = {0};
    bool busy = s->round.open;
    size_t most = score_pace_batch(&s->pace, p->batch_count, BATCH_US);
    uint64_t round_most = s->suspects.most ? s->suspects.most : ROUND_RECORDS;
    if (score_note_careful(s->note))
        most = 1;
    if (most > round_most - s->round.records)
        most = (size_t)(round_most - s->round.records);
    pst_poll how = {
        .records_max = most, .bytes_max = p->batch_bytes, .age_max_us = busy ? 0 : p->batch_age_us, .timeout_ms = busy ? 0 : 100};
    int rc = pst_consumer_poll(s->consumer, &how, &b, &e);
    if (rc < 0) {
        s->err = e;
        return rc;
    }
    if (e.code)
        pst_log_err("score", &e);
    scorer_rejoined(s);
    s->waits_unsettled |= b.lost;
    scorer_waits_settle(s);
    if (b.lost && busy) { /* the round's records come again, here or elsewhere, and this batch's with them */
        rc = throw_away(s, "partitions were given or taken");
        return rc < 0 ? rc : 0;
    }
    size_t n = b.n;
    uint64_t max = (uint64_t)s->opts->records_max, taken = s->done + s->round.records;
    if (max && taken + n > max)
        n = (size_t)(max - taken);
    rc = n ? score_batch(s, b.records, n) : 0;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    bool full = max && s->done + s->round.records >= max;
    bool long_enough = pst_mono_us() - s->round.begun_us >= ROUND_US || s->round.records >= round_most || s->round.bytes >= ROUND_BYTES;
    if (s->round.open && (b.n < most || long_enough || full || b.eof))
        rc = commit(s);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (!b.n)
        s->stats->lag = pst_consumer_lag(s->consumer);
    bool settled = !s->round.open;
    return settled && ((full && s->done >= max) || (b.eof && s->opts->exit_on_eof && !pst_consumer_holds(s->consumer)));
}

static int loop(scorer *s)
{
    int rc = 0;
    while (rc == 0 && !pst_stop_requested()) {
        pst_dump_serve(s->dump);
        take_models(s);
        rc = step(s);
        /* Whatever Kafka says against this consumer or producer is no reason to end, unless it will say the same to the next ones. */
        if (pst_bus_reopens(rc, &s->err))
            rc = rc == PST_EFENCED ? scorer_after_fencing(s) : scorer_reopen(s);
    }
    if (rc == 0)
        rc = commit(s); /* told to stop: what is in hand is finished, or (> 0) comes again at the next start */
    return rc < 0 ? rc : 0;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static void open_note(scorer *s)
{
    score_crash crash;
    if (s->slot.fd < 0 && s->opts->slot < 0) /* the number may be another's, too */
        return;
    s->note = score_note_open(s->settings->state_dir.value, s->p->name, s->slot.number, &crash);
    if (crash.signal)
        pst_log(PST_LOG_ERROR, "score", "event=crashed_before pipeline=%s signal=%d records=%llu last=%s[%d]@%lld why=\"%s\"", s->p->name,
                crash.signal, (unsigned long long)crash.records, crash.topic, crash.partition, (long long)crash.offset,
                crash.records == 1 ? "this record brings the scorer down: it becomes a dead letter"
                                   : "one of these records brought the scorer down: they are computed one by one");
}

/* What can be wrong by itself comes before what others see of this scorer: its slot, its port. */
static int set_up(scorer *s)
{
    const pst_pipeline *p = s->p;
    if (!p->n_topics)
        return pst_err_set(&s->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: input.topics is missing; write input: {topics: [NAME]}",
                           p->file);
    if (!p->output_topic)
        return pst_err_set(&s->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: output.topic is missing; write output: {topic: NAME}",
                           p->file);
    if (p->state.there && s->settings->embedded)
        return pst_err_set(&s->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "%s:%d: state: needs transactions, which the in-memory broker has not; use a Kafka (penstock up --kafka)",
                           p->file, p->line.state);
    int rc = pst_client_open(s->settings, "penstock-score", &s->client, &s->err);
    if (rc < 0 || (rc = scorer_configure(s)) < 0)
        return rc;
    s->group = p->group ? pst_strdup(p->group) : pst_sprintf("%sscore.%s", s->settings->prefix.value, p->name);
    s->inputs = pst_alloc((p->n_topics + 1) * sizeof(*s->inputs));
    for (size_t i = 0; i < p->n_topics; i++)
        s->inputs[i] =
            (score_input_topic){.name = p->topics[i], .dlq = p->dlq_topic ? pst_strdup(p->dlq_topic) : pst_sprintf("%s.dlq", p->topics[i])};
    s->unknown = pst_unknown_new((PST_SCHEMA_WAIT_MS - 100) * 1000LL);
    s->core = pst_score_core_new(p, &(pst_score_core_opts){.clock_us = p->budget.latency_us ? pst_mono_us : NULL});
    scorer_canary_begin(s);
    s->work = score_work_new(s->core);
    const char *warning = pst_bus_conf_warning(s->conf);
    if (warning)
        pst_log(PST_LOG_WARN, "score", "event=kafka_warning why=\"%s\"", warning);
    if ((rc = scorer_take_slot(s)) < 0)
        return rc;
    open_note(s);
    s->worker = pst_sprintf("scorer-%s", s->slot.id);
    s->round.reports = s->reports = score_reports_new(p);
    if ((rc = pst_dump_new("score", scorer_dump, s, &s->dump, &s->err)) < 0)
        return rc;
    s->stats->dump = s->dump;
    rc = score_stats_start(s->stats, s->settings, s->worker, s->opts->metrics_listen, &s->err);
    if (rc == 0 && score_stats_port(s->stats))
        pst_log(PST_LOG_INFO, "score", "event=metrics pipeline=%s port=%d path=/metrics", p->name, score_stats_port(s->stats));
    return rc;
}

static void tear_down(scorer *s)
{
    score_follow_stop(s->follow);
    score_note_close(s->note); /* before the slot, whose next owner opens it */
    s->note = NULL;
    pst_consumer_leave(s->consumer); /* a clean end: others take the partitions at once */
    scorer_close(s);
    s->stats->ready = false;
    score_stats_stop(s->stats);
    pst_dump_free(s->dump);
    for (int v = 0; v < 3; v++)
        score_model_news_done(&s->held[v]);
    score_work_free(s->work);
    scorer_drift_end(s);
    pst_score_core_free(s->core);
    for (size_t i = 0; s->inputs && i < s->p->n_topics; i++)
        free(s->inputs[i].dlq);
    free(s->inputs);
    score_round_done(&s->round);
    free(s->too_large);
    pst_suspects_done(&s->suspects);
    pst_unknown_free(s->unknown);
    free(s->stops);
    score_reports_free(s->reports);
    free(s->worker);
    free(s->group);
    free(s->txn_id);
    free(s->instance_id);
    pst_header_room_done(&s->headers);
    pst_buf_done(&s->texts);
    pst_bus_conf_free(s->conf);
    pst_client_close(s->client);
    score_stats_free(s->stats);
}

/* From the first door to the last commit. What failed before a round began leaves nothing to undo but memory. */
int pst_score_run(const pst_settings *settings, const pst_pipeline *p, const pst_score_run_opts *opts)
{
    scorer s = {.settings = settings, .p = p, .opts = opts, .slot = {.fd = -1}, .state_epoch = UINT64_MAX};
    s.stats = score_stats_new(p->name);
    int rc = set_up(&s);
    if (rc == 0)
        rc = await_model(&s);
    if (rc == 0)
        rc = scorer_await_topics(&s);
    if (rc == 0) {
        rc = scorer_open(&s);
        if (rc == PST_EFENCED)
            rc = scorer_after_fencing(&s);
    }
    if (rc == 0) {
        const pst_binding *b = pst_score_core_binding(s.core, PST_VARIANT_PRIMARY);
        s.stats->ready = true;
        pst_log(PST_LOG_INFO, "score", "event=running pipeline=%s model=%s version=%d group=%s guarantee=%s bus=%s id=%s", p->name,
                pst_binding_name(b), pst_binding_version(b), s.group, p->exactly_once ? "exactly_once" : "at_least_once",
                pst_bus_conf_client_name(s.conf), s.txn_id);
        if (pst_engine_warning())
            pst_log(PST_LOG_WARN, "score", "event=kernels pipeline=%s warning=\"%s\"", p->name, pst_engine_warning());
        rc = loop(&s);
    }
    bool stopped = rc == PST_ESTOPPED || (rc < 0 && pst_stop_requested() && s.err.cls == PST_CLASS_RETRY);
    if (stopped)
        rc = 0;
    if (rc < 0)
        pst_say_err("score run", &s.err);
    uint64_t done = s.done, dead = s.dead;
    tear_down(&s);
    pst_log(PST_LOG_INFO, "score", "event=stopped pipeline=%s records=%llu dead_letters=%llu", p->name, (unsigned long long)done,
            (unsigned long long)dead);
    if (rc < 0)
        return s.err.code ? pst_err_exit(&s.err) : 1;
    return dead && (opts->exit_on_eof || opts->records_max) ? 3 : 0;
}
