/* score_verb.c - penstock score run|check|dry-run|explain|replay|bench: one way to a checked pipeline for all six, so that what a check takes a run takes;
 * they part only behind it. A published pipeline is held to its name and to what may be published, whoever starts it. */
#include "common/base/log.h"
#include "common/platform/verb.h"
#include "inference/run/pipeline_check.h"
#include "inference/run/device.h"
#include "inference/offline/score_bench.h"
#include "inference/offline/score_offline.h"
#include "inference/offline/score_replay.h"
#include "inference/run/score_run.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct score_opts {
    const char *config, *in, *out, *metrics_listen, *published, *from, *to, *batches;
    bool exit_on_eof;
    int64_t records_max, slot, sample, seconds;
} score_opts;

#define CONFIG                                                                                                 \
    {                                                                                                          \
        "config", 'c', PST_OPT_STR, offsetof(score_opts, config), "FILE", NULL, "the pipeline file; - = stdin" \
    }

#define PUBLISHED                                                                                            \
    {                                                                                                        \
        "published", 0, PST_OPT_STR, offsetof(score_opts, published), "NAME", NULL,                          \
            "the file came over the topic of pipelines under this name: kafka: takes tuning only there, …" \
    }

static const pst_opt run_table[] = {
    CONFIG,
    PUBLISHED,
    {"exit-on-eof", 0, PST_OPT_BOOL, offsetof(score_opts, exit_on_eof), NULL, NULL, "end when everything that is there has been scored"},
    {"max-records", 0, PST_OPT_INT, offsetof(score_opts, records_max), "N 0..9000000000000000", NULL, "end after N records"},
    {"slot", 0, PST_OPT_INT, offsetof(score_opts, slot), "N -1..1000000", "-1",
     "number of this worker among those of the pipeline; -1 = the first free one of this host"},
    {"metrics-listen", 0, PST_OPT_STR, offsetof(score_opts, metrics_listen), "[ADDRESS:]PORT", NULL,
     "serve /metrics, /healthz and /readyz; 0 = any free port"},
};
static const pst_opt file_table[] = {CONFIG, PUBLISHED};
static const pst_opt dry_table[] = {
    CONFIG,
    {"in", 0, PST_OPT_STR, offsetof(score_opts, in), "FILE", "-", "JSON lines or an Avro container file; - = stdin"},
    {"out", 0, PST_OPT_STR, offsetof(score_opts, out), "FILE", "-", "JSON lines; - = stdout"},
};

static const pst_opt replay_table[] = {
    CONFIG,
    {"from", 0, PST_OPT_STR, offsetof(score_opts, from), "OFFSET|TIME", NULL, "the first offset of every input partition, or a time"},
    {"to", 0, PST_OPT_STR, offsetof(score_opts, to), "OFFSET|TIME", NULL, "the first offset, or time, that is left out"},
    {"out", 0, PST_OPT_STR, offsetof(score_opts, out), "FILE", "-", "JSON lines; - = stdout"},
};

static const pst_opt bench_table[] = {
    CONFIG,
    {"in", 0, PST_OPT_STR, offsetof(score_opts, in), "FILE", NULL,
     "JSON lines or an Avro container file, - = stdin; without it the newest records of the input topics"},
    {"records", 0, PST_OPT_INT, offsetof(score_opts, sample), "N 1..10000000", "20000", "how many records to take into memory"},
    {"seconds", 0, PST_OPT_INT, offsetof(score_opts, seconds), "N 1..3600", "5", "how long each batch size is measured, after a warm-up"},
    {"batch", 0, PST_OPT_STR, offsetof(score_opts, batches), "N,N,...", NULL,
     "batch sizes; without it 1, 32, 512 and the pipeline's batching.count"},
};

static const pst_usage usages[] = {
    {"score run", "-c FILE", "Score a stream: records in, scores out, dead letters aside.",
     "Runs one pipeline until it is told to stop; SIGTERM finishes the batch in hand and commits. Waits for its model, its topics and the "
     "brokers\n"
     "as long as it takes, and says why. Models swap between two batches when their alias moves.\n"
     "Exit status 3: ended by --exit-on-eof or --max-records, and some records were dead-lettered.",
     "penstock score run -c pipeline.yml\npenstock score run -c pipeline.yml --exit-on-eof\npenstock score run -c pipeline.yml "
     "--metrics-listen 9464",
     run_table, 6, false},
    {"score check", "-c FILE", "Check a pipeline file: its model, its features, the newest schemas of its topics.", NULL,
     "penstock score check -c pipeline.yml", file_table, 2, false},
    {"score dry-run", "-c FILE --in F --out F", "Score a file: one JSON line a record, with score, label and missing, or error.",
     "Needs no broker when the pipeline's model is a file. Exit status 3 when some records could not be scored.",
     "penstock score dry-run -c pipeline.yml --in records.jsonl --out scores.jsonl\npenstock cat -t telemetry -e -q | penstock score "
     "dry-run -c pipeline.yml",
     dry_table, 3, false},
    {"score explain", "-c FILE", "Show how records become scores: decode plan, feature mapping, the model's plan.", NULL,
     "penstock score explain -c pipeline.yml", file_table, 2, false},
    {"score replay", "-c FILE --from N --to N --out F", "Score a part of the input again, by the versions that scored it.",
     "Which version had which record, the recorded effective offsets say: scorers write them to the topic of models as they change models. "
     "One "
     "JSON\n"
     "line a record, as of a dry run, with source, model and variant. Exit status 3 when some records could not be scored.\n"
     "A model that draws random numbers (RandomNormal, Bernoulli, ...) draws the same for each record, by its nodes' seeds or, without "
     "one,\n"
     "by their place in the model: a replay by the same engine gives the same scores.",
     "penstock score replay -c pipeline.yml --from 0 --to 1000 --out again.jsonl\npenstock score replay -c pipeline.yml --from "
     "2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z",
     replay_table, 4, false},
    {"score bench", "-c FILE", "Measure how fast this pipeline is on this computer, without Kafka.",
     "Real records, taken once, go through decoding, model and encoding again and again; every score is first held against that of a dry "
     "run.\n"
     "Tells records/s, CPU time a record by stage (taking at the door; decoding with features, one walk over the bytes; model; encoding), "
     "times\n"
     "of a batch, memory, and how many different records there were: few are scored faster than a stream. Nothing is written anywhere.\n"
     "Exit status 3 when some records could not be scored, 1 when a score was another one than a dry run's.",
     "penstock score bench -c pipeline.yml\npenstock score bench -c pipeline.yml --in records.jsonl --batch 64,512,4096 --seconds "
     "10\npenstock score bench -c pipeline.yml --json | jq .cpu_us_per_record",
     bench_table, 5, false},
};
enum { RUN, CHECK, DRY_RUN, EXPLAIN, REPLAY, BENCH, N_USAGES };

