/* manifest.c - see manifest.h. One pass over the YAML tree: every reader below takes a key's value, checks it, and complains with the key's
 * dotted path, so that a user sees all that is wrong at once. Where FfDL guesses silently (512 MB for a memory it cannot read, 0 for "many"
 * GPUs, a crash without framework) we say so instead. */
#include "schemas/manifest.h"

#include "common/base/fs.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_BYTES_MAX  (256 << 10) /* it travels in a command and a state record, together well below 1 MB */
#define MANIFEST_ERRORS_MAX 100         /* one line each in the rejection's details */
#define NAME_MAX_BYTES      256
#define LEARNERS_MAX        1000
#define CPUS_MAX            4096
#define GPUS_MAX            1024
#define MEMORY_MAX          ((int64_t)1 << 50)
#define STORES_MAX          16
#define RETRIES_MAX         100
#define PRIORITY_MAX        1000000
#define ENV_MAX             500

/* FfDL's trainer takes 5 CPUs and 12 GiB where a manifest is silent; on a laptop no such job would ever start. */
#define CPUS_DEFAULT     1.0
#define MEMORY_DEFAULT   ((int64_t)512 << 20)
#define GRACE_DEFAULT_US 10000000

typedef struct reader {
    const pst_yaml *y;
    pst_complaints *errors, *warnings;
} reader;

/* ---- complaints ------------------------------------------------------------------------------------------------------------ */

static void complain_va(pst_complaints *c, const char *field, int line, const char *fmt, va_list ap)
{
    if (c->n >= MANIFEST_ERRORS_MAX)
        return;
    pst_buf b = {0};
    pst_buf_vprintf(&b, fmt, ap);
    c->at = pst_realloc(c->at, (c->n + 1) * sizeof *c->at);
    c->at[c->n++] = (pst_complaint){.field = pst_strdup(field), .text = pst_buf_steal(&b), .line = line};
}

void pst_complain(pst_complaints *c, const char *field, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain_va(c, field, line, fmt, ap);
    va_end(ap);
}

void pst_complaints_done(pst_complaints *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        free(c->at[i].field);
        free(c->at[i].text);
    }
    free(c->at);
    *c = (pst_complaints){0};
}

char *pst_complaints_text(const pst_complaints *c)
{
    pst_buf b = {0};
    for (size_t i = 0; i < c->n; i++)
        pst_buf_printf(&b, "%s%s: %s", i ? "; " : "", c->at[i].field, c->at[i].text);
    return pst_buf_steal(&b);
}

/* ---- reading one key --------------------------------------------------------------------------------------------------------- */

/* Where a key stands: "framework" + "command" → "framework.command". */
typedef struct place {
    const json_t *obj;
    const char *path; /* "" at the top */
} place;

static void field_name(const place *p, const char *key, char ret[160])
{
    snprintf(ret, 160, "%s%s%s", p->path, *p->path ? "." : "", key);
}

