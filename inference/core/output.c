/* output.c - Score: schema and bytes. The schema is assembled as a JSON tree; the bytes are put together by hand, since they are one fixed
 * sequence: everything variable was prepared when the schema was made. */
#include "inference/core/output.h"

#include "common/base/json.h"
#include "schemas/avro_long.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { BRANCHES_MAX = 64, DEPTH_MAX = 64 };

typedef struct pass {
    bool there;
    bool is_union; /* raw bytes begin with a branch number */
    int n_branches;
    uint8_t branch[BRANCHES_MAX]; /* the writer's branch → ours */
} pass;

struct pst_output {
    bool slim;
    bool has_record;
    pass *pass;
    size_t n_pass;
    char *schema;
};

/* ---- schemas of pass-through fields ---------------------------------------------------------------------------------------- */

/* Full names defined so far in this output schema. */
typedef struct names {
    json_t *defined; /* full name → true */
    json_t *renamed; /* full name in the writer's schema → ours */
} names;

static bool is_primitive(const char *t)
{
    static const char *const words[] = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(t, words[i]))
            return true;
    return false;
}

static char *full_name(const char *name, const char *ns)
{
    return strchr(name, '.') || !*ns ? pst_strdup(name) : pst_sprintf("%s.%s", ns, name);
}

static bool is_ours(const char *full)
{
    static const char *const words[] = {"penstock.Score", "penstock.ScoreModel", "penstock.ScoreSource", "penstock.ScoreVariant",
                                        "penstock.ScoreRecord"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(full, words[i]))
            return true;
    return false;
}

static json_t *adopt(const json_t *type, const char *ns, names *n, int depth);

static json_t *adopt_ref(const char *name, const char *ns, names *n)
{
    if (is_primitive(name))
        return json_string(name);
    char *full = full_name(name, ns);
    const char *ours = json_string_value(json_object_get(n->renamed, full));
    json_t *ref = json_string(ours ? ours : full);
    free(full);
    return ref;
}

static json_t *adopt_fields(const json_t *fields, const char *ns, names *n, int depth)
{
    json_t *out = json_array();
    size_t i;
    json_t *f;
    json_array_foreach((json_t *)fields, i, f)
    {
        json_t *copy = json_object();
        json_object_set(copy, "name", json_object_get(f, "name"));
        json_object_set_new(copy, "type", adopt(json_object_get(f, "type"), ns, n, depth));
        if (json_object_get(f, "default"))
            json_object_set(copy, "default", json_object_get(f, "default"));
        json_array_append_new(out, copy);
    }
    return out;
}

/* A named type: defined at its first place, a reference afterwards, always by its full name. */
static json_t *adopt_named(const json_t *type, const char *ns, names *n, int depth)
{
    const char *name = pst_json_str(type, "name", "Unnamed");
    char *full = full_name(name, pst_json_str(type, "namespace", ns));
    json_t *out;
    if (json_object_get(n->defined, full)) {
        out = adopt_ref(full, "", n);
        free(full);
        return out;
    }
    char *ours = is_ours(full) ? pst_sprintf("%sIn", full) : pst_strdup(full);
    json_object_set_new(n->defined, full, json_true());
    json_object_set_new(n->renamed, full, json_string(ours));
    char *dot = strrchr(ours, '.');
    char *inner = dot ? pst_strndup(ours, (size_t)(dot - ours)) : pst_strdup("");
    out = json_object();
    json_object_set(out, "type", json_object_get(type, "type"));
    json_object_set_new(out, "name", json_string(dot ? dot + 1 : ours));
    json_object_set_new(out, "namespace", json_string(inner));
    static const char *const kept[] = {"symbols", "size", "default", "logicalType", "precision", "scale"};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (json_object_get(type, kept[i]))
            json_object_set(out, kept[i], json_object_get(type, kept[i]));
    if (json_object_get(type, "fields"))
        json_object_set_new(out, "fields", adopt_fields(json_object_get(type, "fields"), inner, n, depth));
    free(inner);
    free(ours);
    free(full);
    return out;
}

