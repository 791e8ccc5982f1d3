/* queue_spec.c - reading and writing queues. A file is cut at its lines `---`; each document is parsed behind as many empty lines as stand before it,
 * so that complaints name lines of the file. Limits that are left out are no limits, and 0 is one: a queue with gpus: 0 has no GPUs. */
#include "schemas/queue_spec.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/yaml.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_MIN 0.001
#define WEIGHT_MAX 1e6
#define CPUS_MAX   1e9
enum { GPUS_MAX = 1000000000, RUNNING_MAX = 1000000 };
#define MEMORY_MAX ((int64_t)1 << 60)

/* ---- one document -------------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const pst_yaml *y;
    pst_err *err;
    bool failed; /* the first complaint is told */
} reader;

static void wrong(reader *r, const json_t *obj, const char *field, const char *key, const char *wanted)
{
    if (r->failed)
        return;
    const json_t *v = json_object_get(obj, key);
    char *found = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    int line = v ? pst_yaml_key_line(r->y, obj, key) : pst_yaml_line(r->y, obj);
    pst_err_set(r->err, PST_EINVAL, PST_CLASS_DATA, "queue", 0, "%s:%d: %s: %s, found %.60s", r->y->file, line, field, wanted,
                found ? found : "nothing");
    free(found);
    r->failed = true;
}

static bool is_given(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v);
}

static double number(reader *r, const json_t *obj, const char *field, const char *key, double lo, double hi, const char *wanted)
{
    const json_t *v = json_object_get(obj, key);
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= lo && x <= hi))
        wrong(r, obj, field, key, wanted);
    return x;
}

static int whole(reader *r, const json_t *obj, const char *field, const char *key, int hi)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > hi)
        wrong(r, obj, field, key, "must be a whole number, 0 or more");
    return (int)json_integer_value(v);
}

static int64_t memory(reader *r, const json_t *obj)
{
    const json_t *v = json_object_get(obj, "memory");
    int64_t bytes = -1;
    if (json_is_integer(v))
        bytes = json_integer_value(v);
    else if (json_is_string(v) && pst_bytes_parse(json_string_value(v), &bytes) < 0)
        bytes = -1;
    if (bytes < 0 || bytes > MEMORY_MAX)
        wrong(r, obj, "quota.memory", "memory", "must be a number and a unit, such as 64GiB, or bytes");
    return bytes;
}

static bool fit_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n && n <= PST_QUEUE_NAME_MAX && !name[n] && !strchr("._-", name[0]);
}

static void read_name(reader *r, const json_t *obj, pst_queue_spec *q)
{
    const json_t *v = json_object_get(obj, "name");
    char *name = json_is_integer(v) ? pst_sprintf("%lld", (long long)json_integer_value(v)) : pst_strdup(json_string_value(v));
    q->name = name ? name : pst_strdup("");
    if (!fit_name(q->name))
        wrong(r, obj, "name", "name", "must be letters, digits, . _ - (64 at most, a letter or digit first)");
}

static void read_quota(reader *r, const json_t *top, pst_queue_spec *q)
{
    static const char *const known[] = {"cpus", "memory", "gpus"};
    const json_t *obj = json_object_get(top, "quota");
    if (!obj || json_is_null(obj))
        return;
    if (!json_is_object(obj)) {
        wrong(r, top, "quota", "quota", "must be a mapping, such as {cpus: 16, memory: 64GiB, gpus: 2}");
        return;
    }
    if (!r->failed && pst_yaml_check_keys(r->y, obj, "quota", known, 3, r->err) < 0)
        r->failed = true;
    q->quota.has_cpus = is_given(obj, "cpus");
    q->quota.has_memory = is_given(obj, "memory");
    q->quota.has_gpus = is_given(obj, "gpus");
    if (q->quota.has_cpus)
        q->quota.cpus = number(r, obj, "quota.cpus", "cpus", 0, CPUS_MAX, "must be a number, 0 or more");
    if (q->quota.has_memory)
        q->quota.memory = memory(r, obj);
    if (q->quota.has_gpus)
        q->quota.gpus = whole(r, obj, "quota.gpus", "gpus", GPUS_MAX);
}

