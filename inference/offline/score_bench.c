/* score_bench.c - a pipeline's price without Kafka. The records are the user's own, read once into memory; each batch size is warmed up, checked record by
 * record against a dry run (a core of its own, in the pipeline's own batches), and then measured twice: undisturbed (rate, CPU time, time of each batch), and with the CPU clock read between
 * the stages, whose own price is measured and taken off. So the sum is not spoilt by looking at its parts. CPU time is that of the whole process: a model's
 * own threads count. Decoding and features are one walk over the bytes and so one stage.
 *
 * Repeated data are kinder than a stream to caches and branch predictors: how many different records there were is counted, and too few are said. */
#include "inference/offline/score_bench.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/stop.h"
#include "common/bus/bus.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "common/platform/verb.h"
#include "inference/offline/score_input.h"
#include "inference/offline/score_offline.h"
#include "inference/run/pipeline_check.h"
#include "inference/run/score_load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCHES_MAX = 16, BATCH_MAX = 100000, DISTINCT_WANTED = 1000, SAMPLES_MAX = 1 << 20, IDLE_MS = 15000, CLOCK_READS = 2000 };
#define BYTES_MAX (512u << 20)
#define TOLERANCE 1e-5

enum { STAGE_TAKE, STAGE_DECODE, STAGE_MODEL, STAGE_ENCODE, STAGES };
static const char *const stages[STAGES] = {"take", "decode", "model", "encode"};

typedef struct result {
    size_t batch;
    uint64_t records;
    double seconds, cpu_us;  /* cpu: a record */
    double stage_us[STAGES]; /* likewise */
    double p50_us, p99_us;   /* wall, a batch */
    int64_t rss_bytes;
} result;

/* What a dry run says of a record. */
typedef struct wanted {
    double *scores;
    size_t n;
    uint64_t hash;
} wanted;

typedef struct bench {
    const pst_settings *settings;
    pst_pipeline *p;
    const pst_score_bench_opts *o;
    pst_client *client; /* NULL = from a file */
    score_input in;
    pst_score_core *core;
    bool plain;    /* the core is a dry run's */
    pst_buf bytes; /* keys and values of the records */
    pst_record *records;
    size_t n, cap, distinct, bad, wrong, other_bits;
    wanted *wanted; /* a record */
    size_t batches[BATCHES_MAX], n_batches;
    result results[BATCHES_MAX];
    uint32_t *samples; /* ns a batch */
    size_t n_samples;
    pst_err err;
} bench;

/* ---- records ---------------------------------------------------------------------------------------------------------------- */

/* Offsets first: the buffer moves as it grows. NULL stays NULL. */
static const void *keep(bench *b, const void *data, size_t len)
{
    if (!data)
        return NULL;
    uintptr_t at = b->bytes.len + 1;
    pst_buf_add(&b->bytes, data, len);
    pst_buf_addc(&b->bytes, 0);
    return (const void *)at;
}

static bool full(const bench *b)
{
    return b->n >= (size_t)b->o->records_max || b->bytes.len >= BYTES_MAX;
}

