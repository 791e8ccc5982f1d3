/* mlflow_experiments.c - experiments. Those that clients created and those that platform jobs are runs of, by the jobs' name, are one kind: a client that sets
 * an experiment to a job's name finds the jobs' runs beside its own. "Default" (0) is always there, as in MLflow. */
#include "producers/gateway/mlflow.h"
#include "producers/gateway/mlflow_filter.h"

#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>

static json_t *experiment_json(const gw_experiment *e)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:I, s:I, s:o}", "experiment_id", e->id, "name", e->name, "artifact_location",
                     json_sprintf("mlflow-artifacts:/%s", e->id), "lifecycle_stage", e->deleted ? "deleted" : "active", "creation_time",
                     (json_int_t)e->created_ms, "last_update_time", (json_int_t)e->updated_ms, "tags", gw_mlflow_pairs(e->tags));
}

/* NULL: req is answered, the view unlocked. */
static gw_experiment *find(gw_state *g, pst_http_req *req, gw_tracking *t, const char *id)
{
    gw_experiment *e = gw_tracking_experiment(t, id);
    if (e)
        return e;
    gw_mlflow_unlock(g);
    gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "No Experiment with id=%.80s exists", id);
    return NULL;
}

static char *subject_of(const char *id)
{
    return pst_sprintf("experiment:%s", id);
}

static bool name_ok(pst_http_req *req, const char *name)
{
    if (strlen(name) <= GW_MLFLOW_NAME_MAX)
        return true;
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "'name' exceeds the maximum length of %d bytes", GW_MLFLOW_NAME_MAX);
    return false;
}

static void created(gw_state *g, pst_http_req *req, const char *id)
{
    gw_mlflow_reply(req, json_pack("{s:s}", "experiment_id", id));
}

static void create(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    char id[24], taken[200] = "";
    gw_tracking *t = gw_mlflow_lock(g, req, create);
    if (!t)
        return;
    json_t *body = gw_mlflow_body(req);
    const char *name = body ? gw_mlflow_want(req, body, "name") : NULL;
    bool ok = name && name_ok(req, name);
    if (ok) {
        const gw_experiment *e = gw_tracking_experiment_named(t, name);
        if (e)
            snprintf(taken, sizeof taken, "Experiment '%.80s' already exists%s.", name,
                     e->deleted ? " in deleted state: restore it, or take another name" : "");
        else
            gw_tracking_experiment_id(t, name, id);
    }
    gw_mlflow_unlock(g);
    if (*taken)
        gw_mlflow_fail(req, "RESOURCE_ALREADY_EXISTS", "%s", taken);
    else if (ok) {
        gw_facts *f = gw_facts_new(g, req);
        char *subject = subject_of(id);
        gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = PST_TRACKING_KIND_CREATED, .value = (char *)name});
        if (gw_mlflow_add_tags(f, req, subject, json_object_get(body, "tags")))
            gw_facts_send(f, created, id);
        else
            gw_facts_drop(f);
        free(subject);
    }
    json_decref(body);
}

static void reply_one(gw_state *g, pst_http_req *req, const gw_experiment *e)
{
    json_t *j = json_pack("{s:o}", "experiment", experiment_json(e));
    gw_mlflow_unlock(g);
    gw_mlflow_reply(req, j);
}

static void get(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    gw_tracking *t = gw_mlflow_lock(g, req, get);
    if (!t)
        return;
    const char *id = gw_query(req, "experiment_id");
    const gw_experiment *e = find(g, req, t, id ? id : "");
    if (e)
        reply_one(g, req, e);
}

static void get_by_name(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    gw_tracking *t = gw_mlflow_lock(g, req, get_by_name);
    if (!t)
        return;
    const char *name = gw_query(req, "experiment_name");
    const gw_experiment *e = gw_tracking_experiment_named(t, name ? name : "");
    if (e) {
        reply_one(g, req, e);
        return;
    }
    gw_mlflow_unlock(g);
    gw_mlflow_fail(req, "RESOURCE_DOES_NOT_EXIST", "Could not find experiment with name '%.200s'", name ? name : "");
}

