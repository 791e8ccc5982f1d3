/* lcm_metrics.c - /metrics and /health of an LCM. Figures are taken from the dump that a person would read, so that both say the same; the time of the last
 * round tells a loop that stands still from one that has nothing to do. */
#include "lcm/lcm_metrics.h"

#include "common/base/clock.h"
#include "common/loop/http.h"
#include "schemas/metric_list.h"

#include <stdlib.h>

enum { SHOW_US = 1000000 };

static const struct {
    pst_metric_id id;
    const char *member; /* of the dump */
} figures[] = {{PST_METRIC_LCM_JOBS, "jobs_known"},
               {PST_METRIC_LCM_PROCESSES, "processes"},
               {PST_METRIC_LCM_AWAITED, "launcher_answers_awaited"},
               {PST_METRIC_LCM_REPORTS, "reports_not_committed"},
               {PST_METRIC_LCM_HEARTBEATS, "heartbeats_not_acknowledged"}};
enum { N_FIGURES = sizeof figures / sizeof *figures };

struct lcm_metrics {
    pst_metrics *set;
    pst_metric *figures[N_FIGURES], *round;
    pst_http_thread *http;
    int64_t next_us;
};

int lcm_metrics_open(int port, int64_t epoch, pst_dump *dump, const char *token_path, lcm_metrics **ret_metrics, pst_err *err)
{
    if (!port)
        return 0;
    lcm_metrics *m = pst_alloc(sizeof *m);
    m->set = pst_metrics_new();
    for (size_t i = 0; i < N_FIGURES; i++)
        m->figures[i] = pst_metric_of(m->set, figures[i].id, NULL);
    m->round = pst_metric_of(m->set, PST_METRIC_LCM_ROUND, NULL);
    pst_metric_set(pst_metric_of(m->set, PST_METRIC_LCM_EPOCH, NULL), (double)epoch);
    int rc = pst_http_thread_metrics(&(pst_http_conf){.port = port, .name = "lcm"}, m->set, NULL, NULL, &m->http, err);
    if (rc < 0) {
        lcm_metrics_close(m);
        return rc;
    }
    pst_http_thread_set_dump(m->http, dump, token_path);
    *ret_metrics = m;
    return 0;
}

void lcm_metrics_show(lcm_metrics *m, void (*fill)(void *arg, json_t *to), void *arg)
{
    if (!m || pst_mono_us() < m->next_us)
        return;
    m->next_us = pst_mono_us() + SHOW_US;
    json_t *state = json_object();
    fill(arg, state);
    for (size_t i = 0; i < N_FIGURES; i++)
        pst_metric_set(m->figures[i], pst_json_num(state, figures[i].member, 0));
    pst_metric_set(m->round, (double)pst_now_us() / 1e6);
    json_decref(state);
}

void lcm_metrics_close(lcm_metrics *m)
{
    if (!m)
        return;
    pst_http_thread_stop(m->http);
    pst_metrics_free(m->set);
    free(m);
}
