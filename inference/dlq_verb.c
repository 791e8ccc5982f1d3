/* dlq_verb.c - penstock dlq ls|show|replay: whose dead letters are meant. A name is a published pipeline's or a topic's, a file is a pipeline's; a pipeline
 * knows its topics of dead letters, and which inputs they may name. */
#include "common/platform/verb.h"
#include "inference/letters.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LS, SHOW, REPLAY, N_VERBS };

typedef struct dlq_opts {
    const char *config, *reason, *stage, *source, *partition, *since, *until, *by, *to;
    bool full, dry_run, yes;
} dlq_opts;
#define AT(f) offsetof(dlq_opts, f)
#define CONFIG                                                                                                \
    {                                                                                                         \
        "config", 'c', PST_OPT_STR, AT(config), "FILE", NULL, "the dead letters of the pipeline in this file" \
    }
#define FILTERS                                                                                                           \
    {"reason", 0, PST_OPT_STR, AT(reason), "WORD", NULL, "those with this reason or exception class"},                    \
        {"stage", 0, PST_OPT_STR, AT(stage), "WORD", NULL, "those of this stage: DECODE, MAP, INFER, ENCODE, PRODUCE"},   \
        {"source", 0, PST_OPT_STR, AT(source), "TOPIC", NULL, "those that came from this topic"},                         \
        {"partition",                                                                                                     \
         'p',                                                                                                             \
         PST_OPT_STR,                                                                                                     \
         AT(partition),                                                                                                   \
         "P[:O[-O]]",                                                                                                     \
         NULL,                                                                                                            \
         "this partition of the dead letters, this offset, or these with both ends"},                                     \
        {"since", 0, PST_OPT_STR, AT(since), "T", NULL, "records of this time and later, or not older than this: 90min"}, \
    {                                                                                                                     \
        "until", 0, PST_OPT_STR, AT(until), "T", NULL, "records before this time"                                         \
    }

static const pst_opt ls_table[] = {
    CONFIG,
    FILTERS,
    {"by", 0, PST_OPT_STR, AT(by), "WORDS", "source,stage,reason",
     "what is counted apart: source, partition (of the source), stage, reason, class, component, day, hour"},
};
static const pst_opt show_table[] = {
    {"full", 0, PST_OPT_BOOL, AT(full), NULL, NULL, "all bytes of a value that does not decode"},
};
static const pst_opt replay_table[] = {
    CONFIG,
    FILTERS,
    {"to", 0, PST_OPT_STR, AT(to), "TOPIC", NULL, "to this topic (partitions by key) instead of back where they came from"},
    {"dry-run", 0, PST_OPT_BOOL, AT(dry_run), NULL, NULL, "only tell what would be put back where"},
    {"yes", 'y', PST_OPT_BOOL, AT(yes), NULL, NULL, "do not ask"},
};

static const pst_usage usages[N_VERBS] = {
    [LS] = {"dlq ls", "[PIPELINE|TOPIC]", "Count dead letters, with the newest error of each kind.",
            "Times are those of the records. REPLAYED: how many of them were put back by `penstock dlq replay`.\n"
            "Kafka Connect's headers are read, and Kafka Streams'.",
            "penstock dlq ls readings.dlq\npenstock dlq ls -c pipeline.yml --since 24h --by reason,hour\npenstock dlq ls turbine-anomalies "
            "--json | jq .count",
            ls_table, sizeof ls_table / sizeof *ls_table, false},
    [SHOW] = {"dlq show", "PIPELINE|TOPIC PARTITION:OFFSET", "Show one dead letter: where it came from, why it died, its key and value.",
              "Values are decoded where they are Avro of the registry or JSON; other bytes are dumped.",
              "penstock dlq show readings.dlq 0:12\npenstock dlq show readings.dlq 0:12 --json | jq .value", show_table, 1, false},
    [REPLAY] = {"dlq replay", "[PIPELINE|TOPIC]", "Put dead letters back on the topics that they came from, each once.",
                "Key, value, headers and time are the record's own, its partition too while the topic has it. Two headers are added: "
                "x-dlq-replays\n"
                "(how often it was put back) and x-dlq-replayed-from. What was put back is noted in TOPIC.replays, in the same "
                "transaction: a replay\n"
                "that was killed goes on where it ended, and none is put back twice. Tells what it will do, and asks.\n"
                "Exit status 3: some cannot be put back, and each reason is told.",
                "penstock dlq replay readings.dlq --dry-run\npenstock dlq replay readings.dlq --reason unknown-schema --yes\npenstock dlq "
                "replay -c "
                "pipeline.yml --since 2h\npenstock dlq replay readings.dlq -p 0:100-200 --to readings.retry",
                replay_table, sizeof replay_table / sizeof *replay_table, false},
};