static void print_help(FILE *f)
{
    fprintf(f, "Usage: penstock score run|check|dry-run|explain|replay|bench [options]\n\n");
    for (int i = 0; i < N_USAGES; i++)
        fprintf(f, "  %-16s %s\n", usages[i].verb, usages[i].summary);
    fprintf(f, "\npenstock score VERB --help tells more.\n\nExamples:\n  penstock score check -c pipeline.yml\n  penstock score run -c "
               "pipeline.yml\n");
}

static int load(const score_opts *o, pst_pipeline **ret_pipeline, pst_err *err)
{
    int rc = o->published ? pst_pipeline_load_published(o->config, ret_pipeline, err) : pst_pipeline_load(o->config, ret_pipeline, err);
    if (rc == 0 && o->published && strcmp((*ret_pipeline)->name, o->published) != 0)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: its name is %s, but it was published under %s", o->config,
                         (*ret_pipeline)->name, o->published);
    return rc;
}

/* The verbs share the way to a checked pipeline and part only behind it. --config and a bare argument name the same file. */
static int run_verb(int which, int argc, char **argv)
{
    score_opts o = {.slot = -1};
    pst_pipeline *p = NULL;
    pst_verb_run v;
    PST_ASSERT(which >= 0 && (size_t)which < sizeof usages / sizeof *usages);
    int rc = 0, status = pst_verb_parse(&v, &usages[which], argc, argv, &o, 0, 1);
    if (status >= 0)
        return status;
    if (o.config && v.n_args)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "unexpected argument %s", v.args[0]);
    if (rc == 0 && v.n_args)
        o.config = v.args[0];
    if (rc == 0 && !o.config)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "which pipeline? penstock %s -c pipeline.yml",
                         usages[which].verb);
    if (rc == 0)
        rc = load(&o, &p, &v.err);
    if (rc == 0 && which == RUN)
        rc = pst_pipeline_check_here(&v.settings, p, &v.err);
    if (rc == 0 && which == REPLAY) {
        rc = pst_score_device_check(p->device, &v.err);
        if (rc < 0)
            pst_err_prefix(&v.err, "%s:%d", p->file, p->line.device);
    }
    if (rc < 0) {
        status = pst_verb_end(&v, rc);
        pst_pipeline_free(p);
        return status;
    }
    if (which == RUN) {
        pst_score_run_opts r = {
            .exit_on_eof = o.exit_on_eof, .records_max = o.records_max, .slot = (int)o.slot, .metrics_listen = o.metrics_listen};
        status = pst_score_run(&v.settings, p, &r);
    } else if (which == REPLAY) {
        status = pst_score_replay(&v.settings, p, o.from, o.to, o.out);
    } else if (which == BENCH) {
        status = pst_score_bench(&v.settings, p, &(pst_score_bench_opts){o.in, o.batches, o.sample, o.seconds});
    } else if (which == DRY_RUN) {
        status = pst_score_dry_run(&v.settings, p, o.in, o.out);
    } else {
        status = pst_score_check(&v.settings, p, which == EXPLAIN);
    }
    pst_pipeline_free(p);
    pst_verb_end(&v, 0); /* whoever ran said its own errors */
    return status;
}

static int score_run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (int i = 0; i < N_USAGES; i++)
        if (!strcmp(word, usages[i].verb + strlen("score ")))
            return run_verb(i, argc - 1, argv + 1);
    bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
    if (*word && !help)
        fprintf(stderr, "penstock score: unknown verb %s\n", word);
    print_help(help ? stdout : stderr);
    return help ? 0 : 2;
}

const pst_verb pst_score_verb = {
    "score", "score a stream with a model: run, check, dry-run, explain, replay, bench", "streams", score_run,
    PST_USAGES(&usages[RUN], &usages[CHECK], &usages[DRY_RUN], &usages[EXPLAIN], &usages[REPLAY], &usages[BENCH])};
