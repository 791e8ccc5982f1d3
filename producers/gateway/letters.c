/* letters.c - dead letters over HTTP. A reading goes through the whole topic, which may be long; a client that does not wait for it loses the answer, and
 * a replay then goes on to its end: what it put back is noted beside the topic, so asking again puts nothing back twice. */
#include "producers/gateway/letters.h"

#include "producers/gateway/routes.h"

#include <stdio.h>
#include <string.h>

static const char *said(const pst_http_req *req, const char *name)
{
    const char *value = pst_http_query(req, name);
    return value && *value ? value : NULL;
}

static const char *or_nothing(const char *text)
{
    return text ? text : "";
}

static int ask(gw_task *t, pst_letters_what what, json_t **ret, pst_err *err)
{
    const pst_http_req *r = t->req;
    char place[64];
    snprintf(place, sizeof place, "%.20s:%.20s", or_nothing(pst_http_param(r, "partition")), or_nothing(pst_http_param(r, "offset")));
    pst_letters_ask asked = {.what = what,
                             .pipeline = pst_http_param(r, "pipeline"),
                             .topic = pst_http_param(r, "topic"),
                             .place = place,
                             .reason = said(r, "reason"),
                             .stage = said(r, "stage"),
                             .source = said(r, "source"),
                             .partition = said(r, "partition"),
                             .since = said(r, "since"),
                             .until = said(r, "until"),
                             .by = said(r, "by"),
                             .to = said(r, "to"),
                             .dry_run = pst_http_query_bool(r, "dry_run")};
    if (!t->g->scoring)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "gateway", 0, "this gateway knows no dead letters");
    return t->g->scoring->letters(t->g->client, &asked, ret, err);
}

static int count(gw_task *t, pst_err *err)
{
    json_t *kinds = NULL;
    int rc = ask(t, PST_LETTERS_COUNT, &kinds, err);
    if (!rc)
        t->answer = json_pack("{s:o}", "kinds", kinds);
    return rc;
}

static int show(gw_task *t, pst_err *err)
{
    return ask(t, PST_LETTERS_SHOW, &t->answer, err);
}

static int replay(gw_task *t, pst_err *err)
{
    json_t *topics = NULL;
    int rc = ask(t, PST_LETTERS_REPLAY, &topics, err);
    if (!rc)
        t->answer = json_pack("{s:o}", "topics", topics);
    return rc;
}

void gw_letters_count(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, count);
}

void gw_letters_show(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, show);
}

void gw_letters_replay(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, replay);
}
