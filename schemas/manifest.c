/* manifest.c - a job's manifest, read and checked. One pass over the YAML tree: every reader takes a key's value, checks it, and complains with the key's
 * dotted path, so that a user sees all that is wrong at once. Where FfDL guesses silently (512 MB for a memory it cannot read, 0 for "many"
 * GPUs, a crash without framework) we say so instead. */
#include "schemas/collect.h"
#include "schemas/manifest_read.h"

#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/isolation.h"
#include "common/base/seal.h"
#include "schemas/frameworks.h"
#include "schemas/task_array.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- sections ---------------------------------------------------------------------------------------------------------------- */

static void read_resources(mf_reader *r, const mf_place *top, pst_manifest *m)
{
    m->cpus = mf_number(r, top, "cpus", "a number of CPUs", " (0.5 is half a CPU)");
    double gpus = mf_number(r, top, "gpus", "a whole number of GPUs per learner", "");
    m->gpus = (int)gpus;
    if (m->gpus != gpus)
        mf_warn(r, top, "gpus", "%g is taken as %d per learner, as FfDL does: a GPU is not divided", gpus, m->gpus);
    m->gpu_type = mf_text(r, top, "gpu_type");
    if (m->gpu_type)
        mf_warn(r, top, "gpu_type", "is kept, but does not choose among GPUs yet");

    m->learners = (int)mf_int(r, top, "learners");
    m->memory_bytes = mf_memory(r, top, "memory");
    m->storage_bytes = mf_memory(r, top, "storage");
}

/* A key that is wrong in itself is complained of once, by its reader; "is missing" is said only where nothing else was (errors->n). Native jobs
 * need neither version nor command. */
static void read_framework(mf_reader *r, const mf_place *top, pst_manifest *m)
{
    if (!mf_value(top, "framework")) {
        mf_wrong(r, top, "framework", "is missing: name, version and command of what is to run");
        return;
    }
    mf_place f = {mf_mapping(r, top, "framework"), "framework"};
    if (!f.obj)
        return;
    mf_check_keys(r, &f, false);
    size_t before = r->errors->n;
    m->framework = mf_text(r, &f, "name");
    if ((!m->framework || !*m->framework) && r->errors->n == before)
        mf_wrong(r, &f, "name", "is missing: tensorflow, pytorch, custom, native, …");
    m->runs = pst_framework_of(m->framework);
    m->native = m->runs->verb != NULL;

    before = r->errors->n;
    m->framework_version = mf_text(r, &f, "version");
    if ((!m->framework_version || !*m->framework_version) && m->runs->needs_version && r->errors->n == before)
        mf_wrong(r, &f, "version", "is missing: the framework's version, quoted (\"1\" will do for a command of your own)");

    before = r->errors->n;
    m->command = mf_text(r, &f, "command");
    bool blank = !m->command || m->command[strspn(m->command, " \t\r\n")] == '\0';
    bool by_roles =
        json_is_object(json_object_get(mf_value(top, "penstock"), "roles")); /* they may have commands of their own: mf_roles says */
    if (blank && m->runs->needs_command && !by_roles && r->errors->n == before)
        mf_wrong(r, &f, "command", "is missing: the shell command that trains");
    if (mf_value(&f, "image_tag"))
        mf_warn(r, &f, "image_tag", "is ignored: the local launcher runs the command on its host, not in a container image");
    if (mf_value(&f, "image_location"))
        mf_warn(r, &f, "image_location", "is ignored: the local launcher runs the command on its host, not in a container image");
}

static const char *const store_types[] = {"mount",
                                          "host_mount",
                                          "mount_volume",
                                          "files",
                                          "topic",
                                          "s3",
                                          "s3_datastore",
                                          "mount_cos",
                                          "swift_datastore",
                                          "softlayer_objectstore",
                                          "bluemix_objectstore"};
enum {
    STORE_TYPE_FFDL_MOUNT = 2,
    STORE_TYPES_MOUNT = 3,
    STORE_TYPE_TOPIC = 4,
    STORE_TYPE_S3 = 7,
    STORE_TYPES = sizeof store_types / sizeof *store_types
};

