/* pipelines_verb.c - penstock pipelines list|apply|show|delete, canary|shadow|promote|rollback: the desired scoring deployments on penstock.pipelines. The topic is compacted and its
 * key is the name: apply and delete are one record each, and a list is the whole topic, read to its present end. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/platform/verb.h"
#include "inference/pipelines.h"
#include "inference/rollout.h"
#include "verbs.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST, APPLY, SHOW, DELETE, CANARY, SHADOW, PROMOTE, ROLLBACK, N_VERBS, PUBLISH_TIMEOUT_MS = 30000, SHOWN_BYTES = 16384 };

#define AT(field) offsetof(score_rollout_opts, field)
#define DRY_RUN                                                                                           \
    {                                                                                                     \
        "dry-run", 0, PST_OPT_BOOL, AT(dry_run), NULL, NULL, "judge and show the change, publish nothing" \
    }
static const pst_opt canary_table[] = {
    {"alias", 0, PST_OPT_STR, AT(alias), "A", NULL, "the version that this alias means, and follows"},
    {"model-version", 0, PST_OPT_INT, AT(version), "N 1..2147483647", NULL, "this version"},
    {"percent", 0, PST_OPT_DOUBLE, AT(percent), "P -1..100", "-1", "its part of the records, by their keys; -1 = as it is"},
    {"errors", 0, PST_OPT_STR, AT(errors), "SHARE", NULL, "budget: stopped beyond this share of failures, such as 1%"},
    {"disagreement", 0, PST_OPT_STR, AT(disagreement), "SHARE", NULL, "budget: the same of records scored otherwise than by the primary"},
    {"over", 0, PST_OPT_INT, AT(over), "N 0..1000000000", NULL, "budget: judged over at least so many records"},
    {"off", 0, PST_OPT_BOOL, AT(off), NULL, NULL, "no canary any more"},
    DRY_RUN};
static const pst_opt shadow_table[] = {
    {"alias", 0, PST_OPT_STR, AT(alias), "A", NULL, "the version that this alias means, and follows"},
    {"model-version", 0, PST_OPT_INT, AT(version), "N 1..2147483647", NULL, "this version"},
    {"topic", 0, PST_OPT_STR, AT(topic), "T", NULL, "where its scores go"},
    {"tolerance", 0, PST_OPT_DOUBLE, AT(tolerance), "X -1..1000000000", "-1", "numbers no farther apart are equal; -1 = as it is"},
    {"off", 0, PST_OPT_BOOL, AT(off), NULL, NULL, "no shadow any more"},
    DRY_RUN};
static const pst_opt promote_table[] = {{"reason", 0, PST_OPT_STR, AT(reason), "TEXT", NULL, "kept with the alias's move"}, DRY_RUN};
static const pst_opt rollback_table[] = {
    {"promotion", 0, PST_OPT_BOOL, AT(promotion), NULL, NULL, "undo the last promotion: the alias means what it meant before"},
    {"reason", 0, PST_OPT_STR, AT(reason), "TEXT", NULL, "kept with the alias's move"},
    DRY_RUN};
#define OF(table) table, sizeof table / sizeof *table

static const pst_usage usages[N_VERBS] = {
    [LIST] = {"pipelines list", "", "List the pipelines that are to run.", NULL, "penstock pipelines list\npenstock pipelines list --json",
              NULL, 0, false},
    [APPLY] =
        {"pipelines apply", "FILE", "Publish a pipeline file; a running platform starts a scorer for it, or changes the one that runs.",
         "The file is checked first as `penstock score check` does, and nothing is published if it is wrong; what runs goes on.\n"
         "kafka: takes consumer and producer tuning here, nothing that names a host, a file, a program or a credential; the model is a\n"
         "registered one, and the platform's own topics are no input. ${NAME} is\n"
         "left as it is: the scorer's environment counts, of which it sees variables named PENSTOCK_PIPELINE_….",
         "penstock pipelines apply pipeline.yml", NULL, 0, false},
    [SHOW] = {"pipelines show", "NAME", "Print a pipeline as it was published.", NULL, "penstock pipelines show turbine-anomalies", NULL, 0,
              false},
    [DELETE] = {"pipelines delete", "NAME", "Remove a pipeline; its scorer stops.", NULL, "penstock pipelines delete turbine-anomalies",
                NULL, 0, false},
    [CANARY] =
        {"pipelines canary", "NAME", "Let a second version score a part of the records.",
         "Changes the section rollout of the published spec; what is not given stays as it is, and what is there already is not published\n"
         "again. Refused where penstock score check refuses. A canary that was stopped by its budget is on again once the spec changes.",
         "penstock pipelines canary fraud --alias challenger --percent 5 --errors 1% --over 1000\npenstock pipelines canary fraud --off",
         OF(canary_table), false},
    [SHADOW] = {"pipelines shadow", "NAME", "Let a second version score the same records into another topic.",
                "Changes the section rollout of the published spec, as pipelines canary does.",
                "penstock pipelines shadow fraud --alias challenger --topic fraud.shadow --tolerance 0.01", OF(shadow_table), false},
    [PROMOTE] =
        {"pipelines promote", "NAME", "Make the canary's version the primary: its alias moves, the canary ends.",
         "The move counts from the present ends of the input on and is recorded with who made it and why. Cut off in between, it may be\n"
         "done again. A canary that was stopped by its budget is not promoted.",
         "penstock pipelines promote fraud --reason \"a week without a difference\"", OF(promote_table), false},
    [ROLLBACK] = {"pipelines rollback", "NAME", "Take the canary back: all records are the primary's again.",
                  "With --promotion: the last promotion of this pipeline is undone, from the present ends of the input on.",
                  "penstock pipelines rollback fraud\npenstock pipelines rollback fraud --promotion", OF(rollback_table), false},
};

/* Read as the scorers' hosts read it, so that what they refuse is told here, too. Cut where a stranger was generous. */
static void list_row(const pst_pipeline_spec *s)
{
    pst_pipeline *p = NULL;
    pst_err e = {0};
    char when[32], model[200] = "-";
    if (pst_pipeline_parse_published(s->spec, strlen(s->spec), s->name, &p, &e) == 0)
        snprintf(model, sizeof(model), "%s%s%s", p->model.name, p->model.alias ? ":" : "", p->model.alias ? p->model.alias : "");
    printf("%-28.120s %-24.249s %-24.249s %-28s %.19s by %.80s\n", s->name, p && p->n_topics ? p->topics[0] : "-",
           p && p->output_topic ? p->output_topic : "-", model, pst_time_text(s->time, when), *s->actor ? s->actor : "-");
    if (!p) {
        fflush(stdout);
        fprintf(stderr, "%.120s is refused and does not run: %.400s\n", s->name, e.text);
    }
    pst_pipeline_free(p);
}