static void wrong(reader *r, const place *p, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void wrong(reader *r, const place *p, const char *key, const char *fmt, ...)
{
    char field[160];
    va_list ap;
    field_name(p, key, field);
    va_start(ap, fmt);
    complain_va(r->errors, field, pst_yaml_key_line(r->y, p->obj, key), fmt, ap);
    va_end(ap);
}

static void warn(reader *r, const place *p, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void warn(reader *r, const place *p, const char *key, const char *fmt, ...)
{
    char field[160];
    va_list ap;
    field_name(p, key, field);
    va_start(ap, fmt);
    complain_va(r->warnings, field, pst_yaml_key_line(r->y, p->obj, key), fmt, ap);
    va_end(ap);
}

/* NULL where the key is absent or has no value: `gpus:` says nothing, as in FfDL. */
static const json_t *value_of(const place *p, const char *key)
{
    const json_t *v = json_object_get(p->obj, key);
    return json_is_null(v) ? NULL : v;
}

/* What was found, for a person: "many", a list, … cut at 40 bytes. */
static const char *found(const json_t *v, char buf[64])
{
    switch (json_typeof(v)) {
    case JSON_STRING: snprintf(buf, 64, "\"%.40s\"", json_string_value(v)); break;
    case JSON_INTEGER: snprintf(buf, 64, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: snprintf(buf, 64, "%g", json_real_value(v)); break;
    case JSON_TRUE: snprintf(buf, 64, "true"); break;
    case JSON_FALSE: snprintf(buf, 64, "false"); break;
    case JSON_ARRAY: snprintf(buf, 64, "a list"); break;
    case JSON_OBJECT: snprintf(buf, 64, "a mapping"); break;
    default: snprintf(buf, 64, "nothing"); break;
    }
    return buf;
}

/* A scalar as text: `version: 1` and `version: "1"` are the same version. NULL for lists and mappings. */
static char *scalar_text(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING: return pst_strdup(json_string_value(v));
    case JSON_INTEGER: return pst_sprintf("%lld", (long long)json_integer_value(v));
    case JSON_REAL: {
        char *t = pst_sprintf("%.15g", json_real_value(v));
        if (strtod(t, NULL) != json_real_value(v)) {
            free(t);
            t = pst_sprintf("%.17g", json_real_value(v));
        }
        if (!strpbrk(t, ".einf")) { /* 1.0 stays 1.0 */
            char *with_point = pst_sprintf("%s.0", t);
            free(t);
            t = with_point;
        }
        return t;
    }
    case JSON_TRUE: return pst_strdup("true");
    case JSON_FALSE: return pst_strdup("false");
    default: return NULL;
    }
}

/* Text of a key, NULL when absent; complains about anything that is not one line of text where one_line. */
static char *get_text(reader *r, const place *p, const char *key, size_t bytes_max, bool one_line)
{
    char what[64];
    const json_t *v = value_of(p, key);
    if (!v)
        return NULL;
    char *t = scalar_text(v);
    if (!t) {
        wrong(r, p, key, "must be text, found %s", found(v, what));
        return NULL;
    }
    if (strlen(t) > bytes_max) {
        wrong(r, p, key, "is %zu bytes long, at most %zu are allowed", strlen(t), bytes_max);
        free(t);
        return NULL;
    }
    if (one_line)
        for (const char *s = t; *s; s++)
            if ((unsigned char)*s < 0x20 || *s == 0x7f) {
                wrong(r, p, key, "must be one line of text without control characters");
                free(t);
                return NULL;
            }
    return t;
}

/* A word that becomes part of names and paths: letters, digits, . _ - ; must begin with a letter or digit. */
static char *get_word(reader *r, const place *p, const char *key, size_t bytes_max)
{
    char *t = get_text(r, p, key, bytes_max, true);
    if (!t)
        return NULL;
    bool good = isalnum((unsigned char)*t);
    for (const char *s = t; *s; s++)
        good = good && (isalnum((unsigned char)*s) || strchr("._-", *s));
    if (!good) {
        wrong(r, p, key, "\"%.40s\" must be letters, digits, '.', '_' and '-', beginning with a letter or digit", t);
        free(t);
        return NULL;
    }
    return t;
}

static int64_t get_int(reader *r, const place *p, const char *key, int64_t min, int64_t max, int64_t def)
{
    char what[64];
    const json_t *v = value_of(p, key);
    if (!v)
        return def;
    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max)
        return json_integer_value(v);
    wrong(r, p, key, "must be a whole number from %lld to %lld, found %s", (long long)min, (long long)max, found(v, what));
    return def;
}

static int64_t get_span(reader *r, const place *p, const char *key, int64_t min_us, int64_t max_us, int64_t def)
{
    char what[64];
    const json_t *v = value_of(p, key);
    if (!v)
        return def;
    int64_t us = -1;
    char *t = scalar_text(v);
    bool good = t && pst_span_parse(t, &us) == 0 && us >= min_us && us <= max_us;
    free(t);
    if (good)
        return us;
    wrong(r, p, key, "must be a span such as 30s, 5m or 2h (%lld s at most), found %s", (long long)(max_us / 1000000), found(v, what));
    return def;
}

/* FfDL's grammar with decimals: a number, optional spaces, and a unit in any case. MB is 10^6 and MiB 2^20 bytes. */
static int64_t get_memory(reader *r, const place *p, const char *key, int64_t def)
{
    char what[64];
    const json_t *v = value_of(p, key);
    if (!v)
        return def;
    int64_t bytes = 0;
    const char *t = json_string_value(v);
    if (t && isdigit((unsigned char)*t) && t[1] != 'x' && t[1] != 'X') {
        size_t n = strlen(t);
        const char *unit = t + n;
        while (unit > t && isalpha((unsigned char)unit[-1]))
            unit--;
        size_t len = strlen(unit);
        bool known = (len == 2 || (len == 3 && tolower((unsigned char)unit[1]) == 'i')) && strchr("kmgt", tolower((unsigned char)*unit)) &&
                     tolower((unsigned char)unit[len - 1]) == 'b';
        if (known && pst_bytes_parse(t, &bytes) == 0 && bytes > 0 && bytes <= MEMORY_MAX)
            return bytes;
    }
    wrong(r, p, key, "must be a number and a unit, such as \"512 MiB\" or \"2GB\" (MB, MiB, GB, GiB, TB, TiB), found %s", found(v, what));
    return def;
}

/* A mapping under key; NULL when absent or wrong. */
static const json_t *get_mapping(reader *r, const place *p, const char *key)
{
    char what[64];
    const json_t *v = value_of(p, key);
    if (!v || json_is_object(v))
        return v;
    wrong(r, p, key, "must be a mapping (key: value lines), found %s", found(v, what));
    return NULL;
}

static void warn_unknown_keys(reader *r, const place *p, const char *const *known, size_t n)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)p->obj, key, v)
    {
        bool is_known = false;
        for (size_t i = 0; i < n; i++)
            is_known = is_known || !strcmp(key, known[i]);
        if (is_known)
            continue;
        const char *near = pst_nearest(key, known, n);
        if (near)
            warn(r, p, key, "is not a known key and is ignored; did you mean \"%s\"?", near);
        else
            warn(r, p, key, "is not a known key and is ignored");
    }
}
#define WARN_UNKNOWN(r, p, ...)                                          \
    do {                                                                 \
        static const char *const known_[] = {__VA_ARGS__};               \
        warn_unknown_keys(r, p, known_, sizeof known_ / sizeof *known_); \
    } while (0)

