/* mlflow_model_search.c - searches of registered models and of their versions. There are few of them beside runs, so each search makes all of them as they are
 * shown and asks the filter of that. */
#include "producers/gateway/mlflow.h"
#include "producers/gateway/mlflow_filter.h"

#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { RESULTS_MAX = 1000 };

static const gw_attribute model_attributes[] = {{"name", false},
                                                {"last_updated_timestamp", true},
                                                {"timestamp", true},
                                                {"creation_timestamp", true},
                                                {0}},
                          version_attributes[] = {{"name", false},
                                                  {"run_id", false},
                                                  {"source_path", false},
                                                  {"version_number", true},
                                                  {"current_stage", false},
                                                  {"creation_timestamp", true},
                                                  {"last_updated_timestamp", true},
                                                  {0}};

static gw_value value_of(const void *thing, gw_filter_of of, const char *key)
{
    const json_t *j = thing, *v;
    size_t i;
    json_t *tag;
    if (of == GW_TAG) {
        json_array_foreach(json_object_get(j, "tags"), i, tag)
        {
            if (!strcmp(pst_json_str(tag, "key", ""), key))
                return (gw_value){.there = true, .text = pst_json_str(tag, "value", "")};
        }
        /* MLflow's client asks for models that are no prompts; what is not said to be one is none, as in MLflow. */
        return (gw_value){.there = !strcmp(key, "mlflow.prompt.is_prompt"), .text = "false"};
    }
    if (of != GW_ATTRIBUTE)
        return (gw_value){0};
    if (!strcmp(key, "version_number"))
        return (gw_value){true, true, strtod(pst_json_str(j, "version", "0"), NULL), NULL};
    const char *member = !strcmp(key, "timestamp") ? "last_updated_timestamp" : !strcmp(key, "source_path") ? "source" : key;
    v = json_object_get(j, member);
    if (json_is_integer(v))
        return (gw_value){true, true, (double)json_integer_value(v), NULL};
    return (gw_value){.there = v != NULL, .text = pst_json_str(j, member, "")};
}

static gw_order sort_order; /* for qsort; @thread loop */
static bool by_number;      /* versions: the newest first */

static int compare(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int order = sort_order.key ? gw_order_compare(&sort_order, value_of, x, y) : 0;
    if (!order && by_number) {
        int64_t new = pst_json_int(y, "creation_timestamp", 0), old = pst_json_int(x, "creation_timestamp", 0);
        order = (new > old) - (new < old);
    }
    return order ? order : strcmp(pst_json_str(x, "name", ""), pst_json_str(y, "name", ""));
}

typedef struct collection {
    gw_tracking *t;
    json_t *list;
} collection;

static void collect_version(void *arg, const pst_model_event *v, const char *aliases)
{
    collection *c = arg;
    json_array_append_new(c->list, gw_mlflow_version_json(c->t, v, aliases));
}

static void collect_name(void *arg, const pst_model_event *v, const char *aliases)
{
    pst_map *names = arg;
    static char there;
    pst_map_put(names, v->name, &there);
}

static json_t *all_models(gw_tracking *t)
{
    pst_map names = {0};
    json_t *list = json_array();
    pst_models_each(t->models, NULL, collect_name, &names);
    for (size_t i = 0; i < t->notes.n; i++)
        if (t->notes.at[i].key && !strncmp(t->notes.at[i].key, "model:", 6))
            pst_map_put(&names, t->notes.at[i].key + 6, t);
    for (size_t i = 0; i < names.n; i++) {
        json_t *j = gw_mlflow_model_json(t, names.at[i].key);
        if (j)
            json_array_append_new(list, j);
    }
    pst_map_done(&names, NULL);
    return list;
}

static json_t *all_versions(gw_tracking *t)
{
    collection c = {t, json_array()};
    pst_models_each(t->models, NULL, collect_version, &c);
    return c.list;
}