static int list(pst_verb_run *v, const pst_map *all)
{
    pst_pipeline_spec **sorted = score_pipelines_sorted(all);
    if (*sorted && !v->settings.json)
        printf("%-28s %-24s %-24s %-28s %s\n", "NAME", "INPUT", "OUTPUT", "MODEL", "APPLIED");
    for (size_t i = 0; sorted[i]; i++) {
        if (v->settings.json) {
            pst_print_event(&pst_pipeline_spec_type, sorted[i]);
            continue;
        }
        list_row(sorted[i]);
    }
    if (!*sorted && !v->settings.json && !v->settings.quiet)
        fprintf(stderr, "no pipelines; penstock pipelines apply FILE adds one\n");
    free(sorted);
    return 0;
}

static int apply(pst_verb_run *v)
{
    pst_pipeline *p = NULL;
    int rc = pst_pipeline_load_published(v->args[0], &p, &v->err);
    if (rc < 0)
        return rc;
    rc = score_pipelines_judge(v->client, p, v->settings.quiet ? NULL : stderr, &v->err);
    pst_pipeline_spec s = {.name = p->name, .spec = p->text, .actor = (char *)(uintptr_t)pst_account_name(NULL), .time = pst_now_us()};
    if (rc == 0)
        rc = pst_client_publish(v->client, PST_TOPIC_PIPELINES, &pst_pipeline_spec_type, p->name, &s, PUBLISH_TIMEOUT_MS, NULL, NULL,
                                &v->err);
    if (rc == 0 && !v->settings.quiet)
        printf("%s\n", p->name);
    pst_pipeline_free(p);
    return rc;
}

static int not_there(pst_verb_run *v)
{
    return pst_err_set(&v->err, PST_ENOTFOUND, PST_CLASS_DATA, "pipelines", 0,
                       "there is no pipeline %s; penstock pipelines list shows what there is", v->args[0]);
}

