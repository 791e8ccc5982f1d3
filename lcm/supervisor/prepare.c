/* prepare.c - before the command runs: the user's code is unpacked, the data stores are looked up. An error has FfDL's code with it, since it is the
 * user who has to mend it. */
#include "lcm/supervisor/checkpoints.h"
#include "lcm/supervisor/stores.h"

#include "schemas/frameworks.h"
#include "common/base/fs.h"
#include "common/base/stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CODE_BYTES_MAX (1ull << 30)

static int unpack_code(sup_run *r, const char **ret_code, pst_err *err)
{
    pst_buf archive = {0};
    if (!r->spec.code_uri)
        return 0;
    *ret_code = "S301";
    int rc = pst_objects_get(r->objects, r->spec.code_uri, r->spec.code_sha256 && *r->spec.code_sha256 ? r->spec.code_sha256 : NULL,
                             CODE_BYTES_MAX, &archive, err);
    if (rc < 0) {
        pst_err_prefix(err, "cannot fetch the model code");
        return rc;
    }
    /* Unpacked beside and renamed, so that an interrupted attempt leaves no half folder under the final name. */
    char *fresh = pst_fs_join(r->dir, "code.new");
    *ret_code = "C102";
    rc = pst_fs_remove_tree(fresh, err);
    if (!rc)
        rc = pst_archive_unpack(archive.data, archive.len, fresh, err);
    if (!rc)
        rc = pst_fs_remove_tree(r->code_dir, err);
    if (!rc && rename(fresh, r->code_dir) < 0)
        rc = pst_err_sys(err, errno, "cannot put %s in place", r->code_dir);
    if (rc < 0) {
        *ret_code = err->cls == PST_CLASS_DATA ? "C102" : "S301";
        pst_err_prefix(err, "cannot unpack the model code");
        pst_fs_remove_tree(fresh, NULL);
    }
    free(fresh);
    pst_buf_done(&archive);
    return rc;
}

static int check_folder(const char *path, const char *id, pst_err *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, R_OK | X_OK) == 0)
        return 0;
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "data", errno,
                       "data store %s: the folder %s is not there or not readable on this host; create it or correct connection.path",
                       id ? id : "", path);
}

static int link_into(const char *dir, const char *name, const char *target, pst_err *err)
{
    char *at = pst_fs_join(dir, name);
    int rc = 0;
    if (unlink(at) < 0 && errno != ENOENT)
        rc = pst_err_sys(err, errno, "cannot replace %s", at);
    else if (symlink(target, at) < 0)
        rc = pst_err_sys(err, errno, "cannot link %s to %s", at, target);
    free(at);
    return rc;
}

/* A mount is DATA_DIR itself when it is the only store, as in FfDL; else a link named like the store. */
static int mount_store(sup_run *r, const pst_data_store *s, pst_err *err)
{
    const char *base = json_string_value(json_object_get(s->connection, "path"));
    if (!base)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "data", 0, "data store %s has no connection.path", s->id ? s->id : "");
    char *path = s->input && *s->input ? pst_fs_join(base, s->input) : pst_strdup(base);
    int rc = check_folder(path, s->id, err);
    if (!rc && r->manifest.n_stores == 1) {
        free(r->data_dir);
        r->data_dir = pst_strdup(path);
    } else if (!rc) {
        rc = link_into(r->data_dir, pst_rundir_name_ok(s->id) ? s->id : "mount", path, err);
    }
    free(path);
    return rc;
}

static int link_file(sup_run *r, const char *path, pst_err *err)
{
    const char *base = strrchr(path, '/');
    if (*path != '/' || !base[1])
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "data", 0,
                           "data store of type files: '%s' is no absolute path of a file or folder", path);
    if (access(path, R_OK) < 0)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "data", errno, "data store of type files: cannot read %s on this host: %s",
                           path, strerror(errno));
    return link_into(r->data_dir, base + 1, path, err);
}

static int files_store(sup_run *r, const pst_data_store *s, pst_err *err)
{
    const json_t *paths = json_object_get(s->connection, "paths"), *one = json_object_get(s->connection, "path");
    int rc = 0;
    size_t n = 0, i;
    json_t *p;
    json_array_foreach(paths, i, p)
    {
        if (!rc && json_is_string(p))
            rc = link_file(r, json_string_value(p), err);
        n++;
    }
    if (!rc && json_is_string(one)) {
        rc = link_file(r, json_string_value(one), err);
        n++;
    }
    if (!rc && !n && s->input) {
        rc = link_file(r, s->input, err);
        n++;
    }
    if (!rc && !n)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "data", 0, "data store %s of type files names no file: give connection.paths",
                         s->id ? s->id : "");
    return rc;
}

static int fetch_data(sup_run *r, const char **ret_code, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < r->manifest.n_stores && !rc; i++) {
        const pst_data_store *s = &r->manifest.stores[i];
        *ret_code = "C103";
        if (pst_stop_requested())
            return PST_ESTOPPED;
        if (!strcmp(s->type, "mount") || !strcmp(s->type, "host_mount") || !strcmp(s->type, "mount_volume")) {
            rc = mount_store(r, s, err);
        } else if (!strcmp(s->type, "files")) {
            rc = files_store(r, s, err);
        } else if (!strcmp(s->type, "topic")) {
            if (r->manifest.runs->reads_topics)
                continue;
            rc = sup_run_topic_data(r, s, r->data_dir, err);
            if (rc < 0 && err->cls != PST_CLASS_DATA)
                *ret_code = "S302";
        } else if (s->s3) {
            rc = sup_run_fetch_store(r, s, ret_code, err);
        } else {
            rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "data", 0,
                             "data store %s is of type %s, which this version does not read; use s3_datastore, mount, files or topic",
                             s->id ? s->id : "", s->type);
        }
    }
    return rc;
}

/* Jobs of object stores get the logs of FfDL's helpers; others never had such. */
static bool keeps_steps(const sup_run *r)
{
    for (size_t i = 0; i < r->manifest.n_stores; i++)
        if (r->manifest.stores[i].s3)
            return true;
    return false;
}

static void say_broken(void *arg, const char *name, const char *why)
{
    sup_run_say(arg, "checkpoint %s cannot be gone on from, an older one is looked for: %s. It is called %s.broken now", name, why, name);
}

int sup_run_prepare(sup_run *r, const char **ret_code, pst_err *err)
{
    int rc = unpack_code(r, ret_code, err);
    if (!rc && r->spec.code_uri && keeps_steps(r))
        sup_run_step_log(r, "load-model", "the submitted code is unpacked in $MODEL_DIR");
    else if (rc < 0 && keeps_steps(r))
        sup_run_step_log(r, "load-model", "%s", err->text);
    if (!rc)
        rc = sup_run_fetch_checkpoints(r, ret_code, err);
    if (!rc && r->manifest.checkpoint.asked) {
        *ret_code = "S302";
        rc = sup_checkpoint_newest(r->checkpoint_dir, r->spec.process, say_broken, r, &r->checkpoint, err);
    }
    if (r->checkpoint)
        sup_run_say(r, "checkpoint %s is what was committed; PENSTOCK_CHECKPOINT names it", strrchr(r->checkpoint, '/') + 1);
    if (!rc)
        rc = fetch_data(r, ret_code, err);
    return rc;
}
