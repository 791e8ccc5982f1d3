/* results.c - after the learner: its log files are kept with the results, its model is registered. */
#include "producers/supervisor/run.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/models/models.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL_INFO_MAX (4 << 20)
#define LOG_FILE_MAX   (256ll << 20)

/* The folders are the learner's: it may have put links there, or a link in a folder's place, to have us read or write what it cannot. So
 * everything is opened from a folder that it cannot replace, without following any link. */
static int copy_file(int from, int to, const char *name)
{
    struct stat st;
    int in = openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), out = -1, rc = -1;
    if (in >= 0 && fstat(in, &st) == 0 && S_ISREG(st.st_mode)) {
        unlinkat(to, name, 0);
        out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    if (out >= 0) {
        off_t left = st.st_size < LOG_FILE_MAX ? st.st_size : LOG_FILE_MAX;
        ssize_t n = 1;
        while (left > 0 && (n = sendfile(out, in, NULL, (size_t)left)) > 0)
            left -= n;
        rc = left ? -1 : 0;
    }
    int why = errno;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    errno = why;
    return rc;
}

static void copy_folder(pst_run *r, int from, int to)
{
    DIR *d = from < 0 ? NULL : fdopendir(from);
    if (!d && from >= 0)
        close(from);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (*e->d_name == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (copy_file(dirfd(d), to, e->d_name) < 0)
            pst_run_say(r, "could not keep the log file %s with the results: %s", e->d_name, strerror(errno));
    }
    if (d)
        closedir(d);
}

/* A folder of ours, and below it without links. */
static int open_below(const char *dir, const char *name)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    if (at >= 0) {
        fd = pst_fs_open_beneath(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        close(at);
    }
    return fd;
}

/* FfDL's layout: <result>/learner-N/ holds training-log.txt, evaluation-metrics.txt and other files of LOG_DIR. */
void pst_run_keep_logs(pst_run *r)
{
    char *made = pst_fs_join(r->result_dir, r->spec.process), *own = pst_fs_join("logs", r->spec.process);
    if (mkdir(made, 0700) < 0 && errno != EEXIST)
        pst_run_say(r, "the logs are not kept with the results: cannot make %s: %s", made, strerror(errno));
    int to = open_below(r->result_dir, r->spec.process);
    if (to < 0) {
        pst_run_say(r, "the logs are not kept with the results: %s is no folder that can be written", made);
    } else {
        if (r->spec.learner_id == 1)
            copy_folder(r, open_below(r->job_state_dir, "logs"), to);
        copy_folder(r, open_below(r->job_state_dir, own), to);
        close(to);
    }
    free(own);
    free(made);
}

/* model.json beside the model: fields of ModelEvent that only the learner knows. Unknown fields are left alone: it is the user's file. */
static void read_info(pst_run *r, const char *path, pst_model_event *ret_info)
{
    static const char *const taken[] = {"features", "trained_on", "metrics"};
    pst_buf b = {0};
    json_t *j = NULL;
    pst_err err = {0};
    int rc = pst_fs_read(path, MODEL_INFO_MAX, &b, &err);
    if (rc == PST_ENOTFOUND)
        return;
    if (!rc)
        rc = pst_json_parse(b.data, b.len, "model.json", &j, &err);
    if (!rc) {
        json_t *known = json_pack("{s:s, s:s}", "name", "x", "type", "UNKNOWN");
        for (size_t i = 0; i < 3; i++)
            if (json_object_get(j, taken[i]))
                json_object_set(known, taken[i], json_object_get(j, taken[i]));
        rc = pst_event_from_json(&pst_model_event_type, known, ret_info, &err);
        json_decref(known);
    }
    if (rc < 0)
        pst_run_say(r, "model.json is not used: %s", err.text);
    json_decref(j);
    pst_buf_done(&b);
}

int pst_run_store_model(pst_run *r, pst_err *err)
{
    char *path = pst_fs_join(r->result_dir, "model/model.onnx"), *info_path = pst_fs_join(r->result_dir, "model/model.json");
    int rc = 0;
    if (r->spec.learner_id == 1 && r->client && pst_fs_exists(path)) {
        pst_model_event info = {0}, registered = {0};
        read_info(r, info_path, &info);
        char *actor = pst_sprintf("user:%s", r->spec.user ? r->spec.user : "anonymous");
        char *reason = pst_sprintf("trained by %s, generation %d", r->spec.training_id, r->spec.generation);
        const char *name = r->manifest.model_name && *r->manifest.model_name ? r->manifest.model_name : r->spec.name;
        rc = pst_models_register(r->client, r->objects,
                                 &(pst_model_draft){.name = name,
                                                    .path = path,
                                                    .format = "onnx",
                                                    .training_id = r->spec.training_id,
                                                    .generation = r->spec.generation,
                                                    .alias = r->manifest.model_alias,
                                                    .actor = actor,
                                                    .reason = reason,
                                                    .extra = &info},
                                 &registered, err);
        if (rc < 0) {
            pst_err_prefix(err, "the model of $RESULT_DIR/model/model.onnx could not be registered");
            pst_run_say(r, "%s", err->text);
        } else {
            pst_produced_model ref = {.name = registered.name, .version = registered.version, .digest = registered.digest};
            pst_process_report report = {.type = PST_REPORT_TYPE_RESULT_STORED, .model = &ref};
            pst_run_say(r, "model %s version %d is registered (sha256 %.12s…)", ref.name, ref.version, ref.digest);
            pst_outlet_report(r->outlet, &report);
        }
        pst_event_clear(&pst_model_event_type, &info);
        pst_event_clear(&pst_model_event_type, &registered);
        free(actor);
        free(reason);
    }
    free(path);
    free(info_path);
    return rc;
}
