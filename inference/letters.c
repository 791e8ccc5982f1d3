/* letters.c - whose dead letters are meant: a name is a published pipeline's or a topic's. A pipeline knows its topics of dead letters, and which inputs
 * they may name; of a topic alone neither is known. */
#include "inference/letters.h"

#include "common/base/array.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"

#include <stdlib.h>
#include <string.h>

typedef struct look_up {
    pst_client *c;
    const char *name;
    char *spec;
} look_up;

static int keep_spec(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    look_up *l = arg;
    pst_pipeline_spec s;
    pst_err e = {0};
    if (strcmp(key, l->name) != 0)
        return 0;
    free(l->spec);
    l->spec = NULL;
    if (!r->value)
        return 0;
    int rc = pst_codec_decode(l->c->codec, &pst_pipeline_spec_type, r->value, r->value_len, r->timestamp_ms, &s, &e);
    if (rc < 0 && e.cls == PST_CLASS_DATA)
        return 0;
    if (rc < 0) {
        *err = e;
        return rc;
    }
    l->spec = pst_strdup(s.spec);
    pst_event_clear(&pst_pipeline_spec_type, &s);
    return 0;
}

/* A pipeline of that name, if one is published and can be looked for. */
static int find_pipeline(pst_client *c, const char *name, pst_pipeline **ret, pst_err *err)
{
    look_up l = {.c = c, .name = name};
    pst_err e = {0};
    int rc = pst_client_scan(c, PST_TOPIC_PIPELINES, name, keep_spec, &l, &e);
    if (rc < 0 && rc != PST_ENOTFOUND && rc != PST_EAUTH)
        *err = e;
    else
        rc = l.spec ? pst_pipeline_parse_published(l.spec, strlen(l.spec), name, ret, err) : 0;
    free(l.spec);
    return rc;
}

static void add_topic(score_letters *w, char *topic)
{
    w->topics = pst_array_one_more(w->topics, w->n_topics, sizeof *w->topics);
    w->topics[w->n_topics++] = topic;
}

void score_letters_topics(score_letters *w)
{
    const pst_pipeline *p = w->pipeline;
    if (p->dlq_topic)
        add_topic(w, pst_strdup(p->dlq_topic));
    for (size_t i = 0; !p->dlq_topic && i < p->n_topics; i++)
        add_topic(w, pst_sprintf("%s.dlq", p->topics[i]));
}

int score_letters_find(pst_client *c, const char *name, score_letters *ret, pst_err *err)
{
    int rc = find_pipeline(c, name, &ret->pipeline, err);
    if (rc < 0)
        return rc;
    if (ret->pipeline)
        score_letters_topics(ret);
    else
        add_topic(ret, pst_strdup(name));
    return 0;
}

int score_letters_load(const char *file, score_letters *ret, pst_err *err)
{
    int rc = pst_pipeline_load(file, &ret->pipeline, err);
    if (!rc)
        score_letters_topics(ret);
    return rc;
}

void score_letters_of(const score_letters *w, pst_dlq_ask *to)
{
    to->topics = (const char *const *)w->topics;
    to->n_topics = w->n_topics;
    if (!w->pipeline)
        return;
    to->pipeline = w->pipeline->name;
    to->inputs = (const char *const *)w->pipeline->topics;
    to->n_inputs = w->pipeline->n_topics;
}

void score_letters_done(score_letters *w)
{
    for (size_t i = 0; i < w->n_topics; i++)
        free(w->topics[i]);
    free(w->topics);
    pst_pipeline_free(w->pipeline);
    *w = (score_letters){0};
}