/* ---- changes --------------------------------------------------------------------------------------------------------------- */

/* The experiment of a body; its subject is free()d by the caller, as is the body. NULL: req is answered. */
static char *wanted(gw_state *g, pst_http_req *req, pst_http_handler handler, json_t **ret_body, char **ret_name)
{
    gw_tracking *t = gw_mlflow_lock(g, req, handler);
    if (!t)
        return NULL;
    json_t *body = gw_mlflow_body(req);
    const char *id = body ? gw_mlflow_want(req, body, "experiment_id") : NULL;
    gw_experiment *e = NULL;
    if (!id)
        gw_mlflow_unlock(g);
    else if ((e = find(g, req, t, id))) {
        *ret_body = body;
        *ret_name = pst_strdup(e->name);
        gw_mlflow_unlock(g);
        return subject_of(id);
    }
    json_decref(body);
    return NULL;
}

static void send_one(gw_state *g, pst_http_req *req, char *subject, pst_tracking_kind kind, const char *name, const char *value)
{
    gw_facts *f = gw_facts_new(g, req);
    gw_facts_add(f, (pst_tracking_record){.subject = subject, .kind = kind, .name = (char *)name, .value = (char *)value});
    gw_facts_send(f, NULL, NULL);
}

static void change(gw_state *g, pst_http_req *req, pst_http_handler handler, const char *lifecycle)
{
    json_t *body = NULL;
    char *name = NULL, *subject = wanted(g, req, handler, &body, &name);
    if (!subject)
        return;
    if (!strcmp(subject, "experiment:" GW_MLFLOW_DEFAULT))
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "the experiment Default (0) is always there");
    else
        send_one(g, req, subject, PST_TRACKING_KIND_LIFECYCLE, "", lifecycle);
    json_decref(body);
    free(name);
    free(subject);
}

static void delete_it(void *arg, pst_http_req *req)
{
    change(arg, req, delete_it, "deleted");
}

static void restore(void *arg, pst_http_req *req)
{
    change(arg, req, restore, "active");
}

static bool name_is_free(gw_state *g, pst_http_req *req, const char *name)
{
    gw_tracking *t = gw_mlflow_lock_again(g);
    bool there = gw_tracking_experiment_named(t, name) != NULL;
    gw_mlflow_unlock(g);
    if (there)
        gw_mlflow_fail(req, "RESOURCE_ALREADY_EXISTS", "Experiment '%.200s' already exists.", name);
    return !there;
}

static void update(void *arg, pst_http_req *req)
{
    json_t *body = NULL;
    char *old = NULL, *subject = wanted(arg, req, update, &body, &old);
    if (!subject)
        return;
    const char *name = gw_mlflow_want(req, body, "new_name");
    if (name && name_ok(req, name) && (!strcmp(name, old) || name_is_free(arg, req, name)))
        send_one(arg, req, subject, PST_TRACKING_KIND_NAME, "", name);
    json_decref(body);
    free(old);
    free(subject);
}

static void set_tag(void *arg, pst_http_req *req)
{
    json_t *body = NULL;
    char *name = NULL, *subject = wanted(arg, req, set_tag, &body, &name);
    if (!subject)
        return;
    const char *key = gw_mlflow_want(req, body, "key"), *value = key ? gw_mlflow_value(req, body) : NULL;
    if (value && gw_mlflow_tag_ok(req, key, value))
        send_one(arg, req, subject, PST_TRACKING_KIND_TAG, key, value);
    json_decref(body);
    free(name);
    free(subject);
}

static void delete_tag(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    json_t *body = NULL;
    char *name = NULL, *subject = wanted(g, req, delete_tag, &body, &name);
    if (!subject)
        return;
    const char *key = gw_mlflow_want(req, body, "key");
    if (key && gw_mlflow_key_ok(req, "key", key)) {
        gw_facts *f = gw_facts_new(g, req);
        gw_facts_remove(f, subject, PST_TRACKING_KIND_TAG, key);
        gw_facts_send(f, NULL, NULL);
    }
    json_decref(body);
    free(name);
    free(subject);
}

