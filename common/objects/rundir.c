/* rundir.c - every file is small JSON written beside and renamed, so that whoever reads finds all of it or none; a reader takes what it knows and
 * leaves the rest, so that programs of two versions may share a folder. */
#include "common/objects/rundir.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/lock.h"
#include "common/base/log.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX (2 << 20)

bool pst_rundir_name_ok(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    if (!n || n > 100 || *name == '.')
        return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            return false;
    return true;
}

char *pst_rundir_job_dir(const char *state_dir, const char *training_id)
{
    PST_ASSERT(pst_rundir_name_ok(training_id));
    return pst_sprintf("%s/jobs/%s", state_dir, training_id);
}

char *pst_rundir_gen_dir(const char *state_dir, const char *training_id, int generation)
{
    PST_ASSERT(pst_rundir_name_ok(training_id));
    return pst_sprintf("%s/jobs/%s/gen-%d", state_dir, training_id, generation);
}

pst_process_id pst_process_id_of(const char *training_id, int generation, const char *process)
{
    pst_process_id id = {.generation = generation};
    snprintf(id.training_id, sizeof id.training_id, "%s", training_id);
    snprintf(id.process, sizeof id.process, "%s", process ? process : "");
    return id;
}

bool pst_process_id_same(const pst_process_id *a, const pst_process_id *b)
{
    return a->generation == b->generation && !strcmp(a->process, b->process) && !strcmp(a->training_id, b->training_id);
}

char *pst_rundir_dir(const char *state_dir, const pst_process_id *id)
{
    PST_ASSERT(pst_rundir_name_ok(id->training_id) && pst_rundir_name_ok(id->process));
    return pst_sprintf("%s/jobs/%s/gen-%d/%s", state_dir, id->training_id, id->generation, id->process);
}

char *pst_rundir_mark(const char *state_dir, const pst_process_id *id)
{
    char *dir = pst_rundir_dir(state_dir, id), *mark = pst_sprintf("PENSTOCK_RUN_DIR=%s", dir);
    free(dir);
    return mark;
}

/* ---- the files -------------------------------------------------------------------------------------------------------------- */

/* A text that was cut in the middle of a character loses that character: JSON must be UTF-8. */
static void put_cut(json_t *j, const char *key, const char *value)
{
    json_t *text = NULL;
    for (size_t n = strlen(value); n && !(text = json_stringn(value, n));)
        n--;
    if (text)
        json_object_set_new(j, key, text);
}

/* Takes j. */
static int write_json(const char *run_dir, const char *name, json_t *j, pst_err *err)
{
    char *path = pst_fs_join(run_dir, name), *text = pst_json_text(j);
    int rc = pst_fs_write_atomic(path, text, strlen(text), 0600, err);
    json_decref(j);
    free(text);
    free(path);
    return rc;
}

static int read_json(const char *run_dir, const char *name, json_t **ret_json, pst_err *err)
{
    char *path = pst_fs_join(run_dir, name);
    pst_buf b = {0};
    int rc = pst_fs_read(path, FILE_MAX, &b, err);
    if (!rc)
        rc = pst_json_parse(b.data, b.len, path, ret_json, err);
    if (!rc && !json_is_object(*ret_json)) {
        json_decref(*ret_json);
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "rundir", 0, "%s holds no JSON object", path);
    }
    pst_buf_done(&b);
    free(path);
    return rc;
}

static void put_str(json_t *j, const char *key, const char *value)
{
    if (value)
        json_object_set_new(j, key, json_string(value));
}

static char *get_str(const json_t *j, const char *key)
{
    return pst_strdup(pst_json_str(j, key, NULL));
}