/* "beginning", "end" or an offset. */
static int64_t get_offset(mf_reader *r, const mf_place *p, const char *key, const char *word, int64_t word_value)
{
    char what[64];
    const json_t *v = mf_value(p, key);
    const char *t = json_string_value(v);
    if (!v || (t && !strcmp(t, word)))
        return word_value;
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        return json_integer_value(v);
    mf_wrong(r, p, key, "must be \"%s\" or an offset from 0, found %s", word, mf_found(v, what));
    return word_value;
}

static void read_topic_store(mf_reader *r, const mf_place *p, const mf_place *connection, pst_data_store *s)
{
    char field[160];
    mf_place from = *connection; /* the range may stand beside the store's id or under connection */
    if (!from.obj || mf_value(p, "topic") || mf_value(p, "from") || mf_value(p, "to"))
        from = *p;
    s->topic = mf_text(r, &from, "topic");
    if (!s->topic && s->input)
        s->topic = pst_strdup(s->input);
    if (!s->topic || !*s->topic) {
        mf_field(p, "connection.topic", field);
        pst_complain(r->errors, field, pst_yaml_line(r->y, p->obj), "is missing: the Kafka topic to read");
    }
    s->from = get_offset(r, &from, "from", "beginning", -2);
    s->to = get_offset(r, &from, "to", "end", -1);
    s->records_max = mf_int(r, &from, "records");
    if (s->from >= 0 && s->to >= 0 && s->to < s->from)
        mf_wrong(r, &from, "to", "%lld lies before from, %lld", (long long)s->to, (long long)s->from);
}

static const char *const bucket_keys[] = {"auth_url", "user_name", "password", "region"};

/* They are known, but of other stores. */
static void check_no_bucket_keys(mf_reader *r, const mf_place *connection, bool ours)
{
    for (size_t i = 0; i < sizeof bucket_keys / sizeof *bucket_keys; i++)
        if (mf_value(connection, bucket_keys[i]) && ours)
            mf_wrong(r, connection, bucket_keys[i], "is of buckets (s3_datastore, mount_cos); this store has none");
        else if (mf_value(connection, bucket_keys[i]))
            mf_warn(r, connection, bucket_keys[i], "is of buckets (s3_datastore, mount_cos) and is ignored");
}

static void read_store(mf_reader *r, const mf_place *p, pst_data_store *s)
{
    char path[3][160];
    mf_check_keys(r, p, false);
    s->from = -2;
    s->to = -1;
    s->line = pst_yaml_key_line(r->y, p->obj, "type");
    s->id = mf_text(r, p, "id");
    s->type = mf_text(r, p, "type");
    const char *const containers[] = {"training_data", "training_results"};
    char **const into[] = {&s->input, &s->output};
    for (int i = 0; i < 2; i++) {
        mf_field(p, containers[i], path[i]);
        mf_place c = {mf_mapping(r, p, containers[i]), path[i]};
        if (!c.obj)
            continue;
        mf_check_keys(r, &c, false);
        *into[i] = mf_text(r, &c, "container");
        if (*into[i] && strstr(*into[i], ".."))
            mf_wrong(r, &c, "container", "must not contain \"..\"");
    }
    mf_field(p, "connection", path[2]);
    mf_place connection = {mf_mapping(r, p, "connection"), path[2]};
    s->connection = connection.obj ? json_deep_copy(connection.obj) : json_object();

    size_t kind = STORE_TYPES;
    for (size_t i = 0; s->type && i < STORE_TYPES; i++)
        if (!strcmp(s->type, store_types[i]))
            kind = i;
    /* What FfDL writes has keys of other stores (user_name, password, region), which it passes over; ours, and what we alone read, has none. */
    bool passes_over = kind == STORE_TYPE_FFDL_MOUNT || (kind > STORE_TYPE_TOPIC && kind <= STORE_TYPE_S3);
    if (kind <= STORE_TYPE_S3 && connection.obj) {
        mf_check_keys(r, &connection, !passes_over);
        if (kind <= STORE_TYPE_TOPIC)
            check_no_bucket_keys(r, &connection, !passes_over);
    }
    if (!s->type || kind == STORE_TYPES) {
        const char *near = s->type ? pst_nearest(s->type, store_types, STORE_TYPES) : NULL;
        if (near)
            mf_wrong(r, p, "type", "there is no data store of type %.60s; did you mean \"%s\"?", s->type, near);
        else
            mf_wrong(r, p, "type", "%s%.60s; there are s3_datastore, mount_cos, mount, files and topic",
                     s->type ? "there is no data store of type " : "is missing", s->type ? s->type : "");
    } else if (kind > STORE_TYPE_TOPIC && kind <= STORE_TYPE_S3) {
        s->s3 = true;
    } else if (kind == STORE_TYPE_TOPIC) {
        read_topic_store(r, p, &connection, s);
    } else if (kind < STORE_TYPES_MOUNT) {
        const char *base = connection.obj ? json_string_value(json_object_get(connection.obj, "path")) : NULL;
        if (!base || *base != '/') {
            mf_field(p, "connection.path", path[2]);
            pst_complain(r->errors, path[2], pst_yaml_line(r->y, p->obj), "%s: the folder on the host, beginning with /",
                         base ? "is not absolute" : "is missing");
        }
    }
}