static void add(bench *b, pst_record r)
{
    r.key = keep(b, r.key, r.key_len);
    r.value = keep(b, r.value, r.value_len);
    r.has_headers = false;
    b->records = pst_array_room(b->records, b->n, &b->cap, sizeof *b->records);
    b->records[b->n++] = r;
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void settle(bench *b)
{
    uint64_t *hashes = pst_alloc((b->n + 1) * sizeof *hashes);
    for (size_t i = 0; i < b->n; i++) {
        pst_record *r = &b->records[i];
        r->key = r->key ? b->bytes.data + (uintptr_t)r->key - 1 : NULL;
        r->value = r->value ? b->bytes.data + (uintptr_t)r->value - 1 : NULL;
        hashes[i] = r->value ? pst_fnv1a(r->value, r->value_len) : 0;
    }
    qsort(hashes, b->n, sizeof *hashes, by_hash);
    for (size_t i = 0; i < b->n; i++)
        b->distinct += !i || hashes[i] != hashes[i - 1];
    free(hashes);
}

static int read_file(bench *b)
{
    pst_slice s;
    int rc = 0;
    while (!full(b) && (rc = score_input_next(&b->in, &s, &b->err)) > 0)
        add(b, (pst_record){.topic = b->o->in, .offset = (int64_t)b->n, .timestamp_ms = -1, .value = s.data, .value_len = s.len});
    return rc < 0 ? rc : 0;
}

/* The newest of each partition, its share of them. */
static int add_ranges(bench *b, const char *topic, pst_range **ranges, size_t *n, size_t topics)
{
    pst_topic_info info = {0};
    int rc = pst_admin_topic(b->client->bus, topic, &info, 10000, &b->err);
    for (int p = 0; !rc && p < info.partitions; p++) {
        int64_t share = b->o->records_max / (int64_t)topics / info.partitions + 1, from = info.high[p] - share;
        if (info.high[p] <= info.low[p])
            continue;
        *ranges = pst_array_one_more(*ranges, *n, sizeof **ranges);
        (*ranges)[(*n)++] = (pst_range){topic, p, from < info.low[p] ? info.low[p] : from, info.high[p]};
    }
    pst_topic_info_done(&info);
    return rc;
}

static int read_ranges(bench *b, const pst_range *ranges, size_t n)
{
    pst_consumer *c = NULL;
    int rc =
        n ? pst_consumer_new(b->client->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = n, .report_eof = true}, &c, &b->err) : 0;
    int64_t last = pst_mono_us();
    for (bool end = !n; !rc && !end && !full(b) && !pst_stop_requested();) {
        pst_batch got = {0};
        pst_err e = {0};
        rc = pst_consumer_poll(c, &(pst_poll){.records_max = 2000, .bytes_max = 4 << 20, .timeout_ms = 200}, &got, &e);
        if (rc < 0)
            b->err = e;
        for (size_t i = 0; !rc && i < got.n && !full(b); i++) {
            pst_record r = got.records[i];
            r.topic = b->p->topics[0]; /* of the consumer, which goes; the name stands in the scores */
            for (size_t k = 0; k < b->p->n_topics; k++)
                if (!strcmp(got.records[i].topic, b->p->topics[k]))
                    r.topic = b->p->topics[k];
            add(b, r);
        }
        last = got.n ? pst_mono_us() : last;
        end = got.eof;
        if (!rc && !end && pst_mono_us() - last > IDLE_MS * 1000LL)
            rc = pst_err_set(&b->err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0, "no answer from the brokers for %d s%s%s", IDLE_MS / 1000,
                             e.code ? ": " : "", e.text);
    }
    pst_consumer_free(c);
    return rc;
}

static int read_topics(bench *b)
{
    pst_range *ranges = NULL;
    size_t n = 0;
    int rc = pst_client_open(b->settings, "penstock-score-bench", &b->client, &b->err);
    for (size_t i = 0; !rc && i < b->p->n_topics; i++)
        rc = add_ranges(b, b->p->topics[i], &ranges, &n, b->p->n_topics);
    if (!rc)
        rc = read_ranges(b, ranges, n);
    free(ranges);
    return rc;
}

static int read_records(bench *b)
{
    int rc = b->o->in ? read_file(b) : read_topics(b);
    if (!rc && pst_stop_requested())
        rc = pst_err_set(&b->err, PST_ESTOPPED, PST_CLASS_FATAL, "score", 0, "stopped");
    if (!rc && !b->n)
        rc = pst_err_set(&b->err, PST_ENOTFOUND, PST_CLASS_FATAL, "config", 0, "%s holds no record to measure with",
                         b->o->in         ? b->o->in
                         : b->p->n_topics ? b->p->topics[0]
                                          : "input.topics");
    if (!rc)
        settle(b);
    return rc;
}

/* ---- a batch ------------------------------------------------------------------------------------------------------------------ */