static int read_spec(const pst_yaml *y, pst_queue_spec *q, pst_err *err)
{
    static const char *const known[] = {"name", "weight", "quota", "max_running_per_user", "preempts", "actor", "time"};
    reader r = {.y = y, .err = err};
    const json_t *obj = y->root;
    *q = (pst_queue_spec){.weight = 1};
    if (!json_is_object(obj))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "queue", 0,
                           "%s:%d: a queue is a mapping: name, weight, quota, max_running_per_user, preempts", y->file,
                           pst_yaml_line(y, obj));
    r.failed = pst_yaml_check_keys(y, obj, "", known, sizeof known / sizeof *known, err) < 0;
    read_name(&r, obj, q);
    if (is_given(obj, "weight"))
        q->weight = number(&r, obj, "weight", "weight", WEIGHT_MIN, WEIGHT_MAX, "must be a number from 0.001 to 1000000");
    read_quota(&r, obj, q);
    q->has_max_running_per_user = is_given(obj, "max_running_per_user");
    if (q->has_max_running_per_user)
        q->max_running_per_user = whole(&r, obj, "max_running_per_user", "max_running_per_user", RUNNING_MAX);
    if (is_given(obj, "preempts") && !json_is_boolean(json_object_get(obj, "preempts")))
        wrong(&r, obj, "preempts", "preempts", "must be true or false");
    q->preempts = json_is_true(json_object_get(obj, "preempts"));
    const char *actor = json_string_value(json_object_get(obj, "actor"));
    q->actor = pst_strdup(actor ? actor : "");
    q->time = json_integer_value(json_object_get(obj, "time"));
    return r.failed ? PST_EINVAL : 0;
}

/* ---- documents ------------------------------------------------------------------------------------------------------------------- */

static bool is_cut(const char *line, size_t len)
{
    return len >= 3 && !strncmp(line, "---", 3) && (len == 3 || strchr(" \t\r", line[3]));
}

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '#')
            while (i < len && text[i] != '\n')
                i++;
        else if (!strchr(" \t\r\n", text[i]))
            return false;
    }
    return true;
}

/* lines: how many stand before it in the file. */
static int take_document(const char *text, size_t len, int lines, const char *file, pst_queue_spec **specs, size_t *n, pst_err *err)
{
    if (is_blank(text, len))
        return 0;
    pst_buf b = {0};
    pst_yaml y = {0};
    for (int i = 0; i < lines; i++)
        pst_buf_add(&b, "\n", 1);
    pst_buf_add(&b, text, len);
    int rc = pst_yaml_parse(b.data, b.len, file, &y, err);
    pst_buf_done(&b);
    if (rc < 0)
        return rc;
    *specs = pst_array_one_more(*specs, *n, sizeof **specs);
    pst_queue_spec *q = &(*specs)[(*n)++];
    rc = read_spec(&y, q, err);
    for (size_t i = 0; !rc && i + 1 < *n; i++)
        if (!strcmp((*specs)[i].name, q->name))
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "queue", 0, "%s:%d: queue %s stands in the file twice", file,
                             pst_yaml_key_line(&y, y.root, "name"), q->name);
    if (!rc && *n > PST_QUEUES_MAX)
        rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "queue", 0, "%s: more than %d queues", file, PST_QUEUES_MAX);
    pst_yaml_done(&y);
    return rc;
}

