/* results.c - after the learner: its log files are kept with the results, its model is registered. */
#include "lcm/supervisor/run.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/stop.h"
#include "common/base/term.h"
#include "common/platform/models.h"
#include "schemas/avro.h"
#include "schemas/job_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL_INFO_MAX  (4 << 20)
#define MODEL_BYTES_MAX (512ll << 20) /* the engine's own limit */
#define LOG_FILE_MAX    (256ll << 20)

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

static void copy_folder(sup_run *r, int from, int to)
{
    DIR *d = from < 0 ? NULL : fdopendir(from);
    if (!d && from >= 0)
        close(from);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (*e->d_name == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (copy_file(dirfd(d), to, e->d_name) < 0)
            sup_run_say(r, "could not keep the log file %s with the results: %s", e->d_name, strerror(errno));
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
void sup_run_keep_logs(sup_run *r)
{
    char *made = pst_fs_join(r->result_dir, r->spec.process), *own = pst_fs_join("logs", r->spec.process);
    if (mkdir(made, 0700) < 0 && errno != EEXIST)
        sup_run_say(r, "the logs are not kept with the results: cannot make %s: %s", made, strerror(errno));
    int to = open_below(r->result_dir, r->spec.process);
    if (to < 0) {
        sup_run_say(r, "the logs are not kept with the results: %s is no folder that can be written", made);
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
static void read_info(sup_run *r, const char *path, pst_model_event *ret_info)
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
        sup_run_say(r, "model.json is not used: %s", err.text);
    json_decref(j);
    pst_buf_done(&b);
}

/* ---- which file is the model --------------------------------------------------------------------------------------------------- */

static const char *const model_names[] = {"model.onnx", "model.ubj", "model.txt", "model.json"};
enum { MODEL_NAMES = sizeof model_names / sizeof *model_names, MODEL_JSON = 3, MODEL_ONNX = 0 };

static int not_usable(pst_err *err, const char *name, const char *what)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "model", 0, "$RESULT_DIR/%s is %s; a model is a regular file there", name, what);
}

/* Is there a file of that name below $RESULT_DIR? 1, 0, or an error when something else has its name. What a learner left is opened without
 * waiting and without following links: not for the other end of a FIFO, and not out of the folder. */
static int probe(const sup_run *r, const char *name, off_t *ret_size, pst_err *err)
{
    struct stat st;
    int dir = open(r->result_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : pst_fs_open_beneath(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0), code = errno;
    int rc = 1;
    if (fd < 0)
        rc = code == ENOENT || code == ENOTDIR ? 0
             : code == ELOOP || code == EXDEV  ? not_usable(err, name, "a link")
             : code == ENXIO || code == ENODEV
                 ? not_usable(err, name, "a socket or a device")
                 : pst_err_set(err, PST_EIO, PST_CLASS_DATA, "model", code, "$RESULT_DIR/%s cannot be read: %s", name, strerror(code));
    else if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        rc = not_usable(err, name, S_ISFIFO(st.st_mode) ? "a named pipe" : S_ISDIR(st.st_mode) ? "a folder" : "a device");
    else if (st.st_size > MODEL_BYTES_MAX)
        rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "model", 0,
                         "$RESULT_DIR/%s has %lld bytes, more than the %lld that a model may have", name, (long long)st.st_size,
                         (long long)MODEL_BYTES_MAX);
    else if (!st.st_size)
        rc = not_usable(err, name, "empty");
    else
        *ret_size = st.st_size;
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return rc;
}

/* model.json is XGBoost's model when it has a learner; else it describes the model beside it. */
static bool is_xgboost_json(const char *path, off_t size)
{
    pst_buf b = {0};
    json_t *j = NULL;
    if (size > MODEL_INFO_MAX)
        return true;
    bool yes = pst_fs_read(path, MODEL_INFO_MAX, &b, NULL) == 0 &&
               pst_json_parse(b.data ? b.data : "", b.len, "model.json", &j, NULL) == 0 && json_is_object(json_object_get(j, "learner"));
    json_decref(j);
    pst_buf_done(&b);
    return yes;
}

/* The file that penstock.model.file names: below $RESULT_DIR/model, or below $RESULT_DIR. */
static int named_model(const sup_run *r, char **ret_name, pst_err *err)
{
    off_t size;
    for (int i = 0; i < 2; i++) {
        char *name = pst_sprintf("%s%s", i ? "" : "model/", r->manifest.model_file);
        int rc = probe(r, name, &size, err);
        if (rc > 0)
            *ret_name = name;
        else
            free(name);
        if (rc)
            return rc;
    }
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "model", 0,
                       "penstock.model.file asks for %s, and the learner left no such file in $RESULT_DIR/model", r->manifest.model_file);
}