/* One topic is shown from: a pipeline of several inputs may have several. */
static int one_topic(const score_letters *w, pst_err *err)
{
    if (w->n_topics == 1)
        return 0;
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                       "pipeline %.100s has %zu topics of dead letters (%.100s, ...): name the one", w->pipeline->name, w->n_topics,
                       w->n_topics ? w->topics[0] : "");
}

static int find(pst_verb_run *v, const dlq_opts *o, const char *name, score_letters *w, pst_err *err)
{
    if (!o->config && !name)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "whose dead letters? penstock %s TOPIC, or a pipeline's name, or -c FILE", v->usage->verb);
    if (o->config && name)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%.80s and -c %.80s: leave one out", name, o->config);
    return o->config ? score_letters_load(o->config, w, err) : score_letters_find(v->client, name, w, err);
}

static int run_verb(int which, int argc, char **argv)
{
    dlq_opts o = {0};
    pst_verb_run v;
    score_letters w = {0};
    size_t left = 0;
    int args = which == SHOW ? 2 : 0, status = pst_verb_begin(&v, &usages[which], argc, argv, &o, args, args ? args : 1);
    if (status >= 0)
        return status;
    int rc = find(&v, &o, v.n_args ? v.args[0] : NULL, &w, &v.err);
    pst_dlq_ask ask = {.reason = o.reason,
                       .stage = o.stage,
                       .source = o.source,
                       .partition = o.partition,
                       .since = o.since,
                       .until = o.until,
                       .by = o.by,
                       .full = o.full,
                       .to = o.to,
                       .dry_run = o.dry_run,
                       .yes = o.yes};
    score_letters_of(&w, &ask);
    if (which == SHOW && !rc)
        rc = one_topic(&w, &v.err);
    ask.place = which == SHOW ? v.args[1] : NULL;
    if (!rc && which == LS)
        rc = pst_dlq_list(&v, &ask, &v.err);
    else if (!rc && which == SHOW)
        rc = pst_dlq_show(&v, &ask, &v.err);
    else if (!rc)
        rc = pst_dlq_replay(&v, &ask, &left, &v.err);
    score_letters_done(&w);
    status = pst_verb_end(&v, rc);
    if (status)
        return status;
    return left ? 3 : 0;
}

static int dlq_run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(word, usages[i].verb + strlen("dlq ")))
            return run_verb(i, argc - 1, argv + 1);
    bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
    FILE *f = help ? stdout : stderr;
    if (*word && !help)
        fprintf(f, "penstock dlq: unknown verb %s\n", word);
    fprintf(f, "Usage: penstock dlq ls|show|replay [PIPELINE|TOPIC] [options]\n\n");
    for (int i = 0; i < N_VERBS; i++)
        fprintf(f, "  %-8s %s\n", usages[i].verb + strlen("dlq "), usages[i].summary);
    fprintf(f, "\npenstock dlq VERB --help tells more.\n\nExamples:\n  penstock dlq ls readings.dlq\n  penstock dlq replay readings.dlq "
               "--dry-run\n");
    return help ? 0 : 2;
}

const pst_verb pst_dlq_verb = {"dlq", "dead letters: ls, show, replay", "streams", dlq_run,
                               PST_USAGES(&usages[LS], &usages[SHOW], &usages[REPLAY])};