/* ---- sections ---------------------------------------------------------------------------------------------------------------- */

static void read_resources(reader *r, const place *top, pst_manifest *m)
{
    char what[64];
    const json_t *v = value_of(top, "cpus");
    m->cpus = CPUS_DEFAULT;
    if (v && (!json_is_number(v) || !(json_number_value(v) >= 0) || json_number_value(v) > CPUS_MAX))
        wrong(r, top, "cpus", "must be a number of CPUs from 0 to %d (0.5 is half a CPU), found %s", CPUS_MAX, found(v, what));
    else if (v && json_number_value(v) > 0) /* 0 means the default, as in FfDL */
        m->cpus = json_number_value(v);

    v = value_of(top, "gpus");
    if (v && (!json_is_number(v) || !(json_number_value(v) >= 0) || json_number_value(v) > GPUS_MAX))
        wrong(r, top, "gpus", "must be a whole number of GPUs per learner from 0 to %d, found %s", GPUS_MAX, found(v, what));
    else if (v) {
        m->gpus = (int)json_number_value(v);
        if (m->gpus != json_number_value(v))
            warn(r, top, "gpus", "%g is taken as %d per learner, as FfDL does: a GPU is not divided", json_number_value(v), m->gpus);
    }
    m->gpu_type = get_text(r, top, "gpu_type", NAME_MAX_BYTES, true);
    if (m->gpu_type)
        warn(r, top, "gpu_type", "is kept, but does not choose among GPUs yet");

    m->learners = (int)get_int(r, top, "learners", 1, LEARNERS_MAX, 1);
    m->memory_bytes = get_memory(r, top, "memory", MEMORY_DEFAULT);
    m->storage_bytes = get_memory(r, top, "storage", 0);
    if (m->storage_bytes)
        warn(r, top, "storage", "is not enforced: jobs write to the disk of their site");
}

