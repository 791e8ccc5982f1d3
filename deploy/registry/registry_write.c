/* registry_write.c - what changes a registry: registering, deleting, levels, modes. Each function reads the state and names the records that
 * would bring the change about; rcore_apply makes it happen once they are in the topic. Key bytes are Confluent's to the letter
 * ({"keytype":"SCHEMA","subject":…,"version":…,"magic":1}), because compaction compares bytes and another registry may take the topic over. */
#include "deploy/registry/registry_core_priv.h"

#include "common/base/array.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAX 1000000 /* below a broker's default message.max.bytes */

/* ---- records --------------------------------------------------------------------------------------------------------------- */

static void add_write(rcore_reply *r, pst_buf *key, pst_buf *value)
{
    r->writes = pst_array_one_more(r->writes, r->n_writes, sizeof *r->writes);
    r->writes[r->n_writes++] = (rcore_write){pst_buf_steal(key), value ? pst_buf_steal(value) : NULL};
}

static void quote(pst_buf *b, const char *text)
{
    pst_json_quote(b, text, strlen(text));
}

static void write_schema(rcore_reply *r, const char *subject, int version, const rschema *schema, bool deleted)
{
    pst_buf key = {0}, value = {0};
    pst_buf_adds(&key, "{\"keytype\":\"SCHEMA\",\"subject\":");
    quote(&key, subject);
    pst_buf_printf(&key, ",\"version\":%d,\"magic\":1}", version);
    if (schema) {
        pst_buf_adds(&value, "{\"subject\":");
        quote(&value, subject);
        pst_buf_printf(&value, ",\"version\":%d,\"id\":%d", version, schema->id);
        if (strcmp(schema->type, "AVRO")) {
            pst_buf_adds(&value, ",\"schemaType\":");
            quote(&value, schema->type);
        }
        if (schema->references) {
            pst_buf_adds(&value, ",\"references\":");
            pst_json_add(&value, schema->references);
        }
        pst_buf_adds(&value, ",\"schema\":");
        quote(&value, schema->text);
        pst_buf_printf(&value, ",\"deleted\":%s}", deleted ? "true" : "false");
    }
    add_write(r, &key, schema ? &value : NULL);
}

/* CONFIG, MODE and DELETE_SUBJECT; subject NULL = global. field NULL = tombstone. */
static void write_setting(rcore_reply *r, const char *type, const char *subject, const char *field, const char *word, int version)
{
    pst_buf key = {0}, value = {0};
    pst_buf_printf(&key, "{\"keytype\":\"%s\",", type);
    pst_buf_adds(&value, "{");
    if (subject) {
        pst_buf_adds(&key, "\"subject\":");
        quote(&key, subject);
        pst_buf_addc(&key, ',');
        pst_buf_adds(&value, "\"subject\":");
        quote(&value, subject);
        pst_buf_addc(&value, ',');
    }
    pst_buf_adds(&key, "\"magic\":0}");
    if (field && word)
        pst_buf_printf(&value, "\"%s\":\"%s\"}", field, word);
    else if (field)
        pst_buf_printf(&value, "\"%s\":%d}", field, version);
    add_write(r, &key, field ? &value : NULL);
    pst_buf_done(&value);
}

/* ---- registering ----------------------------------------------------------------------------------------------------------- */

static bool writable(const rcore *c, const char *subject, rcore_reply *r)
{
    const char *mode = rstate_mode(&c->state, rstate_subject(&c->state, subject));
    if (!strcmp(mode, "READWRITE") || !strcmp(mode, "IMPORT"))
        return true;
    rcore_reply_error(r, 422, 42205, "Subject %s is in read-only mode (%s)", subject, mode);
    return false;
}

static void answer_id(const rcore_request *q, const candidate *cand, int32_t id, int version, rcore_reply *r)
{
    r->body = json_object();
    json_object_set_new(r->body, "id", json_integer(id));
    if (q->extras) {
        json_object_set_new(r->body, "version", json_integer(version));
        json_object_set_new(r->body, "schemaType", json_string("AVRO"));
        json_object_set_new(r->body, "schema", json_string(cand->text));
    }
}

