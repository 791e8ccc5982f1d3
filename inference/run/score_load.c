/* score_load.c - what `score check`, `explain` and `replay` bind: a file, or the version that an alias names now, read once from the models
 * topic. The running scorer has its own way (score_follow.c), as it swaps while it works. */
#include "inference/run/score_load.h"

#include "common/platform/models.h"
#include "common/objects/objects.h"
#include "common/platform/client.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

int pst_score_load_file(const pst_pipeline *p, const char *path, pst_binding **ret_binding, pst_err *err)
{
    pst_model *m = NULL;
    const pst_model_limits limits = pst_binding_limits(p);
    int rc = pst_model_load_file(path, &limits, &m, err);
    if (rc < 0)
        return rc;
    const char *base = strrchr(path, '/');
    char *name = pst_strdup(base ? base + 1 : path), *dot = strrchr(name, '.');
    if (dot && dot > name)
        *dot = 0;
    rc = pst_binding_new(p, m, name, 0, p->batch_count, ret_binding, err);
    free(name);
    pst_model_unref(m);
    return rc;
}

static int load_version(const pst_settings *settings, const pst_pipeline *p, const pst_model_event *v, pst_binding **ret_binding,
                        pst_err *err)
{
    pst_objects *o = NULL;
    pst_buf data = {0};
    pst_model *m = NULL;
    const pst_model_limits limits = pst_binding_limits(p);
    int rc = pst_objects_open(settings->objects.value, &o, err);
    if (rc == 0)
        rc = pst_objects_get(o, v->uri, v->digest, limits.file_bytes_max, &data, err);
    if (rc == 0)
        rc = pst_model_load(data.data ? data.data : "", data.len, NULL, &limits, &m, err);
    if (rc == 0)
        rc = pst_binding_new(p, m, v->name, v->version, p->batch_count, ret_binding, err);
    pst_model_unref(m);
    pst_buf_done(&data);
    pst_objects_close(o);
    return rc;
}

/* Which of name, version and alias it is that is not there. */
static int no_such(const pst_models *models, const pst_model_choice *choice, pst_err *err)
{
    if (!pst_models_resolve(models, choice->name, NULL, 0))
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                           "there is no model %s (asked for: %s%s); penstock models list shows what there is", choice->name,
                           choice->alias ? "alias " : "a version", choice->alias ? choice->alias : "");
    if (choice->version)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                           "model %s has no version %d; penstock models list shows what there is", choice->name, choice->version);
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                       "model %s has no alias %s; penstock models list shows what there is, penstock models alias %s %s VERSION sets it",
                       choice->name, choice->alias, choice->name, choice->alias);
}

int pst_score_load_choice(const pst_settings *settings, const pst_pipeline *p, const pst_model_choice *choice, pst_binding **ret_binding,
                          pst_err *err)
{
    if (choice->file)
        return pst_score_load_file(p, choice->file, ret_binding, err);
    pst_client *c = NULL;
    pst_models *models = pst_models_new();
    int rc = pst_client_open(settings, "penstock-score-load", &c, err);
    if (rc == 0)
        rc = pst_models_load(models, c, err);
    if (rc == 0) {
        const pst_model_event *v = pst_models_resolve(models, choice->name, choice->alias, choice->version);
        rc = v ? load_version(settings, p, v, ret_binding, err) : no_such(models, choice, err);
    }
    pst_models_free(models);
    pst_client_close(c);
    return rc;
}

int pst_score_load_model(const pst_settings *settings, const pst_pipeline *p, pst_binding **ret_binding, pst_err *err)
{
    return pst_score_load_choice(settings, p, &p->model, ret_binding, err);
}