/* Gives a kind what it lacks: its schema, an id for its scores. < 0: the registry is away. */
static int give(bench *b, const pst_record *r, pst_score_need need, int32_t id)
{
    const pst_schema *schema = NULL;
    pst_err e = {0};
    if (need != PST_NEEDS_SCHEMA) {
        pst_score_core_output(b->core, id, need == PST_NEEDS_SHADOW, 1);
        return 0;
    }
    int rc = pst_codec_schema(b->client->codec, id, &schema, &e);
    if (!rc) {
        pst_score_core_schema(b->core, id, schema);
        return 0;
    }
    if (e.cls == PST_CLASS_DATA) {
        pst_score_core_refuse(b->core, r, "DECODE", "unknown-schema", e.text);
        return 1;
    }
    b->err = e;
    return rc;
}

static int take(bench *b, const pst_record *r)
{
    int32_t id;
    pst_score_need need;
    int rc = 0;
    while (!rc && (need = pst_score_core_take(b->core, r, &id)) != PST_NEEDS_NOTHING)
        rc = give(b, r, need, id);
    return rc < 0 ? rc : 0;
}

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Everything that a scorer does with a batch between poll and produce. stage_ns NULL: nobody looks. */
static int score_batch(bench *b, size_t from, size_t n, int64_t stage_ns[STAGES])
{
    int64_t at = stage_ns ? cpu_ns() : 0, next;
    int rc = 0;
#define LAP(stage)                    \
    if (stage_ns) {                   \
        next = cpu_ns();              \
        stage_ns[stage] += next - at; \
        at = next;                    \
    }
    pst_score_core_begin(b->core, 1);
    for (size_t i = 0; !rc && i < n; i++)
        rc = take(b, &b->records[from + i]);
    LAP(STAGE_TAKE)
    if (!rc)
        pst_score_core_decode(b->core);
    LAP(STAGE_DECODE)
    if (!rc)
        rc = pst_score_core_infer(b->core, &b->err);
    LAP(STAGE_MODEL)
    if (!rc && !b->plain)
        pst_score_core_finish(b->core, pst_now_us());
    LAP(STAGE_ENCODE)
#undef LAP
    return rc;
}

/* ---- the same as a dry run's ---------------------------------------------------------------------------------------------------- */

/* What is no number of a line: label, missing fields, or stage and reason. */
static uint64_t line_hash(const bench *b, const pst_score_core *core, const pst_fate *f)
{
    pst_buf text = {0};
    json_t *line = pst_score_line(core, f);
    json_object_del(line, "score");
    json_object_del(line, "error"); /* the registry says the same in other words when it is asked again */
    pst_json_add(&text, line);
    uint64_t h = pst_fnv1a(text.data, text.len);
    json_decref(line);
    pst_buf_done(&text);
    return h;
}

static size_t scores_of(const pst_fate *f, const double **ret)
{
    const char *label;
    *ret = NULL;
    return f->kind == PST_FATE_SCORED ? pst_score_core_score(f, false, ret, &label) : 0;
}

static void want(bench *b, wanted *w, const pst_fate *f)
{
    const double *scores;
    w->n = scores_of(f, &scores);
    w->scores = w->n ? memcpy(pst_alloc(w->n * sizeof *scores), scores, w->n * sizeof *scores) : NULL;
    w->hash = line_hash(b, b->core, f);
    b->bad += f->kind == PST_FATE_BAD;
}

/* Sums of other batch sizes may be made in another order: that shows in the last bits, and is counted; more than that is wrong. */
static void compare(bench *b, const wanted *w, const pst_fate *f)
{
    const double *scores;
    size_t n = scores_of(f, &scores);
    bool wrong = n != w->n || line_hash(b, b->core, f) != w->hash, bits = !wrong && n && memcmp(scores, w->scores, n * sizeof *scores) != 0;
    for (size_t i = 0; bits && i < n; i++) {
        double x = w->scores[i], y = scores[i], most = fabs(x) > 1 ? fabs(x) : 1;
        wrong |= isfinite(x) != isfinite(y) || (isfinite(x) && fabs(x - y) > TOLERANCE * most);
    }
    b->wrong += wrong;
    b->other_bits += bits && !wrong;
}