int pst_queue_specs_parse(const char *text, size_t len, const char *file, pst_queue_spec **ret_specs, size_t *ret_n, pst_err *err)
{
    pst_queue_spec *specs = NULL;
    size_t n = 0, from = 0, at = 0;
    int line = 0, from_line = 0, rc = 0;
    while (at < len && !rc) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t next = end ? (size_t)(end - text) + 1 : len;
        if (is_cut(text + at, (end ? (size_t)(end - text) : len) - at)) {
            rc = take_document(text + from, at - from, from_line, file, &specs, &n, err);
            from = at + 3;
            from_line = line;
        }
        at = next;
        line++;
    }
    if (!rc)
        rc = take_document(text + from, len - from, from_line, file, &specs, &n, err);
    if (!rc && !n)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "queue", 0, "%s: no queue stands in it: name, weight, quota, …", file);
    if (rc < 0) {
        pst_queue_specs_free(specs, n);
        return rc;
    }
    *ret_specs = specs;
    *ret_n = n;
    return 0;
}

void pst_queue_specs_free(pst_queue_spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pst_event_clear(&pst_queue_spec_type, &specs[i]);
    free(specs);
}

int pst_queue_spec_check(const pst_queue_spec *q, pst_err *err)
{
    const char *bad = NULL;
    if (!q->name || !fit_name(q->name))
        bad = "its name must be letters, digits, . _ - (64 at most, a letter or digit first)";
    else if (!(q->weight >= WEIGHT_MIN && q->weight <= WEIGHT_MAX))
        bad = "weight must be from 0.001 to 1000000";
    else if ((q->quota.has_cpus && !(q->quota.cpus >= 0 && q->quota.cpus <= CPUS_MAX)) ||
             (q->quota.has_memory && (q->quota.memory < 0 || q->quota.memory > MEMORY_MAX)) ||
             (q->quota.has_gpus && (q->quota.gpus < 0 || q->quota.gpus > GPUS_MAX)))
        bad = "a quota is out of range";
    else if (q->has_max_running_per_user && (q->max_running_per_user < 0 || q->max_running_per_user > RUNNING_MAX))
        bad = "max_running_per_user is out of range";
    return bad ? pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "queue", 0, "queue %.100s: %s", q->name ? q->name : "", bad) : 0;
}

/* ---- writing --------------------------------------------------------------------------------------------------------------------- */

json_t *pst_queue_spec_json(const pst_queue_spec *q)
{
    json_t *cpus = q->quota.has_cpus ? json_real(q->quota.cpus) : json_null();
    json_t *bytes = q->quota.has_memory ? json_integer(q->quota.memory) : json_null();
    json_t *gpus = q->quota.has_gpus ? json_integer(q->quota.gpus) : json_null();
    json_t *most = q->has_max_running_per_user ? json_integer(q->max_running_per_user) : json_null();
    if (q->quota.has_cpus && q->quota.cpus == floor(q->quota.cpus) && q->quota.cpus <= CPUS_MAX) {
        json_decref(cpus);
        cpus = json_integer((json_int_t)q->quota.cpus);
    }
    json_t *weight = q->weight == floor(q->weight) ? json_integer((json_int_t)q->weight) : json_real(q->weight);
    return json_pack("{s:s, s:o, s:{s:o, s:o, s:o}, s:o, s:b, s:s, s:I}", "name", q->name, "weight", weight, "quota", "cpus", cpus,
                     "memory", bytes, "gpus", gpus, "max_running_per_user", most, "preempts", (int)q->preempts, "actor",
                     q->actor ? q->actor : "", "time", (json_int_t)q->time);
}

char *pst_queue_spec_yaml(const pst_queue_spec *q)
{
    pst_buf b = {0};
    pst_buf_printf(&b, "name: %s\nweight: %.12g\n", q->name, q->weight);
    if (q->quota.has_cpus || q->quota.has_memory || q->quota.has_gpus) {
        pst_buf_printf(&b, "quota:\n");
        if (q->quota.has_cpus)
            pst_buf_printf(&b, "  cpus: %.12g\n", q->quota.cpus);
        if (q->quota.has_memory)
            pst_buf_printf(&b, "  memory: %lld\n", (long long)q->quota.memory);
        if (q->quota.has_gpus)
            pst_buf_printf(&b, "  gpus: %d\n", (int)q->quota.gpus);
    }
    if (q->has_max_running_per_user)
        pst_buf_printf(&b, "max_running_per_user: %d\n", (int)q->max_running_per_user);
    pst_buf_printf(&b, "preempts: %s\n", q->preempts ? "true" : "false");
    return pst_buf_steal(&b);
}