/* ---- search ---------------------------------------------------------------------------------------------------------------- */

static const gw_attribute attributes[] = {
    {"name", false}, {"experiment_id", false}, {"creation_time", true}, {"last_update_time", true}, {0}};

static gw_value value_of(const void *thing, gw_filter_of of, const char *key)
{
    const gw_experiment *e = thing;
    const char *tag = of == GW_TAG ? json_string_value(json_object_get(e->tags, key)) : NULL;
    if (of == GW_TAG)
        return (gw_value){.there = tag != NULL, .text = tag};
    if (of != GW_ATTRIBUTE)
        return (gw_value){0};
    if (!strcmp(key, "creation_time"))
        return (gw_value){true, true, (double)e->created_ms, NULL};
    if (!strcmp(key, "last_update_time"))
        return (gw_value){true, true, (double)e->updated_ms, NULL};
    return (gw_value){.there = true, .text = strcmp(key, "name") ? e->id : e->name};
}

static const gw_order *sorted_by; /* for qsort, which hands no argument on; @thread loop */
static size_t n_sorted_by;

static int compare(const void *a, const void *b)
{
    const gw_experiment *x = *(gw_experiment *const *)a, *y = *(gw_experiment *const *)b;
    for (size_t i = 0; i < n_sorted_by; i++) {
        int order = gw_order_compare(&sorted_by[i], value_of, x, y);
        if (order)
            return order;
    }
    int by = (y->updated_ms > x->updated_ms) - (y->updated_ms < x->updated_ms);
    return by ? by : strcmp(x->id, y->id);
}

static bool in_view(const gw_experiment *e, const char *view)
{
    return !strcmp(view, "ALL") || e->deleted == !strcmp(view, "DELETED_ONLY");
}

typedef struct search {
    const char *view;
    gw_filter *filter;
    gw_order orders[10];
    size_t n_orders, n, from;
} search;

static void reply_search(gw_state *g, pst_http_req *req, const search *s)
{
    gw_tracking *t = gw_mlflow_lock_again(g);
    gw_experiment **found = pst_alloc((t->experiments.n + 1) * sizeof(gw_experiment *));
    size_t all = 0;
    for (size_t i = 0; i < t->experiments.n; i++) {
        gw_experiment *e = t->experiments.at[i].key ? t->experiments.at[i].value : NULL;
        if (e && (e->created || e->jobs) && in_view(e, s->view) && gw_filter_matches(s->filter, value_of, e))
            found[all++] = e;
    }
    sorted_by = s->orders;
    n_sorted_by = s->n_orders;
    qsort(found, all, sizeof *found, compare);
    json_t *list = json_array(), *answer = json_pack("{s:o}", "experiments", list);
    for (size_t i = s->from; i < all && i - s->from < s->n; i++)
        json_array_append_new(list, experiment_json(found[i]));
    gw_mlflow_next_page(answer, s->from, s->n, all);
    free(found);
    gw_mlflow_unlock(g);
    gw_mlflow_reply(req, answer);
}

static bool parse_orders(search *s, const json_t *list, pst_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (s->n_orders == sizeof s->orders / sizeof *s->orders || !text) {
            pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "order", 0, "order_by has ten texts at most");
            return false;
        }
        if (gw_order_parse(text, attributes, &s->orders[s->n_orders], err) < 0)
            return false;
        s->n_orders++;
    }
    return true;
}

static void run_search(gw_state *g, pst_http_req *req, const char *view, const char *filter, const json_t *orders, const char *max_results,
                       const char *token)
{
    search s = {.view = view ? view : "ACTIVE_ONLY"};
    pst_err err = {0};
    if (strcmp(s.view, "ACTIVE_ONLY") && strcmp(s.view, "DELETED_ONLY") && strcmp(s.view, "ALL"))
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "view_type is ACTIVE_ONLY, DELETED_ONLY or ALL");
    else if (!gw_mlflow_page(req, max_results, token, 50000, &s.n, &s.from))
        return;
    else if (gw_filter_parse(filter, attributes, &s.filter, &err) < 0 || !parse_orders(&s, orders, &err))
        gw_mlflow_fail_err(req, &err);
    else
        reply_search(g, req, &s);
    gw_filter_free(s.filter);
    for (size_t i = 0; i < s.n_orders; i++)
        gw_order_done(&s.orders[i]);
}