static json_t *adopt(const json_t *type, const char *ns, names *n, int depth)
{
    if (depth > DEPTH_MAX)
        return json_string("null");
    if (json_is_string(type))
        return adopt_ref(json_string_value(type), ns, n);
    if (json_is_array(type)) {
        json_t *out = json_array();
        for (size_t i = 0; i < json_array_size(type); i++)
            json_array_append_new(out, adopt(json_array_get(type, i), ns, n, depth + 1));
        return out;
    }
    const json_t *inner = json_object_get(type, "type");
    const char *word = json_string_value(inner);
    if (word && (!strcmp(word, "record") || !strcmp(word, "enum") || !strcmp(word, "fixed") || !strcmp(word, "error")))
        return adopt_named(type, ns, n, depth + 1);
    if (!word) /* {"type": {…}} */
        return adopt(inner, ns, n, depth + 1);
    json_t *out = json_copy((json_t *)type);
    if (!strcmp(word, "array"))
        json_object_set_new(out, "items", adopt(json_object_get(type, "items"), ns, n, depth + 1));
    else if (!strcmp(word, "map"))
        json_object_set_new(out, "values", adopt(json_object_get(type, "values"), ns, n, depth + 1));
    else
        json_object_set_new(out, "type", adopt_ref(word, ns, n));
    return out;
}

/* Makes the type nullable with null first, and remembers where the writer's branches went. */
static json_t *nullable(json_t *take, pass *p)
{
    json_t *out = json_array();
    json_array_append_new(out, json_string("null"));
    p->is_union = json_is_array(take);
    if (!p->is_union) {
        if (!pst_avro_is_null(take))
            json_array_append(out, take);
        json_decref(take);
        return out;
    }
    p->n_branches = (int)json_array_size(take);
    for (int i = 0; i < p->n_branches && i < BRANCHES_MAX; i++) {
        json_t *t = json_array_get(take, (size_t)i);
        p->branch[i] = pst_avro_is_null(t) ? 0 : (uint8_t)json_array_size(out);
        if (!pst_avro_is_null(t))
            json_array_append(out, t);
    }
    json_decref(take);
    return out;
}

/* "cpu.user" → "cpu_user"; false if Avro cannot have it. */
static bool field_name(const char *path, char *ret, size_t size)
{
    size_t n = strlen(path);
    if (n >= size || isdigit((unsigned char)path[0]))
        return false;
    for (size_t i = 0; i <= n; i++) {
        char c = path[i] == '.' || path[i] == '-' ? '_' : path[i];
        if (c && c != '_' && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9'))
            return false;
        ret[i] = c;
    }
    return true;
}

/* Every field is nullable with the default null: the record may gain and lose fields, and the registry still finds it compatible. */
static int pass_record(pst_output *o, const pst_pipeline *p, const char *const *schemas, json_t **ret, pst_err *err)
{
    names n = {json_object(), json_object()};
    json_t *fields = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->n_pass; i++) {
        json_t *type = NULL;
        char name[256];
        if (!schemas[i])
            continue;
        if (!field_name(p->passthrough[i], name, sizeof(name))) {
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "output", 0, "pass-through field %s cannot be an Avro field name",
                             p->passthrough[i]);
            break;
        }
        type = json_loads(schemas[i], JSON_DECODE_ANY, NULL);
        if (!type || (json_is_array(type) && json_array_size(type) > BRANCHES_MAX)) {
            json_decref(type);
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "output", 0, "pass-through field %s has a union of more than %d types",
                             p->passthrough[i], BRANCHES_MAX);
            break;
        }
        json_t *ours = adopt(type, "", &n, 0);
        json_decref(type);
        o->pass[i].there = true;
        json_array_append_new(fields, json_pack("{s:s, s:o, s:n}", "name", name, "type", nullable(ours, &o->pass[i]), "default"));
    }
    json_decref(n.defined);
    json_decref(n.renamed);
    if (rc < 0) {
        json_decref(fields);
        return rc;
    }
    *ret = json_pack("[s, {s:s, s:s, s:o}]", "null", "type", "record", "name", "ScoreRecord", "fields", fields);
    return 0;
}

/* ---- the schema ------------------------------------------------------------------------------------------------------------ */

