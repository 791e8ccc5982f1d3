/* nouns.c - the list of nouns that the gateway serves. It stands apart from routes.c because it is above all handlers and routes.c below them. */
#include "producers/gateway/routes.h"

const gw_noun *const gw_nouns[] = {
    &gw_jobs_noun,
    &gw_records_noun,
    &gw_why_noun,
    &gw_registry_noun,
    &gw_pipelines_noun,
    &gw_topics_noun,
    &gw_nodes_noun,
    &gw_queues_noun,
    &gw_stream_noun,
    &gw_ffdl_noun,
    &gw_ffdl_logs_noun,
    &gw_ffdl_pages_noun,
    &gw_ffdl_files_noun,
    &gw_oip_noun,
    &gw_service_noun,
    &gw_mlflow_experiments_noun,
    &gw_mlflow_runs_noun,
    &gw_mlflow_log_noun,
    &gw_mlflow_artifacts_noun,
    &gw_mlflow_models_noun,
    &gw_page_noun,
    &gw_login_noun,
    NULL,
};

void gw_routes_add(pst_http *http, void *arg)
{
    pst_http_set_check(http, gw_check, arg);
    for (const gw_noun *const *n = gw_nouns; *n; n++)
        for (size_t i = 0; i < (*n)->n; i++)
            pst_http_add_routes(http, &(*n)->routes[i].http, 1, arg);
}
