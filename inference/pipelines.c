/* pipelines.c - the topic of pipelines, read whole: it is compacted and its key is the name, so its records are all that there is. And what holds between
 * pipelines: two in one group share the records of a topic, which no check of one file can see. */
#include "inference/pipelines.h"

#include "common/base/settings.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "inference/run/pipeline_check.h"
#include "schemas/avro.h"

#include <stdlib.h>
#include <string.h>

typedef struct gather {
    pst_client *c;
    pst_map pipelines; /* name → pst_pipeline_spec, latest */
} gather;

static void spec_free(void *p)
{
    pst_event_clear(&pst_pipeline_spec_type, p);
    free(p);
}

static int gather_one(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gather *g = arg;
    pst_pipeline_spec *s = NULL;
    if (r->value) {
        pst_err e = {0};
        s = pst_alloc(sizeof(*s));
        int rc = pst_codec_decode(g->c->codec, &pst_pipeline_spec_type, r->value, r->value_len, r->timestamp_ms, s, &e);
        if (rc < 0) {
            free(s);
            if (e.cls == PST_CLASS_DATA) /* somebody's rubbish hides nothing else */
                return 0;
            *err = e;
            return rc;
        }
    }
    pst_pipeline_spec *old = s ? pst_map_put(&g->pipelines, key, s) : pst_map_take(&g->pipelines, key);
    if (old)
        spec_free(old);
    return 0;
}

int score_pipelines_read(pst_client *c, pst_map *ret_all, pst_err *err)
{
    gather g = {.c = c};
    pst_err e = {0};
    int rc = pst_client_scan(c, PST_TOPIC_PIPELINES, NULL, gather_one, &g, &e);
    *ret_all = g.pipelines;
    if (rc == PST_ENOTFOUND)
        return 0; /* no topic yet: no pipelines yet */
    if (rc < 0)
        *err = e;
    return rc;
}

void score_pipelines_done(pst_map *all)
{
    pst_map_done(all, spec_free);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(pst_pipeline_spec *const *)a)->name, (*(pst_pipeline_spec *const *)b)->name);
}

pst_pipeline_spec **score_pipelines_sorted(const pst_map *all)
{
    pst_pipeline_spec **sorted = pst_alloc((all->live + 1) * sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].key)
            sorted[n++] = all->at[i].value;
    qsort(sorted, n, sizeof *sorted, by_name);
    sorted[n] = NULL;
    return sorted;
}

char *score_pipelines_group(const pst_client *c, const pst_pipeline *p)
{
    return p->group ? pst_strdup(p->group) : pst_sprintf("%sscore.%s", c->settings->prefix.value, p->name);
}

/* Two pipelines in one group share the records of a topic: each would score some of them, and nobody would be told. */
static int check_shared(const pst_client *c, const pst_pipeline *p, const pst_pipeline_spec *other, pst_err *err)
{
    pst_pipeline *q = NULL;
    pst_err ignored = {0}; /* what does not parse does not run */
    if (!strcmp(other->name, p->name) || pst_pipeline_parse_published(other->spec, strlen(other->spec), other->name, &q, &ignored) < 0)
        return 0;
    char *ours = score_pipelines_group(c, p), *theirs = score_pipelines_group(c, q);
    int rc = 0;
    for (size_t i = 0; !strcmp(ours, theirs) && i < p->n_topics * q->n_topics && rc == 0; i++)
        if (!strcmp(p->topics[i / q->n_topics], q->topics[i % q->n_topics]))
            rc = pst_err_set(
                err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                "%s:%d: input.group: pipeline %.120s reads topic %.120s in the group %.120s, too: each of the two would score "
                "only some of its records; choose another group or leave it out, or delete that pipeline first if this one takes its place",
                p->file, p->line.input, q->name, p->topics[i / q->n_topics], ours);
    free(ours);
    free(theirs);
    pst_pipeline_free(q);
    return rc;
}

static int judge_alone(pst_client *c, const pst_pipeline *p, FILE *report, pst_err *err)
{
    int rc = 0;
    if (!p->n_topics || !p->output_topic)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: %s is missing", p->file,
                         p->n_topics ? "output.topic" : "input.topics");
    if (rc == 0)
        rc = pst_pipeline_check(c->settings, p, &(pst_check_opts){.report = report}, NULL, err);
    return rc;
}

/* What is wrong in the file is said although no broker answers. */
int score_pipelines_judge(pst_client *c, const pst_pipeline *p, FILE *report, pst_err *err)
{
    pst_map all = {0};
    int rc = judge_alone(c, p, report, err);
    if (rc == 0)
        rc = score_pipelines_read(c, &all, err);
    for (size_t i = 0; rc == 0 && i < all.n; i++)
        if (all.at[i].key)
            rc = check_shared(c, p, all.at[i].value, err);
    score_pipelines_done(&all);
    return rc;
}
