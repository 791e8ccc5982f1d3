/* openapi_event.c - the Avro schema of an event as JSON Schema, so that an answer's description is the schema that the record on the topic has,
 * and a field added there is described here by itself. Events stand in JSON as pst_event_to_json and the codec write them: a union with null is the
 * value or null, times are whole microseconds, numbers that JSON lacks are text, bytes are base64 or text. */
#include "producers/gateway/openapi.h"

#include <string.h>

static json_t *schema_of(const json_t *t, const json_t *all);

static json_t *simple(const char *name)
{
    static const struct {
        const char *avro, *schema;
    } rows[] = {{"null", "{\"type\": \"null\"}"},
                {"string", "{\"type\": \"string\"}"},
                {"bytes", "{\"type\": \"string\"}"},
                {"boolean", "{\"type\": \"boolean\"}"},
                {"int", "{\"type\": \"integer\", \"format\": \"int32\"}"},
                {"long", "{\"type\": \"integer\", \"format\": \"int64\"}"},
                {"float", "{\"type\": [\"number\", \"string\"], \"description\": \"text for NaN and infinities\"}"},
                {"double", "{\"type\": [\"number\", \"string\"], \"description\": \"text for NaN and infinities\"}"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].avro, name))
            return json_loads(rows[i].schema, 0, NULL);
    return NULL;
}

/* The definition of a type that is named again; none of ours holds itself. */
static const json_t *definition(const json_t *t, const char *name)
{
    const char *key;
    json_t *v;
    size_t i;
    const json_t *found = json_object_get(t, "symbols") || json_object_get(t, "fields") ? t : NULL;
    if (found && strcmp(pst_json_str(t, "name", ""), name) != 0)
        found = NULL;
    json_object_foreach((json_t *)(uintptr_t)t, key, v) found = found ? found : definition(v, name);
    json_array_foreach(t, i, v) found = found ? found : definition(v, name);
    return found;
}

static json_t *record(const json_t *t, const json_t *all)
{
    json_t *out = json_pack("{s:s}", "type", "object"), *properties = json_object(), *required = json_array(), *field;
    size_t i;
    json_array_foreach(json_object_get(t, "fields"), i, field)
    {
        json_t *s = schema_of(json_object_get(field, "type"), all);
        if (json_object_get(field, "doc"))
            json_object_set(s, "description", json_object_get(field, "doc"));
        json_object_set_new(properties, pst_json_str(field, "name", ""), s);
        if (!json_object_get(field, "default"))
            json_array_append(required, json_object_get(field, "name"));
    }
    if (json_object_get(t, "doc"))
        json_object_set(out, "description", json_object_get(t, "doc"));
    if (json_array_size(required))
        json_object_set(out, "required", required);
    json_decref(required);
    json_object_set_new(out, "properties", properties);
    return out;
}

static json_t *named(const json_t *t, const json_t *all)
{
    const char *type = pst_json_str(t, "type", ""), *logical = pst_json_str(t, "logicalType", "");
    if (!strcmp(type, "record"))
        return record(t, all);
    if (!strcmp(type, "enum"))
        return json_pack("{s:s, s:O}", "type", "string", "enum", json_object_get(t, "symbols"));
    if (!strcmp(type, "array"))
        return json_pack("{s:s, s:o}", "type", "array", "items", schema_of(json_object_get(t, "items"), all));
    if (!strcmp(type, "map"))
        return json_pack("{s:s, s:o}", "type", "object", "additionalProperties", schema_of(json_object_get(t, "values"), all));
    json_t *s = schema_of(json_object_get(t, "type"), all);
    if (!strcmp(logical, "timestamp-micros"))
        json_object_set_new(s, "description", json_string("microseconds since 1970"));
    return s;
}

static json_t *schema_of(const json_t *t, const json_t *all)
{
    json_t *s = NULL;
    if (json_is_array(t)) {
        size_t i;
        json_t *branch, *any = json_array();
        json_array_foreach(t, i, branch) json_array_append_new(any, schema_of(branch, all));
        s = json_pack("{s:o}", "anyOf", any);
    } else if (json_is_string(t)) {
        s = simple(json_string_value(t));
        if (!s)
            s = named(definition(all, json_string_value(t)), all);
    } else
        s = named(t, all);
    PST_ASSERT(s);
    return s;
}

json_t *gw_event_schema(const char *avro)
{
    json_t *t = json_loads(avro, 0, NULL), *s = schema_of(t, t);
    json_decref(t);
    return s;
}
