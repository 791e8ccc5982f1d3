/* run.c - opens and closes a run: what its steps share is read and made once, here, and lent to all. */
#include "lcm/supervisor/run.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/platform/results.h"
#include "lcm/supervisor/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Its role, and its rank: a learner's number from 1, from which FfDL's names count, and by which results are kept, is its rank in any role. */
static int find_role(sup_run *r, pst_err *err)
{
    char name[32] = "";
    const char *tail = strrchr(r->spec.training_id, '-');
    int n = pst_manifest_processes(&r->manifest);
    r->rank = -1;
    for (int i = 0, rank = 0; i < n && !r->role; i++) {
        const pst_role *role = pst_manifest_process(&r->manifest, i, name);
        bool ranked = pst_role_is_ranked(role->name);
        if (!strcmp(name, r->spec.process)) {
            r->role = pst_manifest_role(&r->manifest, name, &r->role_index);
            r->rank = ranked ? rank : -1;
        }
        rank += ranked;
    }
    if (!r->role)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "manifest", 0, "the manifest has no process %s", r->spec.process);
    r->spec.learner_id = r->rank + 1;
    snprintf(r->name_prefix, sizeof r->name_prefix, "learner-%.100s", tail ? tail + 1 : r->spec.training_id);
    return 0;
}

/* The manifest is parsed again here: the LCM passes on the text as it was submitted, so that nobody in between can drop a key that only the
 * supervisor knows. */
int sup_run_open(const char *run_dir, sup_run *ret_run, pst_err *err)
{
    sup_run r = {0};
    char *absolute = realpath(run_dir, NULL);
    r.dir = absolute ? absolute : pst_strdup(run_dir);
    int rc = pst_rundir_spec_read(r.dir, &r.spec, err);
    if (rc < 0) {
        free(r.dir);
        return rc;
    }
    pst_complaints errors = {0}, warnings = {0};
    rc = pst_manifest_parse(r.spec.manifest, strlen(r.spec.manifest), &r.manifest, &errors, &warnings);
    if (rc < 0) {
        char *text = pst_complaints_text(&errors);
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "manifest", 0, "the manifest cannot be run: %s", text);
        free(text);
    }
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    if (!rc)
        rc = find_role(&r, err);
    char *gen_dir = pst_rundir_gen_dir(r.spec.state_dir, r.spec.training_id, r.spec.generation);
    char *job_dir = pst_rundir_job_dir(r.spec.state_dir, r.spec.training_id);
    r.code_dir = pst_fs_join(r.dir, "code");
    r.data_dir = pst_fs_join(r.dir, "data");
    r.job_state_dir = pst_fs_join(gen_dir, "job");
    r.log_dir = pst_fs_join(r.job_state_dir, "logs");
    r.own_log_dir = pst_fs_join(r.log_dir, r.spec.process);
    r.checkpoint_dir = pst_fs_join(job_dir, "checkpoints");
    pst_results_place(r.spec.state_dir, r.spec.training_id, &r.manifest, &r.result_bucket_dir, &r.result_dir);
    free(gen_dir);
    free(job_dir);
    const char *dirs[] = {r.code_dir, r.data_dir, r.own_log_dir, r.checkpoint_dir, r.result_dir};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs && !rc; i++)
        rc = pst_fs_mkdirs(dirs[i], 0700, err);
    if (rc < 0)
        sup_run_close(&r);
    else
        *ret_run = r;
    return rc;
}

void sup_run_close(sup_run *r)
{
    char *all[] = {r->dir,         r->code_dir,       r->data_dir,   r->job_state_dir,     r->log_dir,
                   r->own_log_dir, r->checkpoint_dir, r->result_dir, r->result_bucket_dir, r->checkpoint};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    pst_manifest_done(&r->manifest);
    pst_rundir_spec_done(&r->spec);
    memset(r, 0, sizeof *r);
}

void sup_run_say(sup_run *r, const char *fmt, ...)
{
    pst_buf raw = {0}, text = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&raw, fmt, ap);
    va_end(ap);
    sup_utf8_add(&text, raw.data, raw.len);
    sup_outlet_log(r->outlet, PST_LOG_STREAM_SYSTEM, pst_now_us(), text.data ? text.data : "", text.len);
    pst_buf_done(&raw);
    pst_buf_done(&text);
}

void sup_run_report(sup_run *r, pst_report_type type, const char *reason)
{
    pst_process_report report = {.type = type, .has_pid = true, .pid = (int32_t)getpid(), .reason = (char *)reason};
    sup_outlet_report(r->outlet, &report);
}

/* What processes of a job share is theirs to change while a neighbour's supervisor, which stands outside their box, works in it. So it is entered
 * from the folder that is not theirs to replace, link by link refused. */
int sup_run_open_shared(const sup_run *r, const char *path, int flags, mode_t mode)
{
    size_t n = strlen(r->job_state_dir);
    if (strncmp(path, r->job_state_dir, n) || path[n] != '/')
        return open(path, flags | O_CLOEXEC, mode);
    int at = open(r->job_state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = at < 0 ? -1 : pst_fs_open_beneath(at, path + n + 1, flags | O_CLOEXEC, mode);
    int code = errno;
    if (at >= 0)
        close(at);
    errno = code;
    return fd;
}
