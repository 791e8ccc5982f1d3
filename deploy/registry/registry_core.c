/* registry_core.c - the requests that only ask, and what reading and writing ones share: bodies, versions, compatibility. The answers, their numbers
 * and their wording are Confluent's, because its clients act on them (40403 makes a serializer register, 409 makes it give up). Nothing here does
 * I/O or reads a clock, so all of it is tested by vectors. Changing is in registry_write.c. */
#include "deploy/registry/registry_core_priv.h"

#include "deploy/registry/registry_canon.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SUBJECT_MAX 1024

/* ---- replies --------------------------------------------------------------------------------------------------------------- */

static json_t *text_value(const char *text)
{
    json_t *j = json_string(text);
    return j ? j : json_string("(text that is not UTF-8)");
}

void rcore_reply_error(rcore_reply *r, int status, int code, const char *fmt, ...)
{
    pst_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&b, fmt, ap);
    va_end(ap);
    json_decref(r->body);
    r->status = status;
    r->error_code = code;
    r->body = json_object();
    json_object_set_new(r->body, "error_code", json_integer(code));
    json_object_set_new(r->body, "message", text_value(b.data));
    pst_buf_done(&b);
}

void rcore_reply_done(rcore_reply *r)
{
    json_decref(r->body);
    free(r->text);
    for (size_t i = 0; i < r->n_writes; i++) {
        free(r->writes[i].key);
        free(r->writes[i].value);
    }
    free(r->writes);
    *r = (rcore_reply){0};
}

void rcore_no_subject(rcore_reply *r, const char *subject)
{
    rcore_reply_error(r, 404, 40401, "Subject '%s' not found.", subject);
}

void rcore_no_version(rcore_reply *r, int version)
{
    rcore_reply_error(r, 404, 40402, "Version %d not found.", version);
}

int rcore_version_number(const char *text, rcore_reply *r)
{
    if (!strcmp(text, "latest") || !strcmp(text, "-1"))
        return 0;
    size_t n = strlen(text);
    long v = n && n <= 10 && strspn(text, "0123456789") == n ? atol(text) : 0;
    if (v >= 1 && v <= INT32_MAX)
        return (int)v;
    rcore_reply_error(
        r, 422, 42202,
        "The specified version '%s' is not a valid version id. Allowed values are between [1, 2^31-1] and the string \"latest\"", text);
    return -1;
}

/* ---- bodies ---------------------------------------------------------------------------------------------------------------- */

bool rcore_body(const rcore_request *q, json_t **ret_body, rcore_reply *r)
{
    pst_err err = {0};
    json_t *j = NULL;
    if (pst_json_parse(q->body ? q->body : "", q->body_len, "the request's body", &j, &err) < 0 || !json_is_object(j)) {
        rcore_reply_error(r, 400, 400, "%s", err.code ? err.text : "the request's body is not a JSON object");
        json_decref(j);
        return false;
    }
    *ret_body = j;
    return true;
}

void rcore_candidate_done(candidate *c)
{
    json_decref(c->body);
    pst_schema_free(c->avro);
    free(c->canon);
    *c = (candidate){0};
}

/* False: r says why, and nothing is left in *ret. c.text and c.body's other values are borrowed from the body, which is why a candidate keeps it. */
bool rcore_candidate(const rcore_request *q, candidate *ret, rcore_reply *r)
{
    pst_err err = {0};
    candidate c = {0};
    if (!rcore_body(q, &c.body, r))
        return false;
    const char *type = pst_json_str(c.body, "schemaType", "AVRO");
    c.text = pst_json_str(c.body, "schema", NULL);
    c.id = pst_json_int(c.body, "id", -1);
    c.version = pst_json_int(c.body, "version", -1);
    size_t len = c.text ? strlen(c.text) : 0;
    if (strcmp(type, "AVRO"))
        rcore_reply_error(r, 422, 42201, "Invalid schema type %s: this registry keeps AVRO schemas only", type);
    else if (json_array_size(json_object_get(c.body, "references")))
        rcore_reply_error(r, 422, 42201,
                          "Invalid schema: references to other subjects are not taken here; write the referenced types out in the schema");
    else if (!len)
        rcore_reply_error(r, 422, 42201, "Empty schema: the body must be {\"schema\": \"<Avro schema as a JSON string>\"}");
    else if (len > PST_AVRO_SCHEMA_MAX)
        rcore_reply_error(r, 422, 42209, "Schema too large: %zu bytes, at most %d", len, PST_AVRO_SCHEMA_MAX);
    else if (pst_schema_parse(c.text, len, &c.avro, &err) < 0)
        rcore_reply_error(r, 422, 42201, "Invalid schema, details: %s", err.text);
    else
        c.canon = registry_canon(c.text, len);
    if (c.canon) {
        *ret = c;
        return true;
    }
    if (c.avro) /* it parsed: only its canonical form could not be made */
        rcore_reply_error(r, 422, 42201, "Invalid schema: nested too deeply");
    rcore_candidate_done(&c);
    return false;
}