static int write_spec(const char *dir, const char *file, const pst_rundir_spec *s, pst_err *err)
{
    json_t *j =
        json_pack("{s:i, s:i, s:i, s:f, s:i, s:I, s:i}", "generation", s->generation, "learner_id", s->learner_id, "learners", s->learners,
                  "cpus", s->cpus, "gpus", s->gpus, "memory_bytes", (json_int_t)s->memory_bytes, "grace_ms", s->grace_ms);
    if (s->n_sets)
        json_object_set_new(j, "processes", pst_process_sets_json(s->sets, s->n_sets));
    put_str(j, "training_id", s->training_id);
    put_str(j, "process", s->process);
    put_str(j, "site", s->site);
    put_str(j, "node", s->node ? s->node : "");
    put_str(j, "state_dir", s->state_dir);
    put_str(j, "name", s->name);
    put_str(j, "user", s->user);
    put_str(j, "manifest", s->manifest);
    put_str(j, "gpu_ids", s->gpu_ids ? s->gpu_ids : "");
    put_str(j, "traceparent", s->traceparent);
    put_str(j, "stores", s->stores);
    put_str(j, "address", s->address);
    put_str(j, "isolation", s->floor ? pst_isolation_name(s->floor) : NULL);
    if (s->code_uri) {
        json_t *code = json_object();
        put_str(code, "uri", s->code_uri);
        put_str(code, "sha256", s->code_sha256);
        put_str(code, "media_type", s->code_media_type);
        json_object_set_new(j, "code", code);
    }
    return write_json(dir, file, j, err);
}

int pst_rundir_spec_write(const char *run_dir, const pst_rundir_spec *s, pst_err *err)
{
    return write_spec(run_dir, "spec.json", s, err);
}

int pst_rundir_intent_write(const char *gen_dir, const pst_rundir_spec *s, pst_err *err)
{
    return write_spec(gen_dir, "intent.json", s, err);
}

/* The names become paths and labels, so they are checked here, once for all readers. An intent is of the whole job: it names no process. */
static int read_spec(const char *dir, const char *file, bool intent, pst_rundir_spec *ret_spec, pst_err *err)
{
    json_t *j;
    int rc = read_json(dir, file, &j, err);
    if (rc < 0)
        return rc;
    const json_t *code = json_object_get(j, "code");
    pst_rundir_spec s = {.training_id = get_str(j, "training_id"),
                         .generation = (int)pst_json_int(j, "generation", 0),
                         .process = get_str(j, "process"),
                         .learner_id = (int)pst_json_int(j, "learner_id", 0),
                         .site = get_str(j, "site"),
                         .node = pst_strdup(pst_json_str(j, "node", "")),
                         .state_dir = get_str(j, "state_dir"),
                         .name = get_str(j, "name"),
                         .user = get_str(j, "user"),
                         .manifest = get_str(j, "manifest"),
                         .code_uri = get_str(code, "uri"),
                         .code_sha256 = get_str(code, "sha256"),
                         .code_media_type = get_str(code, "media_type"),
                         .learners = (int)pst_json_int(j, "learners", 1),
                         .cpus = pst_json_num(j, "cpus", 0),
                         .gpus = (int)pst_json_int(j, "gpus", 0),
                         .gpu_ids = get_str(j, "gpu_ids"),
                         .traceparent = get_str(j, "traceparent"),
                         .stores = get_str(j, "stores"),
                         .address = get_str(j, "address"),
                         .memory_bytes = pst_json_int(j, "memory_bytes", 0),
                         .grace_ms = (int)pst_json_int(j, "grace_ms", 10000)};
    const char *floor = pst_json_str(j, "isolation", "");
    bool known = !*floor || pst_isolation_parse(floor, &s.floor) == 0; /* not to be read as none */
    known = pst_process_sets_read(j, s.sets, &s.n_sets) == 0 && known;
    json_decref(j);
    if (!known || !pst_rundir_name_ok(s.training_id) || (!intent && !pst_rundir_name_ok(s.process)) || s.generation < 1 || !s.manifest ||
        !s.state_dir || s.grace_ms < 0) {
        pst_rundir_spec_done(&s);
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "rundir", 0,
                           "%s/%s lacks one of training_id, process, generation, manifest, state_dir, or it is malformed", dir, file);
    }
    *ret_spec = s;
    return 0;
}