static const char full_schema[] =
    "{\"type\":\"record\",\"name\":\"Score\",\"namespace\":\"penstock\",\"doc\":\"One record, scored.\",\"fields\":["
    "{\"name\":\"score\",\"type\":{\"type\":\"array\",\"items\":\"double\"}},"
    "{\"name\":\"label\",\"type\":[\"null\",\"string\"],\"default\":null},"
    "{\"name\":\"model\",\"type\":{\"type\":\"record\",\"name\":\"ScoreModel\",\"fields\":["
    "{\"name\":\"name\",\"type\":\"string\"},{\"name\":\"version\",\"type\":\"int\"},{\"name\":\"digest\",\"type\":\"string\"},"
    "{\"name\":\"backend\",\"type\":\"string\",\"default\":\"\",\"doc\":\"what computed this score: cpu, cuda:N; empty in scores of "
    "versions that did not say it\"}]}},"
    "{\"name\":\"source\",\"type\":{\"type\":\"record\",\"name\":\"ScoreSource\",\"fields\":["
    "{\"name\":\"topic\",\"type\":\"string\"},{\"name\":\"partition\",\"type\":\"int\"},{\"name\":\"offset\",\"type\":\"long\"},"
    "{\"name\":\"timestamp\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}}]}},"
    "{\"name\":\"variant\",\"type\":{\"type\":\"enum\",\"name\":\"ScoreVariant\",\"symbols\":[\"PRIMARY\",\"CANARY\",\"SHADOW\"],"
    "\"default\":\"PRIMARY\"},"
    "\"default\":\"PRIMARY\"},"
    "{\"name\":\"scored_at\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}},"
    "{\"name\":\"missing\",\"type\":{\"type\":\"array\",\"items\":\"string\"},\"default\":[]},"
    "{\"name\":\"threshold\",\"type\":[\"null\",\"double\"],\"default\":null}]}";

static const char slim_schema[] =
    "{\"type\":\"record\",\"name\":\"Score\",\"namespace\":\"penstock\",\"doc\":\"One record, scored: the score alone.\","
    "\"fields\":[{\"name\":\"score\",\"type\":{\"type\":\"array\",\"items\":\"double\"}}]}";

int pst_output_new(const pst_pipeline *p, const char *const *pass_schemas, pst_output **ret_output, pst_err *err)
{
    pst_output *o = pst_alloc(sizeof(*o));
    o->slim = p->slim;
    o->n_pass = p->slim ? 0 : p->n_passthrough;
    o->pass = pst_alloc((o->n_pass + 1) * sizeof(*o->pass));
    if (!o->n_pass) {
        o->schema = pst_strdup(o->slim ? slim_schema : full_schema);
        *ret_output = o;
        return 0;
    }
    json_t *root = json_loads(full_schema, 0, NULL), *record = NULL;
    int rc = pass_record(o, p, pass_schemas, &record, err);
    if (rc == 0) {
        json_array_append_new(json_object_get(root, "fields"), json_pack("{s:s, s:o, s:n}", "name", "record", "type", record, "default"));
        o->has_record = true;
        o->schema = pst_json_text(root);
    }
    json_decref(root);
    if (rc < 0) {
        pst_output_free(o);
        return rc;
    }
    *ret_output = o;
    return 0;
}

void pst_output_free(pst_output *o)
{
    if (!o)
        return;
    free(o->pass);
    free(o->schema);
    free(o);
}

const char *pst_output_schema(const pst_output *o)
{
    return o->schema;
}

/* ---- the bytes ------------------------------------------------------------------------------------------------------------- */

static void put_text(pst_buf *out, const char *s)
{
    pst_avro_put_bytes(out, s, strlen(s));
}

void pst_output_model(const pst_binding *b, pst_buf *ret_bytes)
{
    put_text(ret_bytes, pst_binding_name(b));
    pst_avro_put_long(ret_bytes, pst_binding_version(b));
    put_text(ret_bytes, pst_binding_digest(b));
}

static void put_pass(const pass *p, pst_slice v, pst_buf *out)
{
    if (!v.data) {
        pst_buf_addc(out, 0);
        return;
    }
    if (!p->is_union) {
        pst_buf_addc(out, 2); /* branch 1, zigzag */
        pst_buf_add(out, v.data, v.len);
        return;
    }
    /* The writer's branch number, one byte: unions here have at most 64 types. */
    uint8_t branch = v.len ? *(const uint8_t *)v.data >> 1 : 0;
    if (!v.len || branch >= p->n_branches) {
        pst_buf_addc(out, 0);
        return;
    }
    pst_avro_put_long(out, p->branch[branch]);
    pst_buf_add(out, (const char *)v.data + 1, v.len - 1);
}

