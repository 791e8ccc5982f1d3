/* mlflow_search.c - POST runs/search: the runs of some experiments by filter, in an order, by pages. It looks at all runs: a million of them are told apart in
 * less time than their answer takes, and there is no index that any filter could use. An answer holds PAGE_MAX runs at most, however many are asked for, and
 * ends with the run that makes it PAGE_BYTES long (a run may be tens of megabytes); clients go on with its token. */
#include "producers/gateway/mlflow.h"
#include "producers/gateway/mlflow_filter.h"

#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>

enum { RESULTS_MAX = 50000, PAGE_MAX = 5000, PAGE_BYTES = 8 << 20, ORDERS_MAX = 10, EXPERIMENTS_MAX = 1000 };

static const gw_attribute attributes[] = {{"run_id", false},
                                          {"run_name", false},
                                          {"run name", false},
                                          {"status", false},
                                          {"user_id", false},
                                          {"artifact_uri", false},
                                          {"start_time", true},
                                          {"end_time", true},
                                          {"experiment_id", false},
                                          {"Created", true},
                                          {0}};

static gw_value text_of(const char *text)
{
    return (gw_value){.there = text != NULL, .text = text};
}

static gw_value attribute_of(const gw_run *r, const char *key)
{
    if (!strcmp(key, "start_time") || !strcmp(key, "Created"))
        return (gw_value){true, true, (double)r->start_ms, NULL};
    if (!strcmp(key, "end_time"))
        return (gw_value){r->end_ms != 0, true, (double)r->end_ms, NULL};
    if (!strcmp(key, "run_id"))
        return text_of(r->id);
    if (!strcmp(key, "status"))
        return text_of(r->status);
    if (!strcmp(key, "user_id"))
        return text_of(r->user);
    if (!strcmp(key, "experiment_id"))
        return text_of(r->experiment_id);
    return text_of(pst_json_str(r->tags, "mlflow.runName", strcmp(key, "artifact_uri") ? "" : NULL));
}

static gw_value value_of(const void *thing, gw_filter_of of, const char *key)
{
    const gw_run *r = thing;
    const json_t *m = NULL;
    switch (of) {
    case GW_METRIC: m = json_object_get(r->metrics, key); return (gw_value){m != NULL, true, m ? gw_tracking_number(m) : 0, NULL};
    case GW_PARAM: return text_of(json_string_value(json_object_get(r->params, key)));
    case GW_TAG: return text_of(json_string_value(json_object_get(r->tags, key)));
    default: return attribute_of(r, key);
    }
}

typedef struct search {
    pst_map experiments; /* ids that are wanted */
    const char *view;
    gw_filter *filter;
    gw_order orders[ORDERS_MAX];
    size_t n_orders, n, from;
} search;

static const search *sorting; /* for qsort, which hands no argument on; @thread loop */

/* Then the newest first, as MLflow. */
static int compare(const void *a, const void *b)
{
    const gw_run *x = *(gw_run *const *)a, *y = *(gw_run *const *)b;
    for (size_t i = 0; i < sorting->n_orders; i++) {
        int order = gw_order_compare(&sorting->orders[i], value_of, x, y);
        if (order)
            return order;
    }
    if (x->start_ms != y->start_ms)
        return x->start_ms < y->start_ms ? 1 : -1;
    return strcmp(x->id, y->id);
}

static bool wanted(const search *s, const gw_run *r)
{
    if (!(r->created || r->job) || (strcmp(s->view, "ALL") && r->deleted != !strcmp(s->view, "DELETED_ONLY")))
        return false;
    return pst_map_get(&s->experiments, r->experiment_id) && gw_filter_matches(s->filter, value_of, r);
}

static void reply(gw_state *g, pst_http_req *req, search *s)
{
    gw_tracking *t = gw_mlflow_lock_again(g);
    gw_run **found = pst_alloc((t->runs.n + 1) * sizeof(gw_run *));
    size_t all = 0;
    for (size_t i = 0; i < t->runs.n; i++) {
        gw_run *r = t->runs.at[i].key ? t->runs.at[i].value : NULL;
        if (r && wanted(s, r))
            found[all++] = r;
    }
    sorting = s;
    qsort(found, all, sizeof *found, compare);
    json_t *list = json_array(), *answer = json_pack("{s:o}", "runs", list);
    size_t n = 0;
    for (size_t bytes = 0; n < s->n && s->from < all && n < all - s->from && bytes < PAGE_BYTES; n++) {
        json_t *run = gw_mlflow_run_json(found[s->from + n]);
        bytes += json_dumpb(run, NULL, 0, JSON_COMPACT);
        json_array_append_new(list, run);
    }
    gw_mlflow_next_page(answer, s->from, n, all);
    free(found);
    gw_mlflow_unlock(g);
    gw_mlflow_reply(req, answer);
}

static int take_orders(search *s, const json_t *list, pst_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text || s->n_orders == ORDERS_MAX)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "order", 0, "order_by is a list of %d texts at most", ORDERS_MAX);
        int rc = gw_order_parse(text, attributes, &s->orders[s->n_orders], err);
        if (rc < 0)
            return rc;
        s->n_orders++;
    }
    return 0;
}

static int take_experiments(search *s, const json_t *ids, pst_err *err)
{
    static char there;
    if (json_array_size(ids) > EXPERIMENTS_MAX)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "search", 0, "experiment_ids has %d ids at most", EXPERIMENTS_MAX);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        char *text = json_is_integer(id) ? pst_sprintf("%lld", (long long)json_integer_value(id)) : pst_strdup(json_string_value(id));
        if (!text)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "search", 0, "experiment_ids is a list of texts");
        pst_map_put(&s->experiments, text, &there);
        free(text);
    }
    return 0;
}

static bool is_view(const char *view)
{
    return !strcmp(view, "ACTIVE_ONLY") || !strcmp(view, "DELETED_ONLY") || !strcmp(view, "ALL");
}

static void run_search(gw_state *g, pst_http_req *req, const json_t *body)
{
    search s = {.view = pst_json_str(body, "run_view_type", "ACTIVE_ONLY")};
    pst_err err = {0};
    char max[24] = "";
    int64_t n = 0;
    bool told = json_object_get(body, "max_results") != NULL;
    if (told)
        snprintf(max, sizeof max, "%lld", gw_mlflow_int(body, "max_results", &n) ? (long long)n : -1);
    if (!is_view(s.view))
        pst_err_set(&err, PST_EINVAL, PST_CLASS_DATA, "search", 0, "run_view_type is ACTIVE_ONLY, DELETED_ONLY or ALL");
    else if (!gw_mlflow_page(req, max, pst_json_str(body, "page_token", NULL), RESULTS_MAX, &s.n, &s.from))
        return;
    else if (!take_experiments(&s, json_object_get(body, "experiment_ids"), &err) &&
             !gw_filter_parse(pst_json_str(body, "filter", NULL), attributes, &s.filter, &err))
        take_orders(&s, json_object_get(body, "order_by"), &err);
    if (s.n > PAGE_MAX)
        s.n = PAGE_MAX;
    if (err.code)
        gw_mlflow_fail_err(req, &err);
    else
        reply(g, req, &s);
    pst_map_done(&s.experiments, NULL);
    gw_filter_free(s.filter);
    for (size_t i = 0; i < s.n_orders; i++)
        gw_order_done(&s.orders[i]);
}

void gw_mlflow_search_runs(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, gw_mlflow_search_runs))
        return;
    gw_mlflow_unlock(g);
    json_t *body = gw_mlflow_body(req);
    if (body)
        run_search(g, req, body);
    json_decref(body);
}