int pst_rundir_spec_read(const char *run_dir, pst_rundir_spec *ret_spec, pst_err *err)
{
    return read_spec(run_dir, "spec.json", false, ret_spec, err);
}

int pst_rundir_intent_read(const char *gen_dir, pst_rundir_spec *ret_spec, pst_err *err)
{
    return read_spec(gen_dir, "intent.json", true, ret_spec, err);
}

void pst_rundir_spec_done(pst_rundir_spec *s)
{
    char *all[] = {s->node,     s->training_id, s->process,         s->site,    s->state_dir,   s->name,   s->user,   s->manifest,
                   s->code_uri, s->code_sha256, s->code_media_type, s->gpu_ids, s->traceparent, s->stores, s->address};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    memset(s, 0, sizeof *s);
}

/* ---- the nonce -------------------------------------------------------------------------------------------------------------- */

static char *nonce_path(const char *state_dir, const char *training_id, int generation)
{
    PST_ASSERT(pst_rundir_name_ok(training_id));
    return pst_sprintf("%s/nonces/%s.%d", state_dir, training_id, generation);
}

int pst_rundir_nonce_write(const char *state_dir, const char *training_id, int generation, const char *nonce, pst_err *err)
{
    char *dir = pst_fs_join(state_dir, "nonces"), *path = nonce_path(state_dir, training_id, generation);
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_fs_write_atomic(path, nonce, strlen(nonce), 0600, err);
    free(path);
    free(dir);
    return rc;
}

void pst_rundir_nonce_read(const char *state_dir, const char *training_id, int generation, char ret_nonce[PST_RUNDIR_NONCE_MAX])
{
    char *path = nonce_path(state_dir, training_id, generation);
    pst_buf b = {0};
    ret_nonce[0] = 0;
    if (pst_fs_read(path, PST_RUNDIR_NONCE_MAX - 1, &b, NULL) == 0)
        snprintf(ret_nonce, PST_RUNDIR_NONCE_MAX, "%.*s", (int)strcspn(b.data ? b.data : "", "\n"), b.data ? b.data : "");
    pst_buf_done(&b);
    free(path);
}

void pst_rundir_nonce_remove(const char *state_dir, const char *training_id, int generation)
{
    char *path = nonce_path(state_dir, training_id, generation);
    unlink(path);
    free(path);
}

static void this_boot(char ret_id[40])
{
    pst_buf b = {0};
    ret_id[0] = 0;
    if (pst_fs_read("/proc/sys/kernel/random/boot_id", 128, &b, NULL) == 0)
        snprintf(ret_id, 40, "%.*s", (int)strcspn(b.data, "\n"), b.data);
    pst_buf_done(&b);
}

int pst_rundir_owner_write(const char *run_dir, const pst_rundir_owner *o, pst_err *err)
{
    char boot[40];
    this_boot(boot);
    return write_json(run_dir, "supervisor.json",
                      json_pack("{s:i, s:I, s:i, s:I, s:i, s:I, s:s}", "pid", (int)o->pid, "start_time", (json_int_t)o->start_time,
                                "learner_pid", (int)o->learner_pid, "learner_start_time", (json_int_t)o->learner_start_time, "keeper_pid",
                                (int)o->keeper_pid, "keeper_start_time", (json_int_t)o->keeper_start_time, "boot_id", boot),
                      err);
}

int pst_rundir_owner_read(const char *run_dir, pst_rundir_owner *ret_owner, pst_err *err)
{
    json_t *j;
    int rc = read_json(run_dir, "supervisor.json", &j, err);
    if (rc < 0)
        return rc;
    pst_rundir_owner o = {.pid = (pid_t)pst_json_int(j, "pid", 0),
                          .start_time = pst_json_int(j, "start_time", 0),
                          .learner_pid = (pid_t)pst_json_int(j, "learner_pid", 0),
                          .learner_start_time = pst_json_int(j, "learner_start_time", 0),
                          .keeper_pid = (pid_t)pst_json_int(j, "keeper_pid", 0),
                          .keeper_start_time = pst_json_int(j, "keeper_start_time", 0)};
    snprintf(o.boot_id, sizeof o.boot_id, "%s", pst_json_str(j, "boot_id", ""));
    json_decref(j);
    if (o.pid <= 1 || o.learner_pid < 0 || o.learner_pid == 1 || o.keeper_pid < 0 || o.keeper_pid == 1)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "rundir", 0, "%s/supervisor.json names no process", run_dir);
    *ret_owner = o;
    return 0;
}

