/* pipelines_verb.c - penstock pipelines list|apply|show|delete: the desired scoring deployments on penstock.pipelines. The topic is compacted and its
 * key is the name: apply and delete are one record each, and a list is the whole topic, read to its present end. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/platform/verb.h"
#include "inference/pipelines.h"
#include "verbs.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST, APPLY, SHOW, DELETE, N_VERBS, PUBLISH_TIMEOUT_MS = 30000, SHOWN_BYTES = 16384 };

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
    return 0;
}

static int run_verb(int which, int argc, char **argv)
{
    pst_verb_run v;
    int wanted = which == LIST ? 0 : 1, unused = 0;
    int status = pst_verb_begin(&v, &usages[which], argc, argv, &unused, wanted, wanted);
    if (status >= 0)
        return status;
    pst_map all = {0};
    int rc = which == APPLY ? 0 : score_pipelines_read(v.client, &all, &v.err);
    if (rc == 0) {
        switch (which) {
        case LIST: rc = list(&v, &all); break;
        case APPLY: rc = apply(&v); break;
        case SHOW: rc = show(&v, &all); break;
        default: rc = delete_one(&v, &all);
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
    fprintf(f, "Usage: penstock pipelines list|apply|show|delete …\n\n");
    for (int i = 0; i < N_VERBS; i++) {
        char left[48];
        snprintf(left, sizeof(left), "%s %s", usages[i].verb + strlen("pipelines "), usages[i].args);
        fprintf(f, "  %-16s %s\n", left, usages[i].summary);
    }
    fprintf(f, "\nExamples:\n  penstock pipelines apply pipeline.yml\n  penstock pipelines list\n");
    return help ? 0 : 2;
}

const pst_verb pst_pipelines_verb = {"pipelines", "scoring deployments: list, apply, show, delete", "streams", pipelines_run,
                                     PST_USAGES(&usages[LIST], &usages[APPLY], &usages[SHOW], &usages[DELETE])};