/* What lies in $RESULT_DIR/model, for whoever looks for a model under another name: a few names, or "" where there are none. */
static char *names_there(const sup_run *r)
{
    enum { SHOWN = 5 };
    pst_buf all = {0};
    int fd = open_below(r->result_dir, "model"), n = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *e; d && n <= SHOWN && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        pst_buf_printf(&all, "%s", n ? ", " : "");
        if (++n > SHOWN)
            pst_buf_printf(&all, "and more");
        else
            pst_term_quote(&all, e->d_name, strlen(e->d_name), sizeof e->d_name);
    }
    if (d)
        closedir(d);
    char *text = pst_sprintf("%s", n ? (const char *)all.data : "");
    pst_buf_done(&all);
    return text;
}

/* One of the usual names. What is not asked for by penstock.model is taken only as model.onnx, as ever; the others are named in the log. */
static int usual_model(sup_run *r, bool asked, char **ret_name, pst_err *err)
{
    int found = -1, others = 0, rc = 0;
    char list[120] = "";
    for (int i = 0; i < MODEL_NAMES; i++) {
        off_t size = 0;
        char *name = pst_sprintf("model/%s", model_names[i]), *path = pst_fs_join(r->result_dir, name);
        rc = probe(r, name, &size, err);
        /* Beside another file, or not asked for, a JSON file without a learner is remarks; alone and asked for, it is judged as a model. */
        bool counts = rc > 0 && (i != MODEL_JSON || is_xgboost_json(path, size) || (asked && found < 0));
        free(name);
        free(path);
        if (rc < 0 && (asked || i == MODEL_ONNX))
            return rc;
        if (rc < 0 && err)
            pst_err_clear(err);
        if (!counts)
            continue;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", model_names[i]);
        others += found >= 0;
        found = found < 0 ? i : found;
    }
    if (asked && others)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "model", 0,
                           "the learner left several models in $RESULT_DIR/model: %s; say which by penstock.model.file", list);
    if (found < 0) {
        char *there = names_there(r);
        if (asked)
            rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "model", 0,
                             "penstock.model asks for a model, and the learner left none in $RESULT_DIR/model: no model.onnx, model.ubj, "
                             "model.json, model.txt (penstock.model.file names another); there is %s",
                             *there ? there : "nothing");
        else if (*there)
            sup_run_say(r, "no model is registered: penstock.model names none, and there is no model.onnx in $RESULT_DIR/model but %s",
                        there);
        free(there);
        return asked ? rc : 0;
    }
    if (!asked && found != MODEL_ONNX && found >= 0)
        sup_run_say(r, "%s in $RESULT_DIR/model is not registered: penstock.model names no model", list);
    if (found >= 0 && (asked || found == MODEL_ONNX))
        *ret_name = pst_sprintf("model/%s", model_names[found]);
    return 0;
}

/* The one place where a request to end the job and its model meet: who comes first decides. A stop that is there ends the run, and nothing is
 * registered; one that comes later is late, for the version may stand on the topic from here on. That is on disk before anything is published,
 * so that a supervisor which is killed in between is followed by one that goes on. */
static int publishes(void *arg, pst_err *err)
{
    sup_run *r = arg;
    bool begun = pst_rundir_registering(r->dir);
    if (!begun && (pst_stop_requested() || pst_rundir_stop_reason_read(r->dir) != PST_STOP_REASON_NONE))
        return pst_err_set(err, PST_ESTOPPED, PST_CLASS_NONE, "model", 0, "asked to end before it was published");
    pst_stop_defer(true);
    return begun ? 0 : pst_rundir_registering_mark(r->dir, err);
}

