/* expected.c - see expected.h. */
#include "lcm/expected.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"

#include <stdlib.h>
#include <string.h>

typedef struct known {
    int generation;
    bool live, here; /* PENDING … STORING; on this site */
} known;

struct pst_lcm_expected {
    pst_client *client;
    char *site;
    pst_map jobs;     /* training_id → known */
    int64_t *horizon; /* per partition of jobs.commands: offsets below were written before the start */
    int partitions;
    int64_t read_us; /* monotonic, when the last reading began */
};

static int on_state(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    pst_lcm_expected *e = arg;
    pst_job_state s;
    if (!r->value) {
        free(pst_map_take(&e->jobs, key));
        return 0;
    }
    int rc = pst_codec_decode(e->client->codec, &pst_job_state_type, r->value, r->value_len, r->timestamp_ms, &s, err);
    if (rc < 0 && err && err->cls == PST_CLASS_RETRY)
        return rc;
    if (rc < 0) {
        pst_log_err("lcm", err);
        pst_err_clear(err);
        return 0;
    }
    known *k = pst_alloc(sizeof *k);
    k->generation = s.generation;
    k->here = !strcmp(s.site, e->site);
    k->live = s.generation > 0 && (s.state == PST_JOB_PUBLIC_STATE_PENDING || s.state == PST_JOB_PUBLIC_STATE_DOWNLOADING ||
                                   s.state == PST_JOB_PUBLIC_STATE_PROCESSING || s.state == PST_JOB_PUBLIC_STATE_STORING);
    free(pst_map_put(&e->jobs, s.training_id, k));
    pst_event_clear(&pst_job_state_type, &s);
    return 0;
}

static int read_states(pst_lcm_expected *e, pst_err *err)
{
    pst_map fresh = {0}, old = e->jobs;
    e->jobs = fresh;
    int64_t begin_us = pst_mono_us();
    int rc = pst_client_scan(e->client, PST_TOPIC_JOBS_STATE, NULL, on_state, e, err);
    if (rc < 0) {
        pst_map_done(&e->jobs, free);
        e->jobs = old;
        return rc;
    }
    pst_map_done(&old, free);
    e->read_us = begin_us;
    return 0;
}

int pst_lcm_expected_read(pst_client *client, const char *site, pst_lcm_expected **ret_expected, pst_err *err)
{
    pst_lcm_expected *e = pst_alloc(sizeof *e);
    pst_topic_info info;
    e->client = client;
    e->site = pst_strdup(site);
    int rc = pst_admin_topic(client->bus, pst_client_topic(client, PST_TOPIC_JOBS_COMMANDS), &info, 10000, err);
    if (rc == PST_ENOTFOUND && err) /* `up` creates topics before it starts us; alone we wait for somebody to do so */
        err->cls = PST_CLASS_RETRY;
    if (!rc) {
        e->partitions = info.partitions;
        e->horizon = pst_alloc(((size_t)info.partitions + 1) * sizeof *e->horizon);
        memcpy(e->horizon, info.high, (size_t)info.partitions * sizeof *e->horizon);
        pst_topic_info_done(&info);
        rc = read_states(e, err);
    }
    if (rc < 0) {
        pst_lcm_expected_free(e);
        return rc;
    }
    *ret_expected = e;
    return 0;
}

void pst_lcm_expected_free(pst_lcm_expected *e)
{
    if (!e)
        return;
    pst_map_done(&e->jobs, free);
    free(e->horizon);
    free(e->site);
    free(e);
}

static bool wanted(const pst_lcm_expected *e, const pst_job_command *c)
{
    const known *k = pst_map_get(&e->jobs, c->training_id);
    if (c->command == PST_JOB_COMMAND_TYPE_CLEAN)
        return !k || !k->live;
    return k && k->live && k->generation == c->generation;
}

bool pst_lcm_expected_allows(pst_lcm_expected *e, const pst_record *record, int64_t polled_us, const pst_job_command *c,
                             int known_generation)
{
    bool before = record->partition < e->partitions && record->offset < e->horizon[record->partition];
    bool harmless = c->command != PST_JOB_COMMAND_TYPE_CLEAN && known_generation >= c->generation; /* the core knows what to do */
    if (!before || harmless || wanted(e, c))
        return true;
    if (e->read_us < polled_us) { /* the command's transaction is complete by now: a reading from now on shows its state */
        pst_err err = {0};
        if (read_states(e, &err) < 0) {
            pst_log_err("lcm", &err);
            return true; /* unknown is no reason to leave a job standing */
        }
    }
    return wanted(e, c);
}

void pst_lcm_expected_each(const pst_lcm_expected *e, void (*fn)(void *arg, const char *training_id, int generation), void *arg)
{
    for (size_t i = 0; i < e->jobs.n; i++) {
        const known *k = e->jobs.at[i].key ? e->jobs.at[i].value : NULL;
        if (k && k->live && k->here)
            fn(arg, e->jobs.at[i].key, k->generation);
    }
}