static void read_framework(reader *r, const place *top, pst_manifest *m)
{
    if (!value_of(top, "framework")) {
        wrong(r, top, "framework", "is missing: name, version and command of what is to run");
        return;
    }
    place f = {get_mapping(r, top, "framework"), "framework"};
    if (!f.obj)
        return;
    WARN_UNKNOWN(r, &f, "name", "version", "image_tag", "image_location", "command");
    size_t before = r->errors->n;
    m->framework = get_text(r, &f, "name", NAME_MAX_BYTES, true);
    if ((!m->framework || !*m->framework) && r->errors->n == before)
        wrong(r, &f, "name", "is missing: tensorflow, pytorch, custom, native, …");
    m->native = m->framework && !strcmp(m->framework, "native");

    before = r->errors->n;
    m->framework_version = get_text(r, &f, "version", NAME_MAX_BYTES, true);
    if ((!m->framework_version || !*m->framework_version) && !m->native && r->errors->n == before)
        wrong(r, &f, "version", "is missing: the framework's version, quoted (\"1\" will do for a command of your own)");

    before = r->errors->n;
    m->command = get_text(r, &f, "command", MANIFEST_BYTES_MAX, false);
    bool blank = !m->command || m->command[strspn(m->command, " \t\r\n")] == '\0';
    if (blank && !m->native && r->errors->n == before)
        wrong(r, &f, "command", "is missing: the shell command that trains");
    if (value_of(&f, "image_tag"))
        warn(r, &f, "image_tag", "is ignored: the local launcher runs the command on its host, not in a container image");
    if (value_of(&f, "image_location"))
        warn(r, &f, "image_location", "is ignored: the local launcher runs the command on its host, not in a container image");
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
enum { STORE_TYPES_MOUNT = 3, STORE_TYPE_TOPIC = 4, STORE_TYPES = sizeof store_types / sizeof *store_types };

/* "beginning", "end" or an offset. */
static int64_t get_offset(reader *r, const place *p, const char *key, const char *word, int64_t word_value)
{
    char what[64];
    const json_t *v = value_of(p, key);
    const char *t = json_string_value(v);
    if (!v || (t && !strcmp(t, word)))
        return word_value;
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        return json_integer_value(v);
    wrong(r, p, key, "must be \"%s\" or an offset from 0, found %s", word, found(v, what));
    return word_value;
}

static void read_topic_store(reader *r, const place *p, const place *connection, pst_data_store *s)
{
    char field[160];
    place from = *connection; /* the range may stand beside the store's id or under connection */
    if (!from.obj || value_of(p, "topic") || value_of(p, "from") || value_of(p, "to"))
        from = *p;
    s->topic = get_text(r, &from, "topic", 249, true);
    if (!s->topic && s->input)
        s->topic = pst_strdup(s->input);
    if (!s->topic || !*s->topic) {
        field_name(p, "connection.topic", field);
        pst_complain(r->errors, field, pst_yaml_line(r->y, p->obj), "is missing: the Kafka topic to read");
    }
    s->from = get_offset(r, &from, "from", "beginning", -2);
    s->to = get_offset(r, &from, "to", "end", -1);
    s->records_max = get_int(r, &from, "records", 0, INT64_MAX, 0);
    if (s->from >= 0 && s->to >= 0 && s->to < s->from)
        wrong(r, &from, "to", "%lld lies before from, %lld", (long long)s->to, (long long)s->from);
}

static void read_store(reader *r, const place *p, pst_data_store *s)
{
    char path[3][160];
    WARN_UNKNOWN(r, p, "id", "type", "training_data", "training_results", "connection", "topic", "from", "to", "records");
    s->from = -2;
    s->to = -1;
    s->id = get_text(r, p, "id", NAME_MAX_BYTES, true);
    s->type = get_text(r, p, "type", NAME_MAX_BYTES, true);
    const char *const containers[] = {"training_data", "training_results"};
    char **const into[] = {&s->input, &s->output};
    for (int i = 0; i < 2; i++) {
        field_name(p, containers[i], path[i]);
        place c = {get_mapping(r, p, containers[i]), path[i]};
        if (!c.obj)
            continue;
        WARN_UNKNOWN(r, &c, "container");
        *into[i] = get_text(r, &c, "container", 4096, true);
        if (*into[i] && strstr(*into[i], ".."))
            wrong(r, &c, "container", "must not contain \"..\"");
    }
    field_name(p, "connection", path[2]);
    place connection = {get_mapping(r, p, "connection"), path[2]};
    s->connection = connection.obj ? json_deep_copy(connection.obj) : json_object();

    size_t kind = STORE_TYPES;
    for (size_t i = 0; s->type && i < STORE_TYPES; i++)
        if (!strcmp(s->type, store_types[i]))
            kind = i;
    if (!s->type || kind == STORE_TYPES) {
        const char *near = s->type ? pst_nearest(s->type, store_types, STORE_TYPES) : NULL;
        wrong(r, p, "type", "%s%s%s%s", s->type ? "is not a known type of data store" : "is missing",
              near ? "; did you mean \"" : ": mount, files, topic or mount_cos", near ? near : "", near ? "\"?" : "");
    } else if (kind == STORE_TYPE_TOPIC) {
        read_topic_store(r, p, &connection, s);
    } else if (kind < STORE_TYPES_MOUNT) {
        const char *base = connection.obj ? json_string_value(json_object_get(connection.obj, "path")) : NULL;
        if (!base || *base != '/') {
            field_name(p, "connection.path", path[2]);
            pst_complain(r->errors, path[2], pst_yaml_line(r->y, p->obj), "%s: the folder on the host, beginning with /",
                         base ? "is not absolute" : "is missing");
        }
    } else if (kind > STORE_TYPE_TOPIC) {
        warn(r, p, "type", "%s is not supported yet: DATA_DIR will be empty and results stay at the site; use mount, files or topic",
             s->type);
    }
}

static void read_stores(reader *r, const place *top, pst_manifest *m)
{
    char what[64], path[40];
    const json_t *v = value_of(top, "data_stores");
    if (!v)
        return;
    if (!json_is_array(v)) {
        wrong(r, top, "data_stores", "must be a list (lines that begin with \"- id:\"), found %s", found(v, what));
        return;
    }
    if (json_array_size(v) > STORES_MAX) {
        wrong(r, top, "data_stores", "has %zu entries, at most %d are allowed", json_array_size(v), STORES_MAX);
        return;
    }
    m->n_stores = json_array_size(v);
    m->stores = pst_alloc((m->n_stores + 1) * sizeof *m->stores);
    for (size_t i = 0; i < m->n_stores; i++) {
        place p = {json_array_get(v, i), path};
        snprintf(path, sizeof path, "data_stores[%zu]", i);
        if (json_is_object(p.obj))
            read_store(r, &p, &m->stores[i]);
        else
            pst_complain(r->errors, path, pst_yaml_line(r->y, p.obj), "must be a mapping with id, type and connection, found %s",
                         found(p.obj, what));
    }
}

static void read_metrics(reader *r, const place *top, pst_manifest *m)
{
    static const char *const types[] = {
        "tensorboard", "tensorboard_extractor", "regex_extractor", "emetrics_file", "file", "optivist", "null", "nil", "none", "logger"};
    const json_t *v = get_mapping(r, top, "evaluation_metrics");
    if (!v)
        return;
    m->evaluation_metrics = json_deep_copy(v);
    place p = {v, "evaluation_metrics"};
    WARN_UNKNOWN(r, &p, "type", "image_tag", "in", "line_lookahead", "eventTypes", "groups");
    char *type = get_text(r, &p, "type", NAME_MAX_BYTES, true);
    bool is_known = !type;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        is_known = is_known || !strcmp(type, types[i]);
    if (!is_known)
        warn(r, &p, "type", "\"%.40s\" is not a known extractor: only lines and evaluation-metrics.txt are read", type);
    else if (type && (!strncmp(type, "tensorboard", 11) || !strcmp(type, "regex_extractor")))
        warn(r, &p, "type", "%s is not read yet: print JSON lines with \"penstock\":\"metrics\", or write evaluation-metrics.txt", type);
    free(type);
}

static json_t *read_env(reader *r, const place *own)
{
    char what[64];
    const json_t *v = get_mapping(r, own, "env");
    if (!v)
        return NULL;
    place p = {v, "penstock.env"};
    json_t *env = json_object();
    if (json_object_size(v) > ENV_MAX)
        wrong(r, own, "env", "has %zu variables, at most %d are allowed", json_object_size(v), ENV_MAX);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        bool good = isalpha((unsigned char)*key) || *key == '_';
        for (const char *s = key; *s; s++)
            good = good && (isalnum((unsigned char)*s) || *s == '_');
        char *t = json_is_null(value) ? pst_strdup("") : scalar_text(value);
        if (!good)
            wrong(r, &p, key, "is not a name for an environment variable (letters, digits and '_')");
        else if (!t)
            wrong(r, &p, key, "must be text, found %s", found(value, what));
        else
            json_object_set_new(env, key, json_string(t));
        free(t);
    }
    return env;
}

