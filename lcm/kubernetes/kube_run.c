/* kube_run.c - the same files as the local launcher's, but that a supervisor in a pod has a pid of another computer, or of none: supervisor.json only tells that
 * it has begun. Which devices a process has matters to the cluster alone, and how many to the LCM's account: their places are kept beside spec.json. */
#include "lcm/kubernetes/kube_run.h"

#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_past_work(const char *dir, pst_rundir_exit *ret_exit)
{
    return pst_rundir_exit_read(dir, ret_exit, NULL) == 0 || pst_rundir_registering(dir);
}

bool kube_run_ended(const char *state_dir, const pst_process_id *id)
{
    pst_rundir_exit x;
    char *dir = pst_rundir_dir(state_dir, id);
    bool over = is_past_work(dir, &x);
    free(dir);
    return over;
}

void kube_run_observe(const char *state_dir, const pst_process_id *id, bool lives, bool there, pst_launcher_news *ret)
{
    char *dir = pst_rundir_dir(state_dir, id);
    pst_rundir_owner o;
    bool over = is_past_work(dir, &ret->exit);
    ret->stop_reason = pst_rundir_stop_reason_read(dir);
    ret->published = over && pst_rundir_published(dir) && !pst_rundir_has_spool(dir);
    if (over)
        ret->seen = lives ? PST_LCM_SEEN_FLUSHING : PST_LCM_SEEN_ENDED;
    else if (lives)
        ret->seen = PST_LCM_SEEN_ALIVE;
    else
        ret->seen = pst_rundir_owner_read(dir, &o, NULL) == PST_ENOTFOUND && !there ? PST_LCM_SEEN_ABSENT : PST_LCM_SEEN_VANISHED;
    free(dir);
}

void kube_run_devices(const char *state_dir, const pst_process_id *id, int n_devices, pst_lcm_devices *ret)
{
    char *dir = pst_rundir_dir(state_dir, id), *file = pst_fs_join(dir, "devices.json");
    pst_buf b = {0};
    json_t *j = NULL, *v;
    size_t n;
    if (pst_fs_read(file, 65536, &b, NULL) == 0 && pst_json_parse(b.data, b.len, file, &j, NULL) == 0)
        json_array_foreach(j, n, v)
        {
            json_int_t at = json_is_integer(v) ? json_integer_value(v) : -1;
            if (at >= 0 && at < n_devices && ret->n < PST_LCM_DEVICES_MAX)
                ret->at[ret->n++] = (int)at;
        }
    json_decref(j);
    pst_buf_done(&b);
    free(file);
    free(dir);
}

static int write_devices(const char *dir, const pst_lcm_devices *devices, pst_err *err)
{
    char *file = pst_fs_join(dir, "devices.json");
    json_t *j = json_array();
    for (int i = 0; i < devices->n; i++)
        json_array_append_new(j, json_integer(devices->at[i]));
    char *text = pst_json_text(j);
    int rc = pst_fs_write_atomic(file, text, strlen(text), 0600, err);
    json_decref(j);
    free(text);
    free(file);
    return rc;
}

/* The intent with this process's part. In its container the devices are numbered from 0. */
static int write_spec(const char *gen_dir, const char *dir, const pst_process_id *id, const pst_lcm_devices *devices, pst_err *err)
{
    pst_rundir_spec spec = {0};
    pst_buf ids = {0};
    int at = 0, rc = pst_rundir_intent_read(gen_dir, &spec, err);
    if (rc < 0)
        return rc;
    for (int n = 0; n < devices->n; n++)
        pst_buf_printf(&ids, "%s%d", n ? "," : "", n);
    free(spec.process);
    free(spec.gpu_ids);
    spec.process = pst_strdup(id->process);
    spec.gpu_ids = pst_buf_steal(&ids);
    spec.gpus = devices->n;
    const pst_process_set *set = pst_process_sets_find(spec.sets, spec.n_sets, id->process, &at);
    spec.learner_id = set && set->rank >= 0 ? set->rank + at + 1 : 0;
    rc = write_devices(dir, devices, err);
    if (!rc)
        rc = pst_rundir_spec_write(dir, &spec, err);
    pst_rundir_spec_done(&spec);
    return rc;
}

int kube_run_write(const char *state_dir, const pst_process_id *id, const pst_lcm_devices *devices, pst_err *err)
{
    char *gen_dir = pst_rundir_gen_dir(state_dir, id->training_id, id->generation), *dir = pst_rundir_dir(state_dir, id);
    char *spec_file = pst_fs_join(dir, "spec.json"), *shared = pst_fs_join(gen_dir, "job");
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_fs_mkdirs(shared, 0700, err); /* a mount of a folder that is not there would be made by root */
    if (!rc && !pst_fs_exists(spec_file))
        rc = write_spec(gen_dir, dir, id, devices, err);
    free(shared);
    free(spec_file);
    free(dir);
    free(gen_dir);
    return rc;
}

int kube_run_folder_id(const char *state_dir, const char *site, char ret_id[33], pst_err *err)
{
    char *dir = pst_sprintf("%s/sites/%s", state_dir, site), *file = pst_fs_join(dir, "kubernetes-id");
    pst_buf b = {0};
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc && !pst_fs_exists(file)) {
        unsigned char bytes[16];
        pst_random(bytes, sizeof bytes);
        for (size_t n = 0; n < sizeof bytes; n++)
            snprintf(ret_id + 2 * n, 3, "%02x", bytes[n]);
        rc = pst_fs_write_atomic(file, ret_id, 32, 0600, err);
    }
    if (!rc)
        rc = pst_fs_read(file, 64, &b, err);
    if (!rc && (b.len != 32 || strspn(b.data, "0123456789abcdef") != 32))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kubernetes", 0, "%s is damaged: it is not 32 hex digits; remove it", file);
    if (!rc)
        snprintf(ret_id, 33, "%s", b.data);
    pst_buf_done(&b);
    free(file);
    free(dir);
    return rc;
}

const char *kube_run_folder(const char *objects)
{
    if (!objects || strncmp(objects, "file:", 5) != 0)
        return NULL;
    return !strncmp(objects + 5, "///", 3) ? objects + 7 : objects + 5;
}
