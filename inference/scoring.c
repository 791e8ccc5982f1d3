/* scoring.c - pipelines and dead letters for whoever has the network side. Each call does what a verb does and gives as JSON what the verb prints with
 * --json; nothing is kept between calls, so there is nothing that could be out of date. */
#include "inference/scoring.h"

#include "inference/letters.h"
#include "inference/pipelines.h"
#include "schemas/avro.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pipelines -------------------------------------------------------------------------------------------------------------------- */

static json_t *texts(char *const *at, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(at[i]));
    return list;
}

static json_t *model_of(const pst_model_choice *m)
{
    return json_pack("{s:s?, s:s?, s:o}", "name", m->name, "alias", m->alias, "version",
                     m->version ? json_integer(m->version) : json_null());
}

static void add_rollout(json_t *to, const pst_pipeline *p)
{
    json_t *canary = p->has_canary ? model_of(&p->canary) : NULL, *shadow = p->has_shadow ? model_of(&p->shadow) : NULL;
    if (canary) {
        json_object_set_new(canary, "percent", json_real(p->canary_percent));
        json_object_set_new(to, "canary", canary);
    }
    if (shadow) {
        json_object_set_new(shadow, "topic", json_string(p->shadow_topic));
        json_object_set_new(to, "shadow", shadow);
    }
}

/* Read as the scorers' hosts read it, so that what they refuse is told here, too. */
static json_t *describe(pst_client *c, pst_pipeline_spec *s)
{
    json_t *j = pst_event_to_json(&pst_pipeline_spec_type, s);
    score_letters w = {0};
    pst_err e = {0};
    if (pst_pipeline_parse_published(s->spec, strlen(s->spec), s->name, &w.pipeline, &e) < 0) {
        json_object_set_new(j, "refused", json_string(e.text));
        return j;
    }
    const pst_pipeline *p = w.pipeline;
    char *group = score_pipelines_group(c, p);
    score_letters_topics(&w);
    json_object_set_new(j, "inputs", texts(p->topics, p->n_topics));
    json_object_set_new(j, "output", p->output_topic ? json_string(p->output_topic) : json_null());
    json_object_set_new(j, "group", json_string(group));
    json_object_set_new(j, "model", model_of(&p->model));
    add_rollout(j, p);
    json_object_set_new(j, "dead_letters", texts(w.topics, w.n_topics));
    free(group);
    score_letters_done(&w);
    return j;
}

static int pipelines(pst_client *c, json_t **ret_list, pst_err *err)
{
    pst_map all = {0};
    int rc = score_pipelines_read(c, &all, err);
    pst_pipeline_spec **sorted = rc ? NULL : score_pipelines_sorted(&all);
    json_t *list = json_array();
    for (size_t i = 0; sorted && sorted[i]; i++)
        json_array_append_new(list, describe(c, sorted[i]));
    free(sorted);
    score_pipelines_done(&all);
    if (rc < 0)
        json_decref(list);
    else
        *ret_list = list;
    return rc;
}

static int judge(pst_client *c, const char *text, size_t len, pst_pipeline_verdict *ret_verdict, pst_err *err)
{
    pst_pipeline *p = NULL;
    char *report = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&report, &size);
    int rc = f ? pst_pipeline_parse_published(text, len, "pipeline", &p, err) : pst_err_sys(err, ENOMEM, "no memory for a report");
    if (!rc)
        rc = score_pipelines_judge(c, p, f, err);
    if (f)
        fclose(f);
    *ret_verdict = (pst_pipeline_verdict){.name = p ? pst_strdup(p->name) : NULL, .report = report};
    pst_pipeline_free(p);
    return rc;
}

/* ---- dead letters ------------------------------------------------------------------------------------------------------------------ */

static void keep(void *arg, json_t *take)
{
    json_array_append_new(arg, take);
}

/* A verb's frame without a verb: what is said goes to rows, and nobody is asked. */
static int look(pst_client *c, const pst_letters_ask *asked, pst_dlq_ask *ask, json_t *rows, pst_err *err)
{
    pst_verb_run v = {.settings = *c->settings, .client = c};
    size_t left = 0;
    v.settings.json = v.settings.quiet = v.settings.no_input = true;
    ask->row = keep;
    ask->arg = rows;
    ask->yes = true;
    if (asked->what == PST_LETTERS_COUNT)
        return pst_dlq_list(&v, ask, err);
    return asked->what == PST_LETTERS_SHOW ? pst_dlq_show(&v, ask, err) : pst_dlq_replay(&v, ask, &left, err);
}

/* Of a topic that is named as one the name is the topic's, also where a pipeline is called the same. */
static int find(pst_client *c, const pst_letters_ask *asked, score_letters *w, pst_dlq_ask *to, pst_err *err)
{
    int rc = asked->pipeline ? score_letters_find(c, asked->pipeline, w, err) : 0;
    if (!rc && asked->pipeline && !w->pipeline)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "pipelines", 0, "there is no pipeline %.200s", asked->pipeline);
    if (asked->pipeline)
        score_letters_of(w, to);
    else {
        to->topics = &asked->topic;
        to->n_topics = 1;
    }
    return rc;
}

static int letters(pst_client *c, const pst_letters_ask *asked, json_t **ret_told, pst_err *err)
{
    score_letters w = {0};
    pst_dlq_ask ask = {.reason = asked->reason,
                       .stage = asked->stage,
                       .source = asked->source,
                       .partition = asked->partition,
                       .since = asked->since,
                       .until = asked->until,
                       .by = asked->by ? asked->by : "source,stage,reason",
                       .place = asked->place,
                       .to = asked->to,
                       .dry_run = asked->dry_run};
    json_t *rows = json_array();
    int rc = find(c, asked, &w, &ask, err);
    if (!rc)
        rc = look(c, asked, &ask, rows, err);
    if (!rc)
        *ret_told = json_incref(asked->what == PST_LETTERS_SHOW ? json_array_get(rows, 0) : rows);
    json_decref(rows);
    score_letters_done(&w);
    return rc;
}

const pst_scoring_ops pst_score_ops = {pipelines, judge, letters};