/* The one key of our own. */
static void read_penstock(reader *r, const place *top, pst_manifest *m)
{
    place own = {get_mapping(r, top, "penstock"), "penstock"};
    m->grace_us = GRACE_DEFAULT_US;
    if (own.obj) {
        WARN_UNKNOWN(r, &own, "queue", "priority", "deadline", "retries", "grace", "roles", "gpu_preference", "env", "model", "learner",
                     "site");
        m->queue = get_word(r, &own, "queue", 64);
        m->priority = (int)get_int(r, &own, "priority", -PRIORITY_MAX, PRIORITY_MAX, 0);
        m->deadline_us = get_span(r, &own, "deadline", 1, (int64_t)366 * 86400 * 1000000, 0);
        m->retries = (int)get_int(r, &own, "retries", 0, RETRIES_MAX, 0);
        m->grace_us = get_span(r, &own, "grace", 0, (int64_t)86400 * 1000000, GRACE_DEFAULT_US);
        m->site = get_word(r, &own, "site", 64);
        m->env = read_env(r, &own);
        place roles = {get_mapping(r, &own, "roles"), "penstock.roles"};
        if (roles.obj) {
            WARN_UNKNOWN(r, &roles, "ps");
            m->parameter_servers = (int)get_int(r, &roles, "ps", 0, LEARNERS_MAX, 0);
        }
        place model = {get_mapping(r, &own, "model"), "penstock.model"};
        if (model.obj) {
            WARN_UNKNOWN(r, &model, "name", "alias");
            m->model_name = get_word(r, &model, "name", 128);
            m->model_alias = get_word(r, &model, "alias", 64);
            if (m->model_alias && !value_of(&model, "name"))
                wrong(r, &model, "name", "is missing: an alias needs the model's name");
        }
        const json_t *learner = get_mapping(r, &own, "learner");
        m->learner = learner ? json_deep_copy(learner) : NULL;
        if (m->learner && !m->native)
            warn(r, &own, "learner", "is for framework.name native only and is ignored");
        if (value_of(&own, "gpu_preference"))
            warn(r, &own, "gpu_preference", "is kept, but does not choose among GPUs yet");
    }
    if (!m->queue)
        m->queue = pst_strdup("default");
    if (!m->site)
        m->site = pst_strdup("local");
}

