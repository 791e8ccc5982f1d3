/* serve_shelf.c - a model's version made ready to answer, and given back. Only the engine itself runs models here (PST_BACKENDS_OWN): it bounds steps,
 * time and memory and reads hostile files, and the process that it would bring down is the gateway. */
#include "inference/serve/serve.h"

#include <stdlib.h>

static bool free_first(const pst_value_info *v, size_t n)
{
    bool all = n > 0;
    for (size_t i = 0; i < n; i++)
        all &= v[i].rank > 0 && v[i].dims[0] < 0;
    return all;
}

int serve_model_load(serve_model *m, const pst_buf *data, size_t arena_max, pst_err *err)
{
    pst_model_limits limits = {.backends = PST_BACKENDS_OWN, .file_bytes_max = data->len + 1, .arena_bytes_max = arena_max};
    int rc = pst_model_load(data->data ? data->data : "", data->len, NULL, &limits, &m->m, err);
    if (rc < 0) {
        pst_err_prefix(err, "model %s version %d", m->found.name, m->found.version);
        return rc;
    }
    m->info = pst_model_info_get(m->m);
    m->batches = free_first(m->info->inputs, m->info->n_inputs) && free_first(m->info->outputs, m->info->n_outputs) && !m->info->draws;
    return 0;
}

void serve_model_free(serve_model *m)
{
    PST_ASSERT(!m->first && !m->running);
    for (int i = 0; i < SERVE_WORKERS_MAX; i++)
        pst_plan_free(m->plans[i]);
    pst_model_unref(m->m);
    free(m->found.uri);
    free(m);
}