rversion *rcore_find_equal(const rsubject *s, const char *canon, bool deleted)
{
    for (size_t i = s ? s->n : 0; i > 0; i--) {
        rversion *v = &s->versions[i - 1];
        if ((deleted || !v->deleted) && !strcmp(v->schema->canon, canon))
            return v;
    }
    return NULL;
}

/* ---- compatibility --------------------------------------------------------------------------------------------------------- */

static void add_lines(json_t *messages, const pst_buf *lines, const char *direction, int version)
{
    for (const char *p = lines->data; p && *p;) {
        size_t len = strcspn(p, "\n");
        if (len) {
            char *text = pst_sprintf("%s version %d: %.*s", direction, version, (int)len, p);
            json_array_append_new(messages, text_value(text));
            free(text);
        }
        p += len + (p[len] == '\n');
    }
}

static bool can_read(const pst_schema *reader, const pst_schema *writer, const char *direction, int version, json_t *messages)
{
    pst_buf why = {0};
    bool yes = pst_schema_can_read(reader, writer, &why) == 1;
    if (!yes && !why.len)
        pst_buf_adds(&why, "the schemas do not resolve");
    if (!yes)
        add_lines(messages, &why, direction, version);
    pst_buf_done(&why);
    return yes;
}

static bool compatible_with(const char *level, const rversion *v, const candidate *c, json_t *messages)
{
    const pst_schema *old = rschema_avro(v->schema);
    bool both = !strncmp(level, "FULL", 4), ok = true;
    if (!old) {
        char *text = pst_sprintf("version %d is a %s schema that this registry cannot compare", v->version, v->schema->type);
        json_array_append_new(messages, text_value(text));
        free(text);
        return false;
    }
    if (both || !strncmp(level, "BACKWARD", 8))
        ok = can_read(c->avro, old, "the new schema cannot read data of", v->version, messages);
    if (both || !strncmp(level, "FORWARD", 7))
        ok = can_read(old, c->avro, "data of the new schema cannot be read by", v->version, messages) && ok;
    return ok;
}

bool rcore_compatible(const rstate *s, const rsubject *subject, const rversion *against, const candidate *c, json_t *messages)
{
    const char *level = rstate_level(s, subject);
    if (!strcmp(level, "NONE") || !subject)
        return true;
    bool ok = true, all = !against && strstr(level, "TRANSITIVE");
    if (!all && !against)
        against = rsubject_latest(subject, false);
    if (against)
        ok = compatible_with(level, against, c, messages);
    for (size_t i = subject->n; all && i > 0; i--)
        if (!subject->versions[i - 1].deleted)
            ok = compatible_with(level, &subject->versions[i - 1], c, messages) && ok;
    if (!ok) {
        char *text = pst_sprintf("compatibility level: %s", level);
        json_array_append_new(messages, text_value(text));
        free(text);
    }
    return ok;
}

static void get_compatible(rcore *c, const rcore_request *q, rcore_reply *r)
{
    candidate cand = {0};
    rsubject *s = rstate_subject(&c->state, q->subject);
    int number = q->version ? rcore_version_number(q->version, r) : 0;
    if (number < 0 || !rcore_candidate(q, &cand, r))
        return;
    rversion *against = NULL; /* all */
    if (q->version)
        against = number ? rsubject_version(s, number) : rsubject_latest(s, false);
    json_t *messages = json_array();
    if (number && !rsubject_count(s, false)) {
        rcore_no_subject(r, q->subject);
    } else if (number && (!against || against->deleted)) {
        rcore_no_version(r, number);
    } else {
        r->body = json_object();
        json_object_set_new(r->body, "is_compatible", json_boolean(rcore_compatible(&c->state, s, against, &cand, messages)));
        if (q->verbose)
            json_object_set(r->body, "messages", messages);
    }
    json_decref(messages);
    rcore_candidate_done(&cand);
}