bool pst_rundir_owner_same_boot(const pst_rundir_owner *o)
{
    char boot[40];
    this_boot(boot);
    return !strcmp(boot, o->boot_id);
}

/* One of its kind on a computer: the run dir is. */
static void group_name(const char *run_dir, char ret[40])
{
    char hex[65];
    pst_sha256_hex(run_dir, strlen(run_dir), hex);
    snprintf(ret, 40, PST_RUN_CGROUP_PREFIX "%.24s", hex);
}

void pst_rundir_cgroup_make(const char *run_dir, pst_cgroup *ret_group)
{
    char name[40];
    group_name(run_dir, name);
    pst_cgroup_make(name, ret_group);
    char *text = pst_cgroup_text(ret_group), *path = pst_fs_join(run_dir, "cgroup");
    pst_err err = {0};
    /* Not waited for: control groups do not outlive the computer's boot. The learner's command waits for this. */
    if (*text && pst_fs_replace(path, text, strlen(text), 0600, &err) < 0) {
        pst_log_err("rundir", &err); /* a group that nobody could find again is none */
        pst_cgroup_close(ret_group);
        pst_cgroup_remove(ret_group);
        *ret_group = (pst_cgroup){.n = 0};
    }
    free(path);
    free(text);
}

bool pst_rundir_cgroup_read(const char *run_dir, pst_cgroup *ret_group)
{
    char name[40], *path = pst_fs_join(run_dir, "cgroup");
    pst_buf b = {0};
    bool there = pst_fs_read(path, 16384, &b, NULL) == 0 && b.len;
    free(path);
    if (there) {
        pst_buf_addc(&b, 0);
        group_name(run_dir, name);
        pst_cgroup_from_text(b.data, name, ret_group);
        there = ret_group->n > 0;
    }
    pst_buf_done(&b);
    return there;
}

static const char *const stop_reason_names[] = {"none", "halt", "kill", "platform-down"};

const char *pst_rundir_stop_reason_name(pst_rundir_stop_reason w)
{
    PST_ASSERT((size_t)w < sizeof stop_reason_names / sizeof *stop_reason_names);
    return stop_reason_names[w];
}

/* "wish" is what wrote it before: a supervisor that an earlier version started lives through an upgrade (`down --keep-jobs`). */
static pst_rundir_stop_reason stop_reason_of(const json_t *j)
{
    const char *text = pst_json_str(j, "stop_reason", pst_json_str(j, "wish", "none"));
    for (int i = 0; i < 4; i++)
        if (!strcmp(text, stop_reason_names[i]))
            return (pst_rundir_stop_reason)i;
    return PST_STOP_REASON_NONE;
}

int pst_rundir_stop_reason_write(const char *run_dir, pst_rundir_stop_reason w, pst_err *err)
{
    return write_json(run_dir, "stop.json", json_pack("{s:s}", "stop_reason", pst_rundir_stop_reason_name(w)), err);
}

pst_rundir_stop_reason pst_rundir_stop_reason_read(const char *run_dir)
{
    json_t *j;
    if (read_json(run_dir, "stop.json", &j, NULL) < 0 && read_json(run_dir, "wish.json", &j, NULL) < 0)
        return PST_STOP_REASON_NONE;
    pst_rundir_stop_reason w = stop_reason_of(j);
    json_decref(j);
    return w;
}