static void read_stores(mf_reader *r, const mf_place *top, pst_manifest *m)
{
    char what[64], path[40];
    const json_t *v = mf_value(top, "data_stores");
    if (!v)
        return;
    if (!json_is_array(v)) {
        mf_wrong(r, top, "data_stores", "must be a list (lines that begin with \"- id:\"), found %s", mf_kind(v, what));
        return;
    }
    if (json_array_size(v) > mf_most(top, "data_stores")) {
        mf_wrong(r, top, "data_stores", "has %zu entries, at most %zu are allowed", json_array_size(v), mf_most(top, "data_stores"));
        return;
    }
    m->n_stores = json_array_size(v);
    m->stores = pst_alloc((m->n_stores + 1) * sizeof *m->stores);
    for (size_t i = 0; i < m->n_stores; i++) {
        mf_place p = {json_array_get(v, i), path};
        snprintf(path, sizeof path, "data_stores[%zu]", i);
        if (json_is_object(p.obj))
            read_store(r, &p, &m->stores[i]);
        else
            pst_complain(r->errors, path, pst_yaml_line(r->y, p.obj), "must be a mapping with id, type and connection, found %s",
                         mf_kind(p.obj, what));
    }
}

static void metrics_complaint(void *arg, bool is_error, const char *path, const json_t *holder, const char *key, const char *text)
{
    mf_reader *r = arg;
    char field[240];
    snprintf(field, sizeof field, "evaluation_metrics.%s", path);
    pst_complain(is_error ? r->errors : r->warnings, field, pst_yaml_key_line(r->y, holder, key), "%s", text);
}

static void read_metrics(mf_reader *r, const mf_place *top, pst_manifest *m)
{
    static const char *const types[] = {
        "tensorboard", "tensorboard_extractor", "regex_extractor", "emetrics_file", "file", "optivist", "null", "nil", "none", "logger"};
    const json_t *v = mf_mapping(r, top, "evaluation_metrics");
    if (!v)
        return;
    m->evaluation_metrics = json_deep_copy(v);
    mf_place p = {v, "evaluation_metrics"};
    mf_check_keys(r, &p, false);
    char *type = mf_text(r, &p, "type");
    bool is_known = !type;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        is_known = is_known || !strcmp(type, types[i]);
    if (!is_known)
        mf_warn(r, &p, "type", "\"%.40s\" is not a known extractor: only lines and evaluation-metrics.txt are read", type);
    free(type);
    pst_collect c;
    pst_collect_read(v, &c, metrics_complaint, r);
    pst_collect_done(&c);
}

/* Names that steer a loader, an allocator, a name service, TLS or a proxy. A native job runs the platform's own program
 * with the platform's credentials: nobody but the operator may turn these. */