/* ---- subjects and versions ------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(rsubject *const *)a)->name, (*(rsubject *const *)b)->name);
}

/* Subjects in order of name that a listing shows; *ret_list is the caller's. */
static size_t listed(const rcore *c, const rcore_request *q, rsubject ***ret_list)
{
    const char *prefix = q->prefix && strcmp(q->prefix, ":*:") ? registry_subject_plain(q->prefix) : "";
    rsubject **list = pst_alloc((c->state.subjects.n + 1) * sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < c->state.subjects.n; i++) {
        rsubject *s = c->state.subjects.at[i].key ? c->state.subjects.at[i].value : NULL;
        if (!s || strncmp(s->name, prefix, strlen(prefix)))
            continue;
        size_t live = rsubject_count(s, false), all = rsubject_count(s, true);
        bool shown = q->deleted ? all : live;
        if (q->deleted_only)
            shown = all && !live;
        if (shown)
            list[n++] = s;
    }
    qsort(list, n, sizeof *list, by_name);
    *ret_list = list;
    return n;
}

static bool in_window(const rcore_request *q, size_t i)
{
    return (int64_t)i >= q->offset && (q->limit < 0 || (int64_t)i < q->offset + q->limit);
}

static void get_subjects(rcore *c, const rcore_request *q, rcore_reply *r)
{
    rsubject **list;
    size_t n = listed(c, q, &list);
    r->body = json_array();
    for (size_t i = 0; i < n; i++)
        if (in_window(q, i))
            json_array_append_new(r->body, text_value(list[i]->name));
    free(list);
}

static json_t *version_json(const rsubject *s, const rversion *v)
{
    json_t *j = json_object();
    json_object_set_new(j, "subject", text_value(s->name));
    json_object_set_new(j, "version", json_integer(v->version));
    json_object_set_new(j, "id", json_integer(v->schema->id));
    if (strcmp(v->schema->type, "AVRO"))
        json_object_set_new(j, "schemaType", text_value(v->schema->type));
    if (v->schema->references)
        json_object_set(j, "references", v->schema->references);
    json_object_set_new(j, "schema", text_value(v->schema->text));
    if (v->deleted)
        json_object_set_new(j, "deleted", json_true());
    return j;
}

static void get_schemas(rcore *c, const rcore_request *q, rcore_reply *r)
{
    rsubject **list;
    size_t n = listed(c, q, &list), shown = 0;
    r->body = json_array();
    for (size_t i = 0; i < n; i++) {
        const rversion *latest = rsubject_latest(list[i], q->deleted);
        for (size_t k = 0; k < list[i]->n; k++) {
            const rversion *v = &list[i]->versions[k];
            if ((v->deleted && !q->deleted) || (q->latest_only && v != latest))
                continue;
            if (in_window(q, shown++))
                json_array_append_new(r->body, version_json(list[i], v));
        }
    }
    free(list);
}

static void get_versions(rcore *c, const rcore_request *q, rcore_reply *r)
{
    rsubject *s = rstate_subject(&c->state, q->subject);
    bool with_deleted = q->deleted || q->deleted_only;
    if (!rsubject_count(s, with_deleted)) {
        rcore_no_subject(r, q->subject);
        return;
    }
    r->body = json_array();
    for (size_t i = 0; i < s->n; i++)
        if (q->deleted_only ? s->versions[i].deleted : q->deleted || !s->versions[i].deleted)
            json_array_append_new(r->body, json_integer(s->versions[i].version));
}

/* The version that the path names, or NULL and the reply says why not. */
static rversion *named_version(rcore *c, const rcore_request *q, rsubject **ret_subject, rcore_reply *r)
{
    rsubject *s = *ret_subject = rstate_subject(&c->state, q->subject);
    int number = rcore_version_number(q->version ? q->version : "latest", r);
    if (number < 0)
        return NULL;
    if (!rsubject_count(s, q->deleted)) {
        rcore_no_subject(r, q->subject);
        return NULL;
    }
    rversion *v = number ? rsubject_version(s, number) : rsubject_latest(s, q->deleted);
    if (!v || (v->deleted && !q->deleted)) {
        rcore_no_version(r, number);
        return NULL;
    }
    return v;
}