pst_queue_spec pst_queue_spec_default(void)
{
    return (pst_queue_spec){.name = pst_strdup(PST_QUEUE_DEFAULT), .weight = 1, .actor = pst_strdup("")};
}

/* ---- use ------------------------------------------------------------------------------------------------------------------------- */

typedef struct needs {
    double cpus;
    int64_t memory, gpus;
} needs;

/* Of all its processes, as the Trainer charges them. */
static needs needs_of(const pst_job_state *s)
{
    needs all = {s->learners * s->cpus, s->learners * s->memory_bytes, (int64_t)s->learners * s->gpus};
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(s->manifest, strlen(s->manifest), &m, &errors, &warnings);
    if (m.n_roles)
        all = (needs){0};
    for (size_t i = 0; i < m.n_roles; i++) {
        all.cpus += m.roles[i].count * m.roles[i].cpus;
        all.memory += m.roles[i].count * m.roles[i].memory_bytes;
        all.gpus += (int64_t)m.roles[i].count * m.roles[i].gpus;
    }
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return all;
}

void pst_queue_use_add(pst_queue_use *use, const char *queue, const char *user, const pst_job_state *s)
{
    if (strcmp(s->queue, queue))
        return;
    bool barred = s->held_by || s->n_after;
    if (s->state == PST_JOB_PUBLIC_STATE_QUEUED) {
        use->waiting++;
        use->held += barred;
    }
    if (!pst_job_state_is_live(s->state) || s->array) /* an array's tasks are jobs of their own */
        return;
    use->running++;
    use->users_running += user && !strcmp(user, s->user);
    needs n = needs_of(s);
    use->cpus += n.cpus;
    use->memory += n.memory;
    use->gpus += n.gpus;
}

bool pst_queue_before(const pst_job_state *j, const pst_job_state *k)
{
    bool j_barred = j->held_by || j->n_after, k_barred = k->held_by || k->n_after;
    if (j_barred != k_barred)
        return k_barred;
    if (j->priority != k->priority)
        return j->priority > k->priority;
    if (j->submitted_at != k->submitted_at)
        return j->submitted_at < k->submitted_at;
    return strcmp(j->training_id, k->training_id) < 0;
}

char *pst_queue_lacks(const pst_queue_spec *q, const pst_queue_use *use, const pst_job_state *s)
{
    const double gib = (double)((int64_t)1 << 30), slack = 1e-6;
    const needs n = needs_of(s);
    pst_buf b = {0};
    if (q->quota.has_cpus && n.cpus > 0 && use->cpus + n.cpus > q->quota.cpus + slack)
        pst_buf_printf(&b, "%.6g of its quota of %.6g CPUs in use and the job needs %.6g", use->cpus, q->quota.cpus, n.cpus);
    if (q->quota.has_memory && n.memory > 0 && use->memory + n.memory > q->quota.memory)
        pst_buf_printf(&b, "%s%.4g of its quota of %.4g GiB of memory in use and the job needs %.4g", b.len ? ", " : "",
                       (double)use->memory / gib, (double)q->quota.memory / gib, (double)n.memory / gib);
    if (q->quota.has_gpus && n.gpus > 0 && use->gpus + n.gpus > q->quota.gpus)
        pst_buf_printf(&b, "%s%lld of its quota of %d GPUs in use and the job needs %lld", b.len ? ", " : "", (long long)use->gpus,
                       (int)q->quota.gpus, (long long)n.gpus);
    if (q->has_max_running_per_user && use->users_running >= q->max_running_per_user)
        pst_buf_printf(&b, "%s%d of %d jobs running that it allows user %.100s", b.len ? ", and " : "", use->users_running,
                       (int)q->max_running_per_user, s->user);
    if (!b.len)
        return NULL;
    char *text = pst_sprintf("queue %s has %s", q->name, b.data);
    pst_buf_done(&b);
    return text;
}