static bool steers_a_program(const char *name)
{
    static const char *const
        prefixes[] = {"LD_", "MALLOC_", "GLIBC_", "GCONV_", "OPENSSL_", "SSL", "SASL_", "KRB5", "CURL_", "NSS_", "RES_"},
        *const names[] = {
            "LOCPATH",   "NLSPATH",     "HOSTALIASES",    "LOCALDOMAIN", "RESOLV_HOST_CONF", "BASH_ENV",   "ENV",         "IFS",
            "SHELLOPTS", "TMPDIR",      "HOME",           "PATH",        "XDG_STATE_HOME",   "http_proxy", "https_proxy", "all_proxy",
            "no_proxy",  "GETCONF_DIR", "ORT_DYLIB_PATH", "TZDIR"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name, names[i]))
            return true;
    return false;
}

/* True when the platform, not the manifest, gives this variable its value. */
static bool check_env_name(mf_reader *r, const mf_place *env, const char *key, const pst_manifest *m)
{
    bool ours = !strncmp(key, "PENSTOCK_", 9);
    if (m->native && (ours || steers_a_program(key)))
        mf_wrong(r, env, key,
                 "may not be set for framework.name %s: it steers the platform's own program, which holds credentials; "
                 "leave it out, or run a program of yours as a custom framework",
                 m->framework);
    else if (ours)
        mf_warn(r, env, key, "is the platform's to set and is ignored");
    return ours;
}

json_t *mf_env(mf_reader *r, const mf_place *own, const char *path, const pst_manifest *m)
{
    char what[64];
    const json_t *v = mf_mapping(r, own, "env");
    if (!v)
        return NULL;
    mf_place p = {v, path};
    json_t *env = json_object();
    if (json_object_size(v) > mf_most(own, "env"))
        mf_wrong(r, own, "env", "has %zu variables, at most %zu are allowed", json_object_size(v), mf_most(own, "env"));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        bool good = isalpha((unsigned char)*key) || *key == '_';
        for (const char *s = key; *s; s++)
            good = good && (isalnum((unsigned char)*s) || *s == '_');
        char *t = json_is_null(value) ? pst_strdup("") : mf_scalar(value);
        if (!good)
            mf_wrong(r, &p, key, "is not a name for an environment variable (letters, digits and '_')");
        else if (!t)
            mf_wrong(r, &p, key, "must be text, found %s", mf_found(value, what));
        else if (!check_env_name(r, &p, key, m))
            json_object_set_new(env, key, json_string(t));
        free(t);
    }
    return env;
}

static void read_isolation(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    char *word = mf_word(r, own, "isolation");
    m->isolation_line = word ? pst_yaml_key_line(r->y, own->obj, "isolation") : 0;
    if (word && pst_isolation_parse(word, &m->isolation) < 0)
        mf_wrong(r, own, "isolation", "must be none, user or sandbox, found \"%s\"", word);
    free(word);
}

/* YAML's true and false only: `hold: "no"` that held a job, or did not, would surprise somebody. */
static bool read_hold(mf_reader *r, const mf_place *own)
{
    const json_t *v = mf_value(own, "hold");
    char what[64];
    if (v && !json_is_boolean(v))
        mf_wrong(r, own, "hold", "must be true or false, found %s", mf_found(v, what));
    return json_is_true(v);
}

enum { AFTER_MAX = 1000 };

/* A list of ids, or one. */
static void read_after(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    const json_t *v = mf_value(own, "after");
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    char what[64];
    if (v && n > AFTER_MAX)
        mf_wrong(r, own, "after", "must be %d training ids at most, found %zu", AFTER_MAX, n);
    if (!v || n > AFTER_MAX)
        return;
    m->after = pst_alloc((n + 1) * sizeof *m->after);
    m->after_line = pst_yaml_key_line(r->y, own->obj, "after");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        size_t bytes = json_is_string(id) ? json_string_length(id) : 0;
        if (!bytes || bytes > mf_most(own, "after"))
            mf_wrong(r, own, "after", "must be a list of training ids, found %s in it", mf_found(id, what));
        else
            m->after[m->n_after++] = pst_strdup(json_string_value(id));
    }
}