static void get_version(rcore *c, const rcore_request *q, rcore_reply *r)
{
    rsubject *s;
    rversion *v = named_version(c, q, &s, r);
    if (!v)
        return;
    if (q->op == PST_ROP_VERSION_TEXT)
        r->text = pst_strdup(v->schema->text);
    else if (q->op == PST_ROP_REFERENCED)
        r->body = json_array(); /* nothing refers to anything: references are not taken */
    else
        r->body = version_json(s, v);
}

static void lookup(rcore *c, const rcore_request *q, rcore_reply *r)
{
    rsubject *s = rstate_subject(&c->state, q->subject);
    candidate cand = {0};
    if (!rsubject_count(s, q->deleted)) {
        rcore_no_subject(r, q->subject);
        return;
    }
    if (!rcore_candidate(q, &cand, r))
        return;
    rversion *v = rcore_find_equal(s, cand.canon, q->deleted);
    if (v)
        r->body = version_json(s, v);
    else
        rcore_reply_error(r, 404, 40403, "Schema not found in subject '%s'", q->subject);
    rcore_candidate_done(&cand);
}

/* ---- ids ------------------------------------------------------------------------------------------------------------------- */

static json_t *users_of(const rcore *c, const rcontext *context, const rschema *schema, bool versions, bool deleted)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->state.subjects.n; i++) {
        const rsubject *s = c->state.subjects.at[i].key ? c->state.subjects.at[i].value : NULL;
        bool named = false;
        for (size_t k = 0; s && s->context == context && k < s->n; k++) {
            const rversion *v = &s->versions[k];
            if (v->schema != schema || (v->deleted && !deleted))
                continue;
            if (versions) {
                json_t *j = json_object();
                json_object_set_new(j, "subject", text_value(s->name));
                json_object_set_new(j, "version", json_integer(v->version));
                json_array_append_new(list, j);
            } else if (!named) {
                json_array_append_new(list, text_value(s->name));
            }
            named = true;
        }
    }
    return list;
}

static void get_id(rcore *c, const rcore_request *q, rcore_reply *r)
{
    const rcontext *context = rstate_context(&c->state, q->query_subject ? q->query_subject : "");
    size_t n = strlen(q->id);
    long id = n && n <= 10 && strspn(q->id, "0123456789") == n ? atol(q->id) : -1;
    const rschema *s = context && id >= 0 && id <= INT32_MAX ? rcontext_by_id(context, (int32_t)id) : NULL;
    if (!s) {
        rcore_reply_error(r, 404, 40403, "Schema %s not found", q->id);
    } else if (q->op == PST_ROP_ID_TEXT) {
        r->text = pst_strdup(s->text);
    } else if (q->op == PST_ROP_ID) {
        r->body = json_object();
        if (strcmp(s->type, "AVRO"))
            json_object_set_new(r->body, "schemaType", text_value(s->type));
        json_object_set_new(r->body, "schema", text_value(s->text));
        if (s->references)
            json_object_set(r->body, "references", s->references);
        if (q->max_id)
            json_object_set_new(r->body, "maxId", json_integer(context->id_max));
    } else {
        r->body = users_of(c, context, s, q->op == PST_ROP_ID_VERSIONS, q->deleted);
    }
}

/* ---- levels and modes ------------------------------------------------------------------------------------------------------ */

static void get_word(rcore *c, const rcore_request *q, rcore_reply *r)
{
    bool config = q->op == PST_ROP_CONFIG_GET;
    const rsubject *s = q->subject ? rstate_subject(&c->state, q->subject) : NULL;
    const char *own = NULL;
    if (s)
        own = config ? s->level : s->mode;
    if (q->subject && !own && !q->default_to_global) {
        rcore_reply_error(r, 404, config ? 40408 : 40409, "Subject '%s' does not have subject-level %s configured", q->subject,
                          config ? "compatibility" : "mode");
        return;
    }
    const char *word = own;
    if (!own)
        word = config ? rstate_level(&c->state, NULL) : rstate_mode(&c->state, NULL);
    r->body = json_object();
    json_object_set_new(r->body, config ? "compatibilityLevel" : "mode",
                        text_value(word)); /* GET says compatibilityLevel, PUT compatibility */
}

static void get_contexts(rcore *c, rcore_reply *r)
{
    r->body = json_array();
    json_array_append_new(r->body, json_string("."));
    for (size_t i = 0; i < c->state.contexts.n; i++) {
        const rcontext *x = c->state.contexts.at[i].key ? c->state.contexts.at[i].value : NULL;
        if (x && strcmp(x->name, ".") && x->by_id.live)
            json_array_append_new(r->body, text_value(x->name));
    }
}