/* Each record once, in batches of this size. The first time (wanted is empty) it is the dry run. */
static int verify(bench *b, size_t batch)
{
    bool first = !b->wanted;
    int rc = 0;
    if (first)
        b->wanted = pst_alloc(b->n * sizeof *b->wanted);
    for (size_t from = 0; !rc && from < b->n && !pst_stop_requested(); from += batch) {
        size_t n = b->n - from < batch ? b->n - from : batch, taken;
        rc = score_batch(b, from, n, NULL);
        const pst_fate *fates = pst_score_core_fates(b->core, &taken);
        for (size_t i = 0; !rc && i < taken; i++) {
            if (first)
                want(b, &b->wanted[from + i], &fates[i]);
            else
                compare(b, &b->wanted[from + i], &fates[i]);
        }
    }
    return rc;
}

/* ---- measuring -------------------------------------------------------------------------------------------------------------------- */

static double clock_price_ns(void)
{
    int64_t from = cpu_ns();
    for (int i = 0; i < CLOCK_READS; i++)
        cpu_ns();
    return (double)(cpu_ns() - from) / (CLOCK_READS + 1);
}

static int64_t rss(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return -1;
    bool ok = fscanf(f, "%*s %ld", &pages) == 1;
    fclose(f);
    return ok ? pages * sysconf(_SC_PAGESIZE) : -1;
}

