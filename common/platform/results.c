/* results.c - the place of results. A mounted folder that this process cannot write to is passed over: a job whose results had no place would have been
 * for nothing. */
#include "common/platform/results.h"

#include "common/base/fs.h"
#include "common/objects/rundir.h"

#include <string.h>
#include <unistd.h>

static bool is_mount(const char *type)
{
    return type && (!strcmp(type, "mount") || !strcmp(type, "host_mount") || !strcmp(type, "mount_volume"));
}

void pst_results_place(const char *state_dir, const char *training_id, const pst_manifest *m, char **ret_bucket, char **ret_dir)
{
    for (size_t i = 0; i < m->n_stores; i++) {
        const pst_data_store *s = &m->stores[i];
        const char *base = json_string_value(json_object_get(s->connection, "path"));
        if (!is_mount(s->type) || !s->output || !base || access(base, W_OK) < 0)
            continue;
        *ret_bucket = pst_fs_join(base, s->output);
        *ret_dir = pst_fs_join(*ret_bucket, training_id);
        return;
    }
    *ret_bucket = pst_rundir_job_dir(state_dir, training_id);
    *ret_dir = pst_fs_join(*ret_bucket, "results");
}