/* ---- the door -------------------------------------------------------------------------------------------------------------- */

static bool subject_ok(const char *s, rcore_reply *r)
{
    size_t n = strlen(s);
    bool ok = n > 0 && n <= SUBJECT_MAX && strcmp(s, "__GLOBAL") && strcmp(s, "__EMPTY");
    for (size_t i = 0; i < n; i++)
        ok &= (unsigned char)s[i] >= 0x20 && s[i] != 0x7f;
    json_t *utf8 = ok ? json_string(s) : NULL;
    if (!utf8)
        rcore_reply_error(r, 422, 42208, "The specified subject is not valid: it must be 1 to %d bytes of UTF-8 without control characters",
                          SUBJECT_MAX);
    json_decref(utf8);
    return utf8 != NULL;
}

/* Every operation fills in body or text, also when it refuses; only writing ones add records. */
void rcore_handle(rcore *c, const rcore_request *request, rcore_reply *ret_reply)
{
    const rcore_request *q = request;
    rcore_reply *r = ret_reply;
    *r = (rcore_reply){.status = 200};
    if (q->subject && !subject_ok(q->subject, r))
        return;
    switch (q->op) {
    case PST_ROP_SUBJECTS: get_subjects(c, q, r); break;
    case PST_ROP_VERSIONS: get_versions(c, q, r); break;
    case PST_ROP_VERSION:
    case PST_ROP_VERSION_TEXT:
    case PST_ROP_REFERENCED:
    case PST_ROP_METADATA: get_version(c, q, r); break;
    case PST_ROP_REGISTER: rcore_register(c, q, r); break;
    case PST_ROP_LOOKUP: lookup(c, q, r); break;
    case PST_ROP_DELETE_SUBJECT: rcore_delete_subject(c, q, r); break;
    case PST_ROP_DELETE_VERSION: rcore_delete_version(c, q, r); break;
    case PST_ROP_ID:
    case PST_ROP_ID_TEXT:
    case PST_ROP_ID_SUBJECTS:
    case PST_ROP_ID_VERSIONS: get_id(c, q, r); break;
    case PST_ROP_GUID: rcore_reply_error(r, 404, 40403, "Schema %s not found", q->id); break;
    case PST_ROP_SCHEMAS: get_schemas(c, q, r); break;
    case PST_ROP_TYPES: r->body = json_pack("[s]", "AVRO"); break;
    case PST_ROP_COMPATIBLE: get_compatible(c, q, r); break;
    case PST_ROP_CONFIG_GET:
    case PST_ROP_MODE_GET: get_word(c, q, r); break;
    case PST_ROP_CONFIG_PUT: rcore_config_put(c, q, r); break;
    case PST_ROP_CONFIG_DELETE: rcore_config_delete(c, q, r); break;
    case PST_ROP_MODE_PUT: rcore_mode_put(c, q, r); break;
    case PST_ROP_MODE_DELETE: rcore_mode_delete(c, q, r); break;
    case PST_ROP_CONTEXTS: get_contexts(c, r); break;
    }
    PST_ASSERT(r->body || r->text);
}

rcore *rcore_new(void)
{
    return pst_alloc(sizeof(rcore));
}

void rcore_clear(rcore *c)
{
    rstate_clear(&c->state);
}

void rcore_free(rcore *c)
{
    if (!c)
        return;
    rstate_clear(&c->state);
    free(c);
}

int rcore_apply(rcore *c, const void *key, size_t key_len, const void *value, size_t value_len, pst_err *err)
{
    return rstate_apply(&c->state, key, key_len, value, value_len, err);
}

void rcore_counts(const rcore *c, size_t ret_counts[3])
{
    size_t subjects = 0, versions = 0, schemas = 0;
    for (size_t i = 0; i < c->state.subjects.n; i++) {
        size_t live = c->state.subjects.at[i].key ? rsubject_count(c->state.subjects.at[i].value, false) : 0;
        subjects += live > 0;
        versions += live;
    }
    for (size_t i = 0; i < c->state.contexts.n; i++)
        schemas += c->state.contexts.at[i].key ? ((rcontext *)c->state.contexts.at[i].value)->by_id.live : 0;
    ret_counts[0] = subjects;
    ret_counts[1] = versions;
    ret_counts[2] = schemas;
}