/* Which id and version would it get? False: the reply says why none. */
static bool choose(const rcore *c, const rcore_request *q, const rsubject *s, const candidate *cand, bool import, int64_t *ret_id,
                   int64_t *ret_version, rcore_reply *r)
{
    const rcontext *context = rstate_context(&c->state, registry_subject_plain(q->subject));
    const rschema *equal = context ? pst_map_get(&context->by_canon, cand->canon) : NULL;
    int64_t version = s ? (int64_t)s->version_max + 1 : 1;
    int64_t id = context ? (int64_t)context->id_max + 1 : 1;
    if (equal)
        id = equal->id;
    if (!import && (cand->id >= 0 || cand->version > 0)) {
        bool same = (cand->id < 0 || cand->id == id) && (cand->version <= 0 || cand->version == version);
        if (!same) {
            rcore_reply_error(r, 422, 42205, "Subject %s is not in import mode: id and version cannot be chosen", q->subject);
            return false;
        }
    }
    if (import && cand->id >= 0) {
        const rschema *other = context && cand->id <= INT32_MAX ? rcontext_by_id(context, (int32_t)cand->id) : NULL;
        if (cand->id > INT32_MAX || (other && strcmp(other->canon, cand->canon))) {
            rcore_reply_error(r, 422, 42207, "Overwrite new schema with id %lld is not permitted.", (long long)cand->id);
            return false;
        }
        id = cand->id;
    }
    if (import && cand->version > 0)
        version = cand->version;
    if (id > INT32_MAX || version > INT32_MAX) {
        rcore_reply_error(r, 422, 42202, "no ids or versions are left");
        return false;
    }
    *ret_id = id;
    *ret_version = version;
    return true;
}

static bool allowed(const rcore *c, const rcore_request *q, const rsubject *s, const candidate *cand, rcore_reply *r)
{
    json_t *messages = json_array(), *line;
    bool ok = rcore_compatible(&c->state, s, NULL, cand, messages);
    if (!ok) {
        pst_buf b = {0};
        size_t i;
        json_array_foreach(messages, i, line) pst_buf_printf(&b, "%s%s", i ? "; " : "", json_string_value(line));
        rcore_reply_error(r, 409, 409,
                          "Schema being registered is incompatible with an earlier schema for subject \"%s\", details: [%.4000s]",
                          q->subject, b.data ? b.data : "");
        pst_buf_done(&b);
    }
    json_decref(messages);
    return ok;
}

/* Nothing changes here: the state follows the topic alone, when the record that is written comes back. The same schema again gives the same id
 * and no record, so clients may register as often as they start. */
void rcore_register(rcore *c, const rcore_request *q, rcore_reply *r)
{
    const rsubject *s = rstate_subject(&c->state, q->subject);
    bool import = !strcmp(rstate_mode(&c->state, s), "IMPORT");
    candidate cand = {0};
    int64_t id, version;
    if (!writable(c, q->subject, r) || !rcore_candidate(q, &cand, r))
        return;
    rversion *same = rcore_find_equal(s, cand.canon, false);
    if (same && (cand.id < 0 || cand.id == same->schema->id) && (cand.version <= 0 || cand.version == same->version)) {
        answer_id(q, &cand, same->schema->id, same->version, r);
        goto out;
    }
    if (same && !import) {
        rcore_reply_error(r, 422, 42207, "Schema already registered in subject %s with id %d instead of input id %lld", q->subject,
                          same->schema->id, (long long)cand.id);
        goto out;
    }
    if (!import && !allowed(c, q, s, &cand, r))
        goto out;
    if (!choose(c, q, s, &cand, import, &id, &version, r))
        goto out;
    const rschema fresh = {.id = (int32_t)id, .text = (char *)(uintptr_t)cand.text, .type = (char *)(uintptr_t) "AVRO"};
    write_schema(r, registry_subject_plain(q->subject), (int)version, &fresh, false);
    PST_ASSERT(r->n_writes == 1);
    if (strlen(r->writes[0].value) + strlen(r->writes[0].key) > RECORD_MAX) {
        rcore_reply_done(r);
        rcore_reply_error(r, 422, 42209, "Schema too large: its record would exceed %d bytes", RECORD_MAX);
        goto out;
    }
    answer_id(q, &cand, (int32_t)id, (int)version, r);
out:
    rcore_candidate_done(&cand);
}

/* ---- deleting -------------------------------------------------------------------------------------------------------------- */

/* Softly first: the versions stay for who asks with deleted=true, and their numbers are not given again. For good only after that, by a tombstone
 * for every key of the subject, so that compaction leaves nothing of it. */
void rcore_delete_subject(rcore *c, const rcore_request *q, rcore_reply *r)
{
    const rsubject *s = rstate_subject(&c->state, q->subject);
    size_t all = rsubject_count(s, true), live = rsubject_count(s, false);
    if (!writable(c, q->subject, r))
        return;
    if (!all) {
        rcore_no_subject(r, q->subject);
        return;
    }
    if (!live && !q->permanent) {
        rcore_reply_error(r, 404, 40404, "Subject '%s' was soft deleted. Set permanent=true to delete permanently", q->subject);
        return;
    }
    if (live && q->permanent) {
        rcore_reply_error(r, 404, 40405, "Subject '%s' was not deleted first before being permanently deleted", q->subject);
        return;
    }
    r->body = json_array();
    int last = 0;
    for (size_t i = 0; i < s->n; i++) {
        const rversion *v = &s->versions[i];
        if (v->deleted != q->permanent)
            continue;
        json_array_append_new(r->body, json_integer(v->version));
        last = v->version;
        if (q->permanent)
            write_schema(r, s->name, v->version, NULL, false);
    }
    write_setting(r, "DELETE_SUBJECT", s->name, q->permanent ? NULL : "version", NULL, last);
    if (s->level)
        write_setting(r, "CONFIG", s->name, NULL, NULL, 0);
    if (s->mode)
        write_setting(r, "MODE", s->name, NULL, NULL, 0);
}