static int delete_one(pst_verb_run *v, const pst_map *all)
{
    if (!pst_map_get(all, v->args[0]))
        return not_there(v);
    pst_out tombstone = {
        .topic = pst_client_topic(v->client, PST_TOPIC_PIPELINES), .partition = -1, .key = v->args[0], .key_len = strlen(v->args[0])};
    return pst_publish(v->client->bus, &tombstone, PUBLISH_TIMEOUT_MS, NULL, NULL, &v->err);
}

static int show(pst_verb_run *v, const pst_map *all)
{
    const pst_pipeline_spec *s = pst_map_get(all, v->args[0]);
    if (!s)
        return not_there(v);
    if (v->settings.json) {
        pst_print_event(&pst_pipeline_spec_type, s);
        return 0;
    }
    size_t len = strlen(s->spec), shown = len;
    if (isatty(STDOUT_FILENO) && len > SHOWN_BYTES) { /* whole lines, unless the first one alone is longer */
        const char *end = memrchr(s->spec, '\n', SHOWN_BYTES);
        shown = end ? (size_t)(end - s->spec) + 1 : SHOWN_BYTES;
    }
    printf("%.*s%s", (int)shown, s->spec, shown && s->spec[shown - 1] != '\n' ? "\n" : "");
    fflush(stdout);
    if (shown < len)
        fprintf(stderr, "… %zu more bytes; penstock pipelines show %s > FILE writes all of it\n", len - shown, v->args[0]);
    if (!v->settings.quiet)
        score_rollout_tell(v->client, s, stderr); /* not into the file that is applied again */
    if (!v->settings.quiet)
        score_drift_tell(v->client, s->name, stderr);
    return 0;
}

static int roll_out(int which, pst_verb_run *v, const pst_map *all, const score_rollout_opts *o)
{
    const pst_pipeline_spec *s = pst_map_get(all, v->args[0]);
    if (!s)
        return not_there(v);
    return which == CANARY    ? score_rollout_canary(v, s, o)
           : which == SHADOW  ? score_rollout_shadow(v, s, o)
           : which == PROMOTE ? score_rollout_promote(v, s, o)
                              : score_rollout_back(v, s, o);
}

static int run_verb(int which, int argc, char **argv)
{
    pst_verb_run v;
    score_rollout_opts o = {.percent = -1, .tolerance = -1};
    int wanted = which == LIST ? 0 : 1;
    int status = pst_verb_begin(&v, &usages[which], argc, argv, &o, wanted, wanted);
    if (status >= 0)
        return status;
    pst_map all = {0};
    int rc = which == APPLY ? 0 : score_pipelines_read(v.client, &all, &v.err);
    if (rc == 0) {
        switch (which) {
        case LIST: rc = list(&v, &all); break;
        case APPLY: rc = apply(&v); break;
        case SHOW: rc = show(&v, &all); break;
        case DELETE: rc = delete_one(&v, &all); break;
        default: rc = roll_out(which, &v, &all, &o);
        }
    }
    score_pipelines_done(&all);
    return pst_verb_end(&v, rc);
}

static int pipelines_run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(word, usages[i].verb + strlen("pipelines ")))
            return run_verb(i, argc - 1, argv + 1);
    bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
    FILE *f = help ? stdout : stderr;
    if (*word && !help)
        fprintf(f, "penstock pipelines: unknown verb %s\n", word);
    fprintf(f, "Usage: penstock pipelines list|apply|show|delete|canary|shadow|promote|rollback …\n\n");
    for (int i = 0; i < N_VERBS; i++) {
        char left[48];
        snprintf(left, sizeof(left), "%s %s", usages[i].verb + strlen("pipelines "), usages[i].args);
        fprintf(f, "  %-16s %s\n", left, usages[i].summary);
    }
    fprintf(f, "\nExamples:\n  penstock pipelines apply pipeline.yml\n  penstock pipelines list\n");
    return help ? 0 : 2;
}

const pst_verb pst_pipelines_verb = {"pipelines", "scoring deployments: list, apply, show, delete, canary, shadow, promote, rollback",
                                     "streams", pipelines_run,
                                     PST_USAGES(&usages[LIST], &usages[APPLY], &usages[SHOW], &usages[DELETE], &usages[CANARY],
                                                &usages[SHADOW], &usages[PROMOTE], &usages[ROLLBACK])};
