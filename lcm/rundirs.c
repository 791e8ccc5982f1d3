/* rundirs.c - the LCM's memory as plain files. A data base of its own would be a second truth beside the run directories, which supervisors
 * write as well: so the folders are the memory, found again by walking them once at the start. What cannot be read is left alone and said, for a
 * folder that is not understood may belong to a newer program. */
#include "lcm/rundirs.h"

#include "common/base/fs.h"
#include "common/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int lcm_rundirs_generation(const char *folder)
{
    static const char prefix[] = "gen-";
    char *end;
    if (strncmp(folder, prefix, sizeof prefix - 1) != 0)
        return 0;
    long generation = strtol(folder + sizeof prefix - 1, &end, 10);
    return generation < 1 || generation > INT_MAX || *end ? 0 : (int)generation;
}

static void found_generation(const char *state_dir, const char *site, const char *training_id, int generation, lcm_rundirs_fn fn, void *arg)
{
    char *dir = pst_rundir_gen_dir(state_dir, training_id, generation), nonce[PST_RUNDIR_NONCE_MAX];
    pst_rundir_spec intent;
    pst_err err = {0};
    int rc = pst_rundir_intent_read(dir, &intent, &err);
    free(dir);
    if (rc < 0) { /* without an intent nothing was started */
        const char *before = pst_log_job(training_id);
        if (rc != PST_ENOTFOUND)
            pst_log_err("lcm", &err);
        pst_log_job(before);
        return;
    }
    bool right_place = !strcmp(intent.training_id, training_id) && intent.generation == generation;
    if (right_place && (!intent.site || !strcmp(intent.site, site))) { /* the LCM of another site may use the same state folder */
        pst_rundir_nonce_read(state_dir, training_id, generation, nonce);
        fn(arg, &intent, nonce);
    }
    pst_rundir_spec_done(&intent);
}

int lcm_rundirs_scan(const char *state_dir, const char *site, lcm_rundirs_fn fn, void *arg, pst_err *err)
{
    char *jobs = pst_fs_join(state_dir, "jobs");
    int rc = pst_fs_mkdirs(jobs, 0700, err);
    DIR *d = rc ? NULL : opendir(jobs);
    if (!rc && !d)
        rc = pst_err_sys(err, errno, "cannot read %s", jobs);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!pst_rundir_name_ok(e->d_name))
            continue;
        char *job = pst_rundir_job_dir(state_dir, e->d_name);
        DIR *generations = opendir(job);
        for (struct dirent *g; generations && (g = readdir(generations));) {
            int generation = lcm_rundirs_generation(g->d_name);
            if (generation)
                found_generation(state_dir, site, e->d_name, generation, fn, arg);
        }
        if (generations)
            closedir(generations);
        free(job);
    }
    if (d)
        closedir(d);
    free(jobs);
    return rc;
}

int lcm_rundirs_intend(const char *state_dir, const pst_rundir_spec *intent, const char *nonce, pst_err *err)
{
    char *dir = pst_rundir_gen_dir(state_dir, intent->training_id, intent->generation);
    int rc = *nonce ? pst_rundir_nonce_write(state_dir, intent->training_id, intent->generation, nonce, err) : 0;
    if (!rc)
        rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_rundir_intent_write(dir, intent, err);
    free(dir);
    return rc;
}

int lcm_rundirs_members(const char *state_dir, const char *training_id, int generation, const pst_members *members, pst_err *err)
{
    char *dir = pst_rundir_gen_dir(state_dir, training_id, generation);
    pst_members there = {0};
    int rc = pst_members_read(dir, &there, NULL); /* one list a generation: the first stands */
    pst_members_done(&there);
    if (rc < 0)
        rc = pst_members_write(dir, members, err);
    free(dir);
    return rc;
}

int lcm_rundirs_stop(const char *state_dir, const pst_process_id *id, pst_rundir_stop_reason stop_reason, bool *ret_first, pst_err *err)
{
    PST_ASSERT(stop_reason != PST_STOP_REASON_NONE);
    char *dir = pst_rundir_dir(state_dir, id);
    bool first = pst_rundir_stop_reason_read(dir) == PST_STOP_REASON_NONE;
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_rundir_stop_reason_write(dir, stop_reason, err);
    if (!rc)
        *ret_first = first;
    free(dir);
    return rc;
}

int lcm_rundirs_mark_ended(const char *state_dir, const pst_process_id *id, const pst_rundir_exit *x, pst_err *err)
{
    char *dir = pst_rundir_dir(state_dir, id);
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_rundir_exit_write(dir, x, err);
    if (!rc)
        rc = pst_rundir_published_mark(dir, err);
    free(dir);
    return rc;
}

int lcm_rundirs_remove(const char *state_dir, const char *training_id, pst_err *err)
{
    char *dir = pst_rundir_job_dir(state_dir, training_id);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        int generation = lcm_rundirs_generation(e->d_name);
        if (generation)
            pst_rundir_nonce_remove(state_dir, training_id, generation);
    }
    if (d)
        closedir(d);
    int rc = pst_fs_remove_tree(dir, err);
    free(dir);
    return rc;
}