static void read_gpu_preference(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    const json_t *v = mf_value(own, "gpu_preference");
    size_t n = json_is_array(v) ? json_array_size(v) : 0;
    char what[64];
    if (v && (!json_is_array(v) || n > PST_GPU_PREFERENCE_MAX))
        mf_wrong(r, own, "gpu_preference", "must be a list of %d kinds of GPUs at most, as [h100, a100], found %s", PST_GPU_PREFERENCE_MAX,
                 mf_found(v, what));
    for (size_t i = 0; n <= PST_GPU_PREFERENCE_MAX && i < n; i++) {
        const json_t *one = json_array_get(v, i);
        size_t bytes = json_is_string(one) ? json_string_length(one) : 0;
        if (!bytes || bytes >= PST_GPU_TYPE_BYTES)
            mf_wrong(r, own, "gpu_preference", "must be a list of kinds of GPUs (%d bytes at most), as [h100, a100], found %s in it",
                     PST_GPU_TYPE_BYTES - 1, mf_found(one, what));
        else
            snprintf(m->gpu_preference.at[m->gpu_preference.n++], PST_GPU_TYPE_BYTES, "%s", json_string_value(one));
    }
}

/* One index may be written as a number. */
static void read_array(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    const json_t *v = mf_value(own, "array");
    char what[64], *text = v ? mf_scalar(v) : NULL;
    pst_task_array tasks = {0};
    pst_err err = {0};
    if (v && (!text || json_is_boolean(v)))
        mf_wrong(r, own, "array", "must be indices such as \"0-99\", found %s", mf_found(v, what));
    else if (text && pst_task_array_parse(text, &tasks, &err) < 0)
        mf_wrong(r, own, "array", "%s", err.text);
    m->tasks = (int)tasks.n;
    m->array = tasks.n ? text : NULL;
    if (!tasks.n)
        free(text);
    pst_task_array_done(&tasks);
}

/* Settings under `penstock` that are another framework's. */
static void check_owners(mf_reader *r, const mf_place *own, const pst_manifest *m)
{
    const pst_framework *f;
    for (size_t i = 0; (f = pst_framework_at(i)); i++)
        if (f->settings && f != m->runs && mf_value(own, f->settings))
            mf_wrong(r, own, f->settings, "is for framework.name %s only; leave it out, or say framework: {name: %s}", f->name, f->name);
}

static void read_model(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    mf_place model = {mf_mapping(r, own, "model"), "penstock.model"};
    if (!model.obj)
        return;
    mf_check_keys(r, &model, true);
    m->model_name = mf_word(r, &model, "name");
    m->model_alias = mf_word(r, &model, "alias");
    if (!mf_value(&model, "name"))
        mf_wrong(r, &model, "name", "is missing: the name that the model is to be registered under");
    m->model_file = mf_text(r, &model, "file");
    if (m->model_file && (!*m->model_file || *m->model_file == '/' || strstr(m->model_file, "..")))
        mf_wrong(r, &model, "file", "must be a path inside $RESULT_DIR/model, such as best.onnx, found \"%.60s\"", m->model_file);
}

static void read_checkpoint(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    mf_place p = {mf_mapping(r, own, "checkpoint"), "penstock.checkpoint"};
    if (!p.obj)
        return;
    mf_check_keys(r, &p, true);
    pst_checkpoint_rule *rule = &m->checkpoint;
    rule->asked = true;
    rule->keep_best = (int)mf_int(r, &p, "keep_best");
    rule->keep_last = (int)mf_int(r, &p, "keep_last");
    if (rule->keep_best && !rule->keep_last) /* what a resume goes on from */
        rule->keep_last = 1;
    rule->metric = mf_text(r, &p, "metric");
    if (rule->keep_best && (!rule->metric || !*rule->metric))
        mf_wrong(r, &p, "metric", "is missing: which number says what is best, such as loss");
    char *mode = mf_text(r, &p, "mode");
    rule->max = mode && !strcmp(mode, "max");
    if (mode && strcmp(mode, "max") && strcmp(mode, "min"))
        mf_wrong(r, &p, "mode", "must be min or max, found \"%.20s\"", mode);
    free(mode);
    if (m->native)
        mf_wrong(r, own, "checkpoint",
                 "is for commands of your own: the built-in learner commits, verifies and keeps its last checkpoints by itself");
}

