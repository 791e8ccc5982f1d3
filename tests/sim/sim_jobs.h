/* sim_jobs.h - jobs of the simulation: manifests that users submit, and what of them may stand on nodes. */
#ifndef PST_TESTS_SIM_JOBS_H
#define PST_TESTS_SIM_JOBS_H

#include "common/base/buf.h"
#include "common/base/map.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"
#include "sim_seed.h"

#include <string.h>

/* random_id: a job that others may wait for. free() */
static char *random_manifest(const char *(*random_id)(void))
{
    static const char *const roles[] = {"",
                                        "",
                                        "ps: 0",
                                        "ps: 1",
                                        "chief: {}, worker: {count: 2}, ps: {gpus: 0, cpus: 0.5}",
                                        "worker: {count: 2}, evaluator: {gpus: 0}, own-name: {gpus: 0}"};
    static const char *const bad[] = {"learners: -1", "memory: much", "gpus: none", "cpus: [1]"};
    pst_buf b = {0};
    pst_buf_printf(&b, "name: job\nlearners: %d\ncpus: %s\nmemory: 256 MiB\ngpus: %d\n", 1 + below(3), chance(50) ? "1" : "0.5",
                   chance(15) ? 1 : 0);
    pst_buf_printf(&b, "framework: {name: custom, version: 1, command: run}\n");
    pst_buf_printf(&b, "penstock: {retries: %d, priority: %d, roles: {%s}%s%s}\n", below(3), below(3), roles[below(6)],
                   chance(15) ? ", deadline: 20s" : "", chance(8) ? ", hold: true" : "");
    if (chance(25)) { /* a line into the mapping before it would be a second one */
        b.len -= 2;
        pst_buf_printf(&b, ", after: [%s, %s]}\n", random_id(), random_id());
    }
    if (chance(8))
        pst_buf_printf(&b, "storage: nothing\n");
    if (chance(20)) /* admitted when its server has been asked */
        pst_buf_adds(&b, "data_stores: [{id: s, type: mount_cos, training_data: {container: b}, connection: {auth_url: \"http://h\", "
                         "user_name: u, password: p}}]\n");
    if (chance(6)) { /* never fits */
        pst_buf_clear(&b);
        pst_buf_adds(&b, "name: wide\nlearners: 13\nframework: {name: custom, version: 1, command: run}\n");
    }
    if (chance(12)) { /* more than a node has */
        static const char *const kinds[] = {"learners: 2\ncpus: 3\n", "learners: 3\ncpus: 2\n", "learners: 6\ncpus: 1\n",
                                            "cpus: 2\npenstock: {retries: 2, roles: {chief: {}, worker: {count: 2}, ps: {cpus: 0.5}}}\n"};
        pst_buf_clear(&b);
        pst_buf_printf(&b, "name: spread\n%sframework: {name: custom, version: 1, command: run}\n", kinds[below(4)]);
    }
    if (chance(6)) {
        pst_buf_clear(&b);
        pst_buf_printf(&b, "name: bad\n%s\n", bad[below(4)]);
    }
    return pst_buf_steal(&b);
}

/* What stands in the states: no node holds more than it has, and a gang over several nodes has a node for every process. */
static void check_rooms(const pst_map *states, const char *const *names, int n_nodes, double cpus_of_one)
{
    double cpus[8] = {0};
    PST_ASSERT(n_nodes <= 8);
    for (size_t i = 0; i < states->n; i++) {
        const pst_job_state *s = states->at[i].key ? states->at[i].value : NULL;
        if (!s || !pst_job_state_is_live(s->state))
            continue;
        pst_manifest m;
        pst_complaints errors = {0}, warnings = {0};
        pst_manifest_parse(s->manifest, strlen(s->manifest), &m, &errors, &warnings);
        for (size_t k = 0; k < s->n_processes; k++) {
            char name[32];
            const char *at = *s->processes[k].node ? s->processes[k].node : s->node;
            const pst_role *role = pst_manifest_process(&m, (int)k, name);
            if (!*s->processes[k].node != !*s->processes[0].node)
                broken("%s: %s has a node of its own, and not all have", s->training_id, name);
            for (int n = 0; n < n_nodes; n++)
                cpus[n] += strcmp(at, names[n]) ? 0 : role->cpus;
        }
        pst_manifest_done(&m);
        pst_complaints_done(&errors);
        pst_complaints_done(&warnings);
    }
    for (int n = 0; n < n_nodes; n++)
        if (cpus[n] > cpus_of_one + 1e-6)
            broken("%s holds processes for %g CPUs and has %g", names[n], cpus[n], cpus_of_one);
}

#endif