static void read_top(reader *r, const place *top, pst_manifest *m)
{
    WARN_UNKNOWN(r, top, "name", "description", "version", "cpus", "gpus", "gpu_type", "learners", "memory", "storage", "data_stores",
                 "framework", "evaluation_metrics", "penstock");
    size_t before = r->errors->n;
    m->name = get_text(r, top, "name", NAME_MAX_BYTES, true);
    if ((!m->name || !*m->name) && r->errors->n == before)
        wrong(r, top, "name", "is missing: what you call this job");
    m->description = get_text(r, top, "description", 4096, false);
    m->version = get_text(r, top, "version", NAME_MAX_BYTES, true);
    read_framework(r, top, m); /* before the rest: native decides what is missing */
    read_resources(r, top, m);
    read_stores(r, top, m);
    read_metrics(r, top, m);
    read_penstock(r, top, m);
}

int pst_manifest_parse(const char *yaml, size_t len, pst_manifest *ret_manifest, pst_complaints *errors, pst_complaints *warnings)
{
    pst_err err = {0};
    pst_yaml y = {0};
    *ret_manifest = (pst_manifest){0};
    size_t before = errors->n;
    if (len > MANIFEST_BYTES_MAX) {
        pst_complain(errors, "manifest", 0, "is %zu bytes long, at most %d are allowed", len, MANIFEST_BYTES_MAX);
        return PST_EINVAL;
    }
    if (pst_yaml_parse(yaml, len, "manifest", &y, &err) < 0) {
        pst_complain(errors, "manifest", 0, "%s", err.text);
        return PST_EINVAL;
    }
    if (json_is_object(y.root)) {
        reader r = {&y, errors, warnings};
        place top = {y.root, ""};
        read_top(&r, &top, ret_manifest);
        ret_manifest->raw = json_incref(y.root);
    } else {
        pst_complain(errors, "manifest", 0, "%s", json_is_null(y.root) ? "is empty" : "must be a mapping: name, framework, learners, …");
    }
    pst_yaml_done(&y);
    return errors->n == before ? 0 : PST_EINVAL;
}

void pst_manifest_done(pst_manifest *m)
{
    if (!m)
        return;
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
    char *texts[] = {m->name,    m->description, m->version,    m->user,        m->gpu_type, m->framework, m->framework_version,
                     m->command, m->queue,       m->model_name, m->model_alias, m->site};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    json_decref(m->evaluation_metrics);
    json_decref(m->env);
    json_decref(m->learner);
    json_decref(m->raw);
    *m = (pst_manifest){0};
}