/* The one key of our own. */
static void read_penstock(mf_reader *r, const mf_place *top, pst_manifest *m)
{
    mf_place own = {mf_mapping(r, top, "penstock"), "penstock"};
    m->queue = mf_word(r, &own, "queue");
    m->site = mf_word(r, &own, "site");
    m->node = mf_word(r, &own, "node");
    m->grace_us = mf_span(r, &own, "grace");
    m->system_us = mf_span(r, &own, "system_metrics");
    if (m->system_us && m->system_us < 1000000)
        mf_wrong(r, &own, "system_metrics", "must be 0 (none) or at least 1s");
    if (own.obj) {
        mf_check_keys(r, &own, true);
        m->queue_line = pst_yaml_key_line(r->y, own.obj, "queue");
        m->priority = (int)mf_int(r, &own, "priority");
        m->hold = read_hold(r, &own);
        read_after(r, &own, m);
        read_array(r, &own, m);
        m->deadline_us = mf_span(r, &own, "deadline");
        mf_retries(r, &own, m);
        m->env = mf_env(r, &own, "penstock.env", m);
        read_isolation(r, &own, m);
        read_model(r, &own, m);
        read_checkpoint(r, &own, m);
        const char *key = m->runs ? m->runs->settings : NULL; /* read before; one that is another framework's is refused below */
        const json_t *settings = key ? mf_mapping(r, &own, key) : NULL;
        m->settings = settings ? json_deep_copy(settings) : NULL;
        check_owners(r, &own, m);
        read_gpu_preference(r, &own, m);
    }
    mf_roles(r, &own, m);
}

static void read_top(mf_reader *r, const mf_place *top, pst_manifest *m)
{
    mf_check_keys(r, top, false);
    size_t before = r->errors->n;
    m->name = mf_text(r, top, "name");
    if ((!m->name || !*m->name) && r->errors->n == before)
        mf_wrong(r, top, "name", "is missing: what you call this job");
    m->description = mf_text(r, top, "description");
    m->version = mf_text(r, top, "version");
    read_framework(r, top, m); /* before the rest: native decides what is missing */
    read_resources(r, top, m);
    read_stores(r, top, m);
    read_metrics(r, top, m);
    read_penstock(r, top, m);
    if (m->runs && m->runs->check) { /* a job whose settings are wrong can never run: say so now, not from a process */
        before = r->errors->n;
        m->runs->check(m, r->errors);
        mf_find_lines(r, top->obj, before);
    }
}

int pst_manifest_parse(const char *yaml, size_t len, pst_manifest *ret_manifest, pst_complaints *errors, pst_complaints *warnings)
{
    pst_err err = {0};
    pst_yaml y = {0};
    *ret_manifest = (pst_manifest){0};
    size_t before = errors->n;
    if (len > PST_MANIFEST_BYTES_MAX) {
        pst_complain(errors, "manifest", 0, "is %zu bytes long, at most %d are allowed", len, PST_MANIFEST_BYTES_MAX);
        return PST_EINVAL;
    }
    if (pst_yaml_parse(yaml, len, "manifest", &y, &err) < 0) {
        pst_complain(errors, "manifest", 0, "%s", err.text);
        return PST_EINVAL;
    }
    /* Only the Trainer that wrote it can open it: nothing is run with a sealed text for a password. */
    if (memmem(yaml, len, "\"" PST_SEALED, strlen("\"" PST_SEALED)))
        pst_complain(
            errors, "manifest", 0,
            "holds a secret that is sealed with the key of another state folder (seal.key); submit the manifest with the secret itself");
    if (json_is_object(y.root)) {
        mf_reader r = {&y, errors, warnings};
        mf_place top = {y.root, ""};
        read_top(&r, &top, ret_manifest);
        if ((size_t)ret_manifest->tasks * len > PST_TASKS_BYTES_MAX) /* each task's state has it */
            pst_complain(
                errors, "penstock.array", 0,
                "has %d tasks, each with this manifest of %zu bytes, %zu MiB together: at most %zu MiB are allowed; make the manifest "
                "shorter, or submit several arrays",
                ret_manifest->tasks, len, (size_t)ret_manifest->tasks * len >> 20, PST_TASKS_BYTES_MAX >> 20);
        ret_manifest->raw = json_incref(y.root);
    } else {
        pst_complain(errors, "manifest", 0, "%s", json_is_null(y.root) ? "is empty" : "must be a mapping: name, framework, learners, …");
    }
    pst_yaml_done(&y);
    return errors->n == before ? 0 : PST_EINVAL;
}