/* What the model's name, alias and origin are the manifest and the run say; what it can do, and how it was measured, the learner's model.json. */
static int register_model(sup_run *r, const char *file, pst_err *err)
{
    pst_model_event info = {0}, registered = {0};
    char *path = pst_fs_join(r->result_dir, file), *info_path = pst_fs_join(r->result_dir, "model/model.json");
    char *actor = pst_sprintf("user:%s", r->spec.user ? r->spec.user : "anonymous");
    char *reason = pst_sprintf("trained by %s, generation %d", r->spec.training_id, r->spec.generation);
    off_t size = 0;
    if (strcmp(file, "model/model.json") != 0 && probe(r, "model/model.json", &size, NULL) > 0 && !is_xgboost_json(info_path, size))
        read_info(r, info_path, &info);
    int rc = pst_models_register(
        r->client, r->objects,
        &(pst_model_draft){.name = r->manifest.model_name && *r->manifest.model_name ? r->manifest.model_name : r->spec.name,
                           .path = path,
                           .format = NULL,
                           .training_id = r->spec.training_id,
                           .generation = r->spec.generation,
                           .alias = r->manifest.model_alias,
                           .actor = actor,
                           .reason = reason,
                           .extra = &info,
                           .publishes = publishes,
                           .publishes_arg = r},
        &registered, err);
    pst_stop_defer(false);
    if (rc < 0) {
        pst_err_prefix(err, "the model of $RESULT_DIR/%s could not be registered", file);
        sup_run_say(r, "%s", err->text);
    } else {
        pst_produced_model ref = {.name = registered.name, .version = registered.version, .digest = registered.digest};
        pst_process_report report = {.type = PST_REPORT_TYPE_RESULT_STORED, .model = &ref};
        sup_run_say(r, "model %s version %d (%s, %s) is registered (sha256 %.12s…)", ref.name, ref.version, file, registered.format,
                    ref.digest);
        sup_outlet_report(r->outlet, &report);
    }
    pst_event_clear(&pst_model_event_type, &info);
    pst_event_clear(&pst_model_event_type, &registered);
    free(path);
    free(info_path);
    free(actor);
    free(reason);
    return rc;
}

/* Does the Trainer count on this generation? What was given up while its node was silent (terminate --force, nodes lost) may have gone on
 * elsewhere, or have ended: its model must not get a version, and an alias even less. RETRY: not to be known now. */
static int still_wanted(sup_run *r, pst_err *err)
{
    pst_job_state s = {0};
    int rc = pst_client_job(r->client, r->spec.training_id, &s, err);
    if (rc == PST_ENOTFOUND)
        return pst_err_set(err, PST_EFENCED, PST_CLASS_DATA, "model", 0, "its model is not registered: the job was deleted meanwhile");
    if (rc < 0)
        return rc;
    if (!pst_job_state_is_live(s.state) || s.generation != r->spec.generation)
        rc =
            pst_err_set(err, PST_EFENCED, PST_CLASS_DATA, "model", 0,
                        "its model is not registered: generation %d was given up while its node was silent; the job is %s in generation %d",
                        r->spec.generation, pst_job_public_state_text(s.state), s.generation);
    pst_event_clear(&pst_job_state_type, &s);
    return rc;
}

int sup_run_store_model(sup_run *r, pst_err *err)
{
    char *file = NULL;
    bool asked = r->manifest.model_name && *r->manifest.model_name;
    if (r->spec.learner_id != 1)
        return 0;
    int rc = r->manifest.model_file ? named_model(r, &file, err) : usual_model(r, asked, &file, err);
    if (!rc && file && r->client)
        rc = still_wanted(r, err);
    if (rc < 0)
        sup_run_say(r, "%s", err->text);
    else if (file && r->client)
        rc = register_model(r, file, err);
    free(file);
    return rc < 0 ? rc : 0;
}