static void search(gw_state *g, pst_http_req *req, const gw_attribute *attributes, json_t *(*all)(gw_tracking *t), const char *member)
{
    gw_filter *filter = NULL;
    pst_err err = {0};
    size_t n, from, found = 0;
    const char *order = gw_query(req, "order_by"), *text = gw_query(req, "filter");
    if (!gw_mlflow_page(req, gw_query(req, "max_results"), gw_query(req, "page_token"), 200000, &n, &from))
        return;
    sort_order = (gw_order){0};
    by_number = attributes == version_attributes;
    if (gw_filter_parse(text, attributes, &filter, &err) < 0 ||
        (order && *order && gw_order_parse(order, attributes, &sort_order, &err) < 0)) {
        gw_mlflow_fail_err(req, &err);
        gw_filter_free(filter);
        return;
    }
    json_t *list = all(gw_mlflow_lock_again(g)), *out = json_array(), *j = json_pack("{s:o}", member, out);
    gw_mlflow_unlock(g);
    json_t **hits = pst_alloc((json_array_size(list) + 1) * sizeof(json_t *));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (gw_filter_matches(filter, value_of, json_array_get(list, i)))
            hits[found++] = json_array_get(list, i);
    qsort(hits, found, sizeof *hits, compare);
    n = n > RESULTS_MAX ? RESULTS_MAX : n;
    for (size_t i = from; i < found && i - from < n; i++)
        json_array_append(out, hits[i]);
    gw_mlflow_next_page(j, from, n, found);
    free(hits);
    json_decref(list);
    gw_filter_free(filter);
    gw_order_done(&sort_order);
    gw_mlflow_reply(req, j);
}

void gw_mlflow_search_models(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, gw_mlflow_search_models))
        return;
    gw_mlflow_unlock(g);
    search(g, req, model_attributes, all_models, "registered_models");
}

void gw_mlflow_search_versions(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    if (!gw_mlflow_lock(g, req, gw_mlflow_search_versions))
        return;
    gw_mlflow_unlock(g);
    search(g, req, version_attributes, all_versions, "model_versions");
}

/* ---- stages ---------------------------------------------------------------------------------------------------------------- */

typedef struct staged {
    gw_tracking *t;
    const char *stage;
    json_t *version; /* the highest so far; NULL */
} staged;

/* A stage is its alias, whatever other alias the version has; None is neither. */
static void take_staged(void *arg, const pst_model_event *v, const char *aliases)
{
    staged *s = arg;
    bool in = !strcmp(s->stage, "None")         ? !gw_mlflow_has_alias(aliases, "staging") && !gw_mlflow_has_alias(aliases, "production")
              : !strcmp(s->stage, "Production") ? gw_mlflow_has_alias(aliases, "production")
                                                : !strcmp(s->stage, "Staging") && gw_mlflow_has_alias(aliases, "staging");
    if (!in || (s->version && atoi(pst_json_str(s->version, "version", "0")) > v->version))
        return;
    json_decref(s->version);
    s->version = gw_mlflow_version_json(s->t, v, aliases);
}

static const char *stage_named(const char *word)
{
    static const char *const all[] = {"None", "Staging", "Production", "Archived"};
    for (size_t i = 0; word && i < sizeof all / sizeof *all; i++)
        if (!strcasecmp(all[i], word))
            return all[i];
    return NULL;
}

json_t *gw_mlflow_of_stages(gw_state *g, pst_http_req *req, const char *name, const json_t *stages)
{
    json_t *list = json_array(), *one, *asked = json_object();
    size_t i;
    json_array_foreach((json_t *)stages, i, one)
    {
        staged s = {.stage = stage_named(json_string_value(one))};
        if (!s.stage) {
            gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE",
                           "Invalid Model Version stage: %.40s. It is None, Staging, Production or Archived",
                           json_is_string(one) ? json_string_value(one) : "no text");
            json_decref(asked);
            json_decref(list);
            return NULL;
        }
        if (json_object_get(asked, s.stage))
            continue;
        json_object_set_new(asked, s.stage, json_true());
        s.t = gw_mlflow_lock_again(g);
        pst_models_each(s.t->models, name, take_staged, &s);
        gw_mlflow_unlock(g);
        if (s.version)
            json_array_append_new(list, s.version);
    }
    json_decref(asked);
    return list;
}