void rcore_delete_version(rcore *c, const rcore_request *q, rcore_reply *r)
{
    const rsubject *s = rstate_subject(&c->state, q->subject);
    int number = rcore_version_number(q->version, r);
    if (number < 0 || !writable(c, q->subject, r))
        return;
    if (!rsubject_count(s, true)) {
        rcore_no_subject(r, q->subject);
        return;
    }
    const rversion *v = number ? rsubject_version(s, number) : rsubject_latest(s, q->permanent);
    if (!v) {
        rcore_no_version(r, number);
        return;
    }
    if (v->deleted && !q->permanent) {
        rcore_reply_error(r, 404, 40406, "Subject '%s' Version %d was soft deleted. Set permanent=true to delete permanently", q->subject,
                          v->version);
        return;
    }
    if (!v->deleted && q->permanent) {
        rcore_reply_error(r, 404, 40407, "Subject '%s' Version %d was not deleted first before being permanently deleted", q->subject,
                          v->version);
        return;
    }
    r->body = json_integer(v->version);
    write_schema(r, s->name, v->version, q->permanent ? NULL : v->schema, true);
}

/* Confluent's server takes levels and modes in any case. NULL when it is longer than any of them, or absent. */
static const char *upper(const char *word, char room[32])
{
    size_t n = word ? strlen(word) : 32;
    if (n >= 32)
        return NULL;
    for (size_t i = 0; i <= n; i++)
        room[i] = (char)toupper((unsigned char)word[i]);
    return room;
}

/* ---- levels and modes ------------------------------------------------------------------------------------------------------ */

void rcore_config_put(rcore *c, const rcore_request *q, rcore_reply *r)
{
    json_t *body = NULL;
    if (!rcore_body(q, &body, r))
        return;
    char room[32];
    const char *level = upper(pst_json_str(body, "compatibility", pst_json_str(body, "compatibilityLevel", NULL)), room);
    if (!registry_level_ok(level)) {
        rcore_reply_error(
            r, 422, 42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, forward_transitive, and "
            "full_transitive");
    } else {
        write_setting(r, "CONFIG", q->subject ? registry_subject_plain(q->subject) : NULL, "compatibilityLevel", level, 0);
        r->body = json_object();
        json_object_set_new(r->body, "compatibility", json_string(level));
    }
    json_decref(body);
}

void rcore_config_delete(rcore *c, const rcore_request *q, rcore_reply *r)
{
    const rsubject *s = q->subject ? rstate_subject(&c->state, q->subject) : NULL;
    if (q->subject && (!s || !s->level)) {
        rcore_no_subject(r, q->subject);
        return;
    }
    r->body = json_object();
    json_object_set_new(r->body, "compatibilityLevel", json_string(rstate_level(&c->state, s)));
    write_setting(r, "CONFIG", s ? s->name : NULL, NULL, NULL, 0);
}

void rcore_mode_put(rcore *c, const rcore_request *q, rcore_reply *r)
{
    json_t *body = NULL;
    if (!rcore_body(q, &body, r))
        return;
    char room[32];
    const char *mode = upper(pst_json_str(body, "mode", NULL), room);
    bool used = false;
    for (size_t i = 0; i < c->state.subjects.n; i++) {
        const rsubject *s = c->state.subjects.at[i].key ? c->state.subjects.at[i].value : NULL;
        used |= s && rsubject_count(s, false) && (!q->subject || !strcmp(s->name, registry_subject_plain(q->subject)));
    }
    if (!registry_mode_ok(mode) || (q->subject && !strcmp(mode, "READONLY_OVERRIDE"))) {
        rcore_reply_error(r, 422, 42204,
                          "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE (global), IMPORT and FORWARD");
    } else if (!strcmp(mode, "IMPORT") && used && !q->force) {
        rcore_reply_error(r, 422, 42205, "Cannot import since found existing subjects; set force=true to do it all the same");
    } else {
        write_setting(r, "MODE", q->subject ? registry_subject_plain(q->subject) : NULL, "mode", mode, 0);
        r->body = json_object();
        json_object_set_new(r->body, "mode", json_string(mode));
    }
    json_decref(body);
}

void rcore_mode_delete(rcore *c, const rcore_request *q, rcore_reply *r)
{
    const rsubject *s = q->subject ? rstate_subject(&c->state, q->subject) : NULL;
    const char *mode = s ? s->mode : NULL;
    if (!q->subject)
        mode = rstate_mode(&c->state, NULL);
    if (!mode) {
        rcore_no_subject(r, q->subject);
        return;
    }
    r->body = json_object();
    json_object_set_new(r->body, "mode", json_string(mode));
    write_setting(r, "MODE", s ? s->name : NULL, NULL, NULL, 0);
}