/* What FfDL's Trainer asks of a store before it tries it. Its container is a bucket, no path. */
static bool check_s3(const pst_data_store *s, size_t i, pst_complaints *errors)
{
    const char *const buckets[] = {s->input, s->output};
    size_t before = errors->n;
    char field[80];
    for (size_t k = 0; k < 3; k++) {
        const char *v = json_string_value(json_object_get(s->connection, bucket_keys[k]));
        snprintf(field, sizeof field, "data_stores[%zu].connection.%s", i, bucket_keys[k]);
        if (!v || !*v)
            pst_complain(errors, field, s->line, "%s",
                         k ? "is missing: the access key and its secret" : "is missing: the address of the S3 server");
        else if (!k && strncmp(v, "http://", 7) && strncmp(v, "https://", 8))
            pst_complain(errors, field, s->line, "must begin with http:// or https://");
    }
    for (size_t k = 0; k < 2; k++)
        if (buckets[k] && (!*buckets[k] || strchr(buckets[k], '/'))) {
            snprintf(field, sizeof field, "data_stores[%zu].%s.container", i, k ? "training_results" : "training_data");
            pst_complain(errors, field, s->line, "names a bucket: not empty, without /");
        }
    if (!buckets[0] && !buckets[1]) {
        snprintf(field, sizeof field, "data_stores[%zu].training_data.container", i);
        pst_complain(errors, field, s->line, "is missing, and training_results.container too: the bucket to read, or to write");
    }
    return errors->n > before;
}

const char *pst_manifest_check_served(const pst_manifest *m, pst_complaints *errors)
{
    const char *code = NULL;
    char field[64];
    for (size_t i = 0; i < m->n_stores; i++) {
        const pst_data_store *s = &m->stores[i];
        bool served = !s->type;
        for (size_t k = 0; k <= STORE_TYPE_S3 && !served; k++)
            served = !strcmp(s->type, store_types[k]);
        if (s->s3 && check_s3(s, i, errors))
            code = "C103";
        if (served)
            continue;
        snprintf(field, sizeof field, "data_stores[%zu].type", i);
        pst_complain(errors, field, s->line,
                     "the data store %s of type %s cannot be used: this version does not read or write such stores; use s3_datastore, "
                     "mount_cos, mount, files or topic",
                     s->id ? s->id : "without an id", s->type);
        code = "C103";
    }
    return code;
}

void pst_manifest_done(pst_manifest *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_after; i++)
        free(m->after[i]);
    free(m->after);
    free(m->array);
    free(m->checkpoint.metric);
    for (size_t i = 0; i < m->n_stores; i++) {
        pst_data_store *s = &m->stores[i];
        free(s->id);
        free(s->type);
        free(s->input);
        free(s->output);
        free(s->topic);
        json_decref(s->connection);
    }
    free(m->stores);
    free(m->retry_on);
    mf_roles_done(m);
    char *texts[] = {m->name,    m->description, m->version,    m->user,        m->gpu_type,   m->framework, m->framework_version,
                     m->command, m->queue,       m->model_name, m->model_alias, m->model_file, m->site,      m->node};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    json_decref(m->evaluation_metrics);
    json_decref(m->env);
    json_decref(m->settings);
    json_decref(m->raw);
    *m = (pst_manifest){0};
}