static void put_missing(const pst_score_parts *s, pst_buf *out)
{
    size_t n = 0;
    for (size_t i = 0; s->missing && i < s->n_features; i++)
        n += s->missing[i];
    if (n) {
        pst_avro_put_long(out, (int64_t)n);
        for (size_t i = 0; i < s->n_features; i++)
            if (s->missing[i])
                put_text(out, s->features[i].field);
    }
    pst_buf_addc(out, 0);
}

void pst_output_head_done(pst_output_head *h)
{
    pst_buf_done(&h->bytes);
    free(h->topic);
    free(h->backend);
    *h = (pst_output_head){0};
}

static const pst_buf *head_of(const pst_score_parts *s)
{
    pst_output_head *h = s->head;
    if (h->topic && !strcmp(h->topic, s->topic) && !strcmp(h->backend, s->backend))
        return &h->bytes;
    pst_output_head_done(h);
    h->topic = pst_strdup(s->topic);
    h->backend = pst_strdup(s->backend);
    pst_buf_addc(&h->bytes, 0);
    pst_buf_add(&h->bytes, s->model.data, s->model.len);
    put_text(&h->bytes, s->backend);
    put_text(&h->bytes, s->topic);
    return &h->bytes;
}

/* What was written behind the buffer's end, into room that was reserved, counts up to here. */
static void wrote_to(pst_buf *out, const char *end)
{
    size_t len = (size_t)(end - out->data);
    PST_ASSERT(len >= out->len && len < out->cap);
    out->len = len;
    out->data[len] = 0;
}

static char *write_scores(char *to, const pst_score_parts *s)
{
    if (s->n_scores) {
        to = pst_avro_write_long(to, (int64_t)s->n_scores);
        memcpy(to, s->scores, s->n_scores * sizeof(double));
        to += s->n_scores * sizeof(double);
    }
    *to++ = 0;
    return to;
}

static char *write_threshold(char *to, const double *threshold)
{
    *to++ = threshold ? 2 : 0;
    if (threshold) {
        memcpy(to, threshold, sizeof *threshold);
        to += sizeof *threshold;
    }
    return to;
}

/* In the order of the schema above, written by hand: it is done for every record. Room for everything but what is rare (a label, missing fields, fields
 * passed through) is made once, and most of the bytes, the head, are those of the record before. */
void pst_output_put(const pst_output *o, const pst_score_parts *s, pst_buf *out)
{
    PST_ASSERT(!o->n_pass || s->pass);
    const pst_buf *head = o->slim ? NULL : head_of(s);
    size_t label = s->label ? strlen(s->label) : 0, from = s->label ? 1 : 0; /* of the head: it begins with none */
    pst_buf_reserve(out, (s->n_scores + 2) * sizeof(double) + 8 * PST_AVRO_LONG_ROOM + label + (head ? head->len : 0));
    char *to = write_scores(out->data + out->len, s);
    if (!o->slim) {
        if (s->label) {
            *to++ = 2;
            to = pst_avro_write_long(to, (int64_t)label);
            memcpy(to, s->label, label);
            to += label;
        }
        memcpy(to, head->data + from, head->len - from);
        to = pst_avro_write_long(to + head->len - from, s->partition);
        to = pst_avro_write_long(to, s->offset);
        to = pst_avro_write_long(to, s->timestamp_ms * 1000);
        to = pst_avro_write_long(to, s->variant);
        to = pst_avro_write_long(to, s->scored_at_us);
        if (s->missing) {
            wrote_to(out, to);
            put_missing(s, out);
            pst_buf_reserve(out, 2 * sizeof(double));
            to = out->data + out->len;
        } else {
            *to++ = 0;
        }
        to = write_threshold(to, s->threshold);
    }
    wrote_to(out, to);
    if (o->slim)
        return;
    if (!o->has_record)
        return;
    pst_buf_addc(out, 2);
    for (size_t i = 0; i < o->n_pass; i++)
        if (o->pass[i].there)
            put_pass(&o->pass[i], s->pass[i], out);
}