static void search_post(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, search_post))
        return;
    gw_mlflow_unlock(g);
    json_t *body = gw_mlflow_body(req);
    char max[24] = "";
    int64_t n = 0;
    if (body && json_object_get(body, "max_results") && gw_mlflow_int(body, "max_results", &n))
        snprintf(max, sizeof max, "%lld", (long long)n);
    if (body)
        run_search(g, req, pst_json_str(body, "view_type", NULL), pst_json_str(body, "filter", NULL), json_object_get(body, "order_by"),
                   max, pst_json_str(body, "page_token", NULL));
    json_decref(body);
}

static void search_get(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, search_get))
        return;
    gw_mlflow_unlock(g);
    run_search(g, req, gw_query(req, "view_type"), gw_query(req, "filter"), NULL, gw_query(req, "max_results"),
               gw_query(req, "page_token"));
}

#define TEXT(name, doc)                                  \
    {                                                    \
        name, "query", GW_JSON({"type" : "string"}), doc \
    }
static const gw_param by_id[] = {TEXT("experiment_id", "its id"), {0}}, by_name[] = {TEXT("experiment_name", "its name"), {0}},
                      of_search[] = {TEXT("view_type", "ACTIVE_ONLY, DELETED_ONLY, ALL"),
                                     TEXT("filter", "as MLflow's search syntax"),
                                     TEXT("max_results", "1 to 50,000"),
                                     TEXT("page_token", "next_page_token of the page before"),
                                     {0}};
#define POST(path, fn, name, doc)                                                                                          \
    {                                                                                                                      \
        {"POST", GW_MLFLOW_ROOT "/experiments/" path, fn, GW_MLFLOW_BODY_MAX, GW_MLFLOW, doc}, name, NULL, gw_mlflow_json, \
            gw_mlflow_answers                                                                                              \
    }
#define GET(path, fn, name, params, doc)                                                                           \
    {                                                                                                              \
        {"GET", GW_MLFLOW_ROOT "/experiments/" path, fn, 0, GW_MLFLOW, doc}, name, params, NULL, gw_mlflow_answers \
    }
static const gw_route routes[] = {
    POST("create", create, "mlflowCreateExperiment", "Creates an experiment: `name`, `tags`."),
    GET("get", get, "mlflowGetExperiment", by_id, "One experiment."),
    GET("get-by-name", get_by_name, "mlflowGetExperimentByName", by_name, "One experiment, by its name."),
    POST("search", search_post, "mlflowSearchExperiments", "Experiments: `filter`, `order_by`, `view_type`, `max_results`, `page_token`."),
    GET("search", search_get, "mlflowSearchExperimentsByQuery", of_search, "The same by a query."),
    GET("list", search_get, "mlflowListExperiments", of_search, "The same, as older clients ask."),
    POST("update", update, "mlflowUpdateExperiment", "Gives it another name: `experiment_id`, `new_name`."),
    POST("delete", delete_it, "mlflowDeleteExperiment", "Marks it as deleted: `experiment_id`."),
    POST("restore", restore, "mlflowRestoreExperiment", "Takes that back."),
    POST("set-experiment-tag", set_tag, "mlflowSetExperimentTag", "Sets a tag: `experiment_id`, `key`, `value`."),
    POST("delete-experiment-tag", delete_tag, "mlflowDeleteExperimentTag", "Removes a tag: `experiment_id`, `key`."),
};
const gw_noun gw_mlflow_experiments_noun = {"mlflow experiments", "MLflow's experiments; those of platform jobs have the jobs' name.",
                                            routes, sizeof routes / sizeof *routes, gw_mlflow_schemas};