static int by_ns(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Over and over, whole batches only, until the time is over. */
static int run_for(bench *b, size_t batch, int64_t us, int64_t stage_ns[STAGES], uint64_t *ret_records, uint64_t *ret_batches)
{
    int64_t end = pst_mono_us() + us, before = pst_mono_ns(), after = before;
    size_t from = 0;
    int rc = 0;
    *ret_records = *ret_batches = 0;
    for (b->n_samples = 0; !rc && after / 1000 < end && !pst_stop_requested(); before = after) {
        size_t n = b->n - from < batch ? b->n - from : batch;
        rc = score_batch(b, from, n, stage_ns);
        after = pst_mono_ns();
        from = from + n < b->n ? from + n : 0;
        *ret_records += n;
        ++*ret_batches;
        if (n == batch && b->n_samples < SAMPLES_MAX)
            b->samples[b->n_samples++] = after - before < UINT32_MAX ? (uint32_t)(after - before) : UINT32_MAX;
    }
    return rc;
}

static int measure(bench *b, size_t batch, result *r)
{
    uint64_t records, batches;
    int64_t stage_ns[STAGES] = {0}, wall, us = b->o->seconds * 1000000;
    *r = (result){.batch = batch};
    int rc = run_for(b, batch, us / 5, NULL, &records, &batches); /* warm */
    wall = pst_mono_us();
    int64_t cpu = cpu_ns();
    if (!rc)
        rc = run_for(b, batch, us, NULL, &r->records, &batches);
    if (rc || !r->records)
        return rc;
    r->cpu_us = (double)(cpu_ns() - cpu) / 1000 / (double)r->records;
    r->seconds = (double)(pst_mono_us() - wall) / 1e6;
    r->rss_bytes = rss();
    qsort(b->samples, b->n_samples, sizeof *b->samples, by_ns);
    if (b->n_samples) {
        r->p50_us = b->samples[b->n_samples / 2] / 1000.0;
        r->p99_us = b->samples[b->n_samples * 99 / 100] / 1000.0;
    }
    double price = clock_price_ns();
    rc = run_for(b, batch, us / 4, stage_ns, &records, &batches);
    for (int i = 0; !rc && i < STAGES && records; i++) {
        double ns = (double)stage_ns[i] - price * (double)batches;
        r->stage_us[i] = ns > 0 ? ns / 1000 / (double)records : 0;
    }
    return rc;
}

/* ---- what is told ----------------------------------------------------------------------------------------------------------------- */

static void print_json(const bench *b, const result *r)
{
    json_t *parts = json_object();
    for (int i = 0; i < STAGES; i++)
        json_object_set_new(parts, stages[i], json_real(r->stage_us[i]));
    json_object_set_new(parts, "total", json_real(r->cpu_us));
    json_t *j =
        json_pack("{s:s, s:I, s:f, s:o, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:b}", "pipeline", b->p->name, "batch", (json_int_t)r->batch,
                  "records_per_second", (double)r->records / r->seconds, "cpu_us_per_record", parts, "p50_us", r->p50_us, "p99_us",
                  r->p99_us, "seconds", r->seconds, "rss_bytes", (json_int_t)r->rss_bytes, "records", (json_int_t)b->n, "distinct",
                  (json_int_t)b->distinct, "not_scored", (json_int_t)b->bad, "verified", b->wrong == 0);
    pst_json_print(stdout, j);
    json_decref(j);
}

static void print(const bench *b)
{
    if (!b->settings->json)
        printf("%8s %12s  %s  %9s %9s %9s %9s %9s %9s %9s\n", "BATCH", "RECORDS/S", "CPU us/record:", "TOTAL", "TAKE", "DECODE", "MODEL",
               "ENCODE", "p50 us", "p99 us");
    for (size_t i = 0; i < b->n_batches; i++) {
        const result *r = &b->results[i];
        if (!r->records)
            continue;
        if (b->settings->json)
            print_json(b, r);
        else
            printf("%8zu %12.0f  %14s  %9.3f %9.3f %9.3f %9.3f %9.3f %9.1f %9.1f\n", r->batch, (double)r->records / r->seconds, "",
                   r->cpu_us, r->stage_us[0], r->stage_us[1], r->stage_us[2], r->stage_us[3], r->p50_us, r->p99_us);
    }
    fflush(stdout);
    if (b->settings->quiet)
        return;
    int64_t last = b->n_batches ? b->results[b->n_batches - 1].rss_bytes : -1;
    fprintf(stderr, "%zu records, %zu of them different, %zu not scored (dead letters); %.1f MiB of memory, %.1f of them records\n", b->n,
            b->distinct, b->bad, (double)last / (1 << 20), (double)b->bytes.len / (1 << 20));
    if (b->other_bits)
        fprintf(stderr,
                "%zu scores differ from a dry run's in their last bits (less than %g): sums of other batch sizes have another order\n",
                b->other_bits, TOLERANCE);
    fprintf(stderr, "Kafka is not in these figures: fetching and producing cost more than most models\n");
    if (b->distinct < DISTINCT_WANTED)
        fprintf(stderr,
                "warning: %zu different records are few: caches and branch predictors know them by heart, and a stream will be slower than "
                "this; give %d or more\n",
                b->distinct, DISTINCT_WANTED);
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------------- */

static int add_batch(bench *b, size_t n)
{
    for (size_t i = 0; i < b->n_batches; i++)
        if (b->batches[i] == n)
            return 0;
    if (b->n_batches == BATCHES_MAX)
        return pst_err_set(&b->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--batch: %d sizes at most", BATCHES_MAX);
    b->batches[b->n_batches++] = n;
    return 0;
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static int parse_batches(bench *b)
{
    const char *text = b->o->batches;
    int rc = 0;
    if (!text) {
        add_batch(b, 1);
        add_batch(b, 32);
        add_batch(b, 512);
        add_batch(b, b->p->batch_count);
    }
    while (text && *text && !rc) {
        char *end;
        long n = strtol(text, &end, 10);
        if (end == text || n < 1 || n > BATCH_MAX || (*end && *end != ','))
            return pst_err_set(&b->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                               "--batch %.80s: wanted numbers of 1 to %d with commas between", b->o->batches, BATCH_MAX);
        rc = add_batch(b, (size_t)n);
        text = *end ? end + 1 : end;
    }
    if (!rc && !b->n_batches)
        rc = pst_err_set(&b->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--batch is empty");
    qsort(b->batches, b->n_batches, sizeof *b->batches, by_size);
    return rc;
}

/* Takes the binding. plain: a dry run's core, which encodes nothing. */
static void open_core(bench *b, pst_binding *take, bool plain)
{
    pst_score_core_free(b->core);
    b->plain = plain;
    b->core = pst_score_core_new(b->p, &(pst_score_core_opts){.unframed = b->o->in != NULL, .scores_only = plain});
    if (b->in.ocf)
        pst_score_core_schema(b->core, 0, score_ocf_schema(b->in.ocf));
    pst_score_core_offer(b->core, PST_VARIANT_PRIMARY, take, NULL, 0);
}

/* What a dry run says of the records; then the core that is measured, with a model of its own. */
static int dry_run(bench *b, size_t own)
{
    pst_binding *binding = NULL;
    int rc = verify(b, own);
    if (!rc)
        rc = pst_score_load_model(b->settings, b->p, &binding, &b->err);
    if (!rc)
        open_core(b, binding, false);
    return rc;
}

static int prepare(bench *b, size_t *ret_own)
{
    pst_binding *binding = NULL;
    int rc = parse_batches(b);
    if (rc < 0)
        return rc;
    *ret_own = b->p->batch_count;
    size_t largest = b->batches[b->n_batches - 1];
    if (largest > b->p->batch_count)
        b->p->batch_count = largest; /* rooms are made for it; batches are as large as they are asked for */
    b->p->has_canary = b->p->has_shadow = false;
    pst_check_opts o = {.may_be_alone = b->p->model.file && b->o->in};
    rc = pst_pipeline_check(b->settings, b->p, &o, &binding, &b->err);
    if (!rc && b->o->in) {
        rc = score_input_open(&b->in, b->o->in, &b->err);
        b->p->format = b->in.ocf ? PST_INPUT_AVRO : PST_INPUT_JSON;
    }
    if (!rc)
        rc = read_records(b);
    if (rc < 0) {
        pst_binding_free(binding);
        return rc;
    }
    open_core(b, binding, true);
    b->samples = pst_alloc(SAMPLES_MAX * sizeof *b->samples);
    return 0;
}

int pst_score_bench(const pst_settings *settings, pst_pipeline *p, const pst_score_bench_opts *o)
{
    bench b = {.settings = settings, .p = p, .o = o};
    size_t own = 0;
    int rc = 0, status = 0;
    if (p->state.there) /* what it costs depends on how many keys there are and what they hold, and each turn would find other windows */
        rc = pst_err_set(
            &b.err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "config", 0,
            "%s:%d: state: records that go round and round would fill their own windows, so no price is told; take the windows out to "
            "measure the rest",
            p->file, p->line.state);
    else
        rc = prepare(&b, &own);
    if (!rc)
        rc = dry_run(&b, own);
    for (size_t i = 0; !rc && i < b.n_batches && !pst_stop_requested(); i++) {
        if (b.batches[i] > b.n) { /* no batch can be that large */
            if (i && b.batches[i - 1] >= b.n)
                break;
            b.batches[i] = b.n;
        }
        rc = verify(&b, b.batches[i]);
        if (!rc)
            rc = measure(&b, b.batches[i], &b.results[i]);
    }
    if (!rc && pst_stop_requested())
        rc = pst_err_set(&b.err, PST_ESTOPPED, PST_CLASS_FATAL, "score", 0, "stopped");
    if (!rc && b.wrong)
        rc = pst_err_set(&b.err, PST_ESTATE, PST_CLASS_FATAL, "score", 0,
                         "%zu results are not those of a dry run (more than %g off): no speed is told of wrong results; please report this",
                         b.wrong, TOLERANCE);
    if (rc < 0) {
        status = pst_verb_say("score bench", settings, &b.err);
    } else {
        print(&b);
        status = b.bad ? 3 : 0;
    }
    pst_score_core_free(b.core);
    score_input_done(&b.in);
    free(b.records);
    for (size_t i = 0; b.wanted && i < b.n; i++)
        free(b.wanted[i].scores);
    free(b.wanted);
    free(b.samples);
    pst_buf_done(&b.bytes);
    pst_client_close(b.client);
    return status;
}