int pst_rundir_exit_write(const char *run_dir, const pst_rundir_exit *x, pst_err *err)
{
    json_t *j = json_pack("{s:s, s:I, s:b}", "stop_reason", pst_rundir_stop_reason_name(x->stop_reason), "time_us", (json_int_t)x->time_us,
                          "lost", x->lost);
    if (x->has_exit_code)
        json_object_set_new(j, "exit_code", json_integer(x->exit_code));
    if (x->has_signal)
        json_object_set_new(j, "signal", json_integer(x->signal));
    if (*x->reason_code)
        put_str(j, "reason_code", x->reason_code);
    if (*x->reason)
        put_cut(j, "reason", x->reason);
    return write_json(run_dir, "exit.json", j, err);
}

int pst_rundir_exit_read(const char *run_dir, pst_rundir_exit *ret_exit, pst_err *err)
{
    json_t *j;
    int rc = read_json(run_dir, "exit.json", &j, err);
    if (rc < 0)
        return rc;
    pst_rundir_exit x = {.has_exit_code = json_is_integer(json_object_get(j, "exit_code")),
                         .has_signal = json_is_integer(json_object_get(j, "signal")),
                         .exit_code = (int)pst_json_int(j, "exit_code", 0),
                         .signal = (int)pst_json_int(j, "signal", 0),
                         .stop_reason = stop_reason_of(j),
                         .time_us = pst_json_int(j, "time_us", 0),
                         .lost = pst_json_bool(j, "lost", false)};
    snprintf(x.reason_code, sizeof x.reason_code, "%s", pst_json_str(j, "reason_code", ""));
    snprintf(x.reason, sizeof x.reason, "%s", pst_json_str(j, "reason", ""));
    json_decref(j);
    *ret_exit = x;
    return 0;
}

static int mark(const char *run_dir, const char *name, pst_err *err)
{
    char *path = pst_fs_join(run_dir, name);
    int rc = pst_fs_write_atomic(path, "", 0, 0600, err);
    free(path);
    return rc;
}

static bool marked(const char *run_dir, const char *name)
{
    char *path = pst_fs_join(run_dir, name);
    bool yes = pst_fs_exists(path);
    free(path);
    return yes;
}

int pst_rundir_published_mark(const char *run_dir, pst_err *err)
{
    return mark(run_dir, "published", err);
}

bool pst_rundir_published(const char *run_dir)
{
    return marked(run_dir, "published");
}

int pst_rundir_registering_mark(const char *run_dir, pst_err *err)
{
    return mark(run_dir, "registering", err);
}

bool pst_rundir_registering(const char *run_dir)
{
    return marked(run_dir, "registering");
}

bool pst_rundir_has_spool(const char *run_dir)
{
    DIR *d = opendir(run_dir);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = !strncmp(e->d_name, "spool-", 6) && e->d_name[6] && !e->d_name[6 + strspn(e->d_name + 6, "0123456789")];
    if (d)
        closedir(d);
    return found;
}

/* Of the kind that can be looked at: a look must not keep a supervisor that is just starting from its lock. */
static int open_lock(const char *run_dir, int flags)
{
    char *path = pst_fs_join(run_dir, "lock");
    int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0600);
    free(path);
    return fd;
}

int pst_rundir_lock(const char *run_dir, int *ret_fd, pst_err *err)
{
    int rc = 0, fd = open_lock(run_dir, O_CREAT);
    if (fd < 0)
        rc = pst_err_sys(err, errno, "cannot open the lock of %s", run_dir);
    else if ((rc = pst_lock_try(fd, PST_LOCK_VISIBLE)) == PST_EEXIST)
        pst_err_set(err, rc, PST_CLASS_FATAL, "rundir", 0, "%s has a supervisor already (it holds the lock there)", run_dir);
    else if (rc)
        rc = pst_err_sys(err, errno, "cannot lock %s", run_dir);
    if (rc) {
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

bool pst_rundir_locked(const char *run_dir)
{
    int fd = open_lock(run_dir, 0);
    bool locked = fd >= 0 && pst_lock_is_taken(fd);
    if (fd >= 0)
        close(fd);
    return locked;
}
