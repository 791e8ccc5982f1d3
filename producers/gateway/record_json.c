/* record_json.c - a stranger's record as JSON. Avro of the registry and JSON are decoded within a bound of memory; what is neither is text where it is UTF-8,
 * else hexadecimal digits; a schema that is gone or a registry that is away is said beside the bytes, since one record that does not decode is no
 * reason to show none. */
#include "producers/gateway/record_json.h"

#include "common/base/hash.h"
#include "common/base/seal.h"
#include "common/platform/codec.h"
#include "producers/gateway/gateway.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 16 << 10 };

static json_t *text(const char *data, size_t len)
{
    return memchr(data, 0, len) ? NULL : json_stringn(data, len); /* Jansson refuses what is not UTF-8 */
}

static void add_bytes(json_t *to, const char *data, size_t len)
{
    size_t n = len < TEXT_BYTES ? len : TEXT_BYTES;
    char *hex = pst_alloc(2 * n + 1);
    pst_hex((const uint8_t *)data, n, hex);
    json_object_set_new(to, "hex", json_string(hex));
    free(hex);
    if (n < len)
        json_object_set_new(to, "cut", json_true());
}

/* A cut that falls into a letter is moved before it. */
static size_t whole_letters(const char *data, size_t len, size_t most)
{
    if (len <= most)
        return len;
    while (most && ((unsigned char)data[most] & 0xc0) == 0x80)
        most--;
    return most;
}

static json_t *plain(const char *data, size_t len)
{
    size_t n = whole_letters(data, len, TEXT_BYTES);
    json_t *s = text(data, n), *j = json_pack("{s:s, s:I}", "format", s ? "text" : "bytes", "bytes", (json_int_t)len);
    if (s)
        json_object_set_new(j, "data", s);
    else
        add_bytes(j, data, len);
    if (s && n < len)
        json_object_set_new(j, "cut", json_true());
    return j;
}

/* Manifests stand in states with their secrets sealed; for people there is nothing to see in what is sealed. */
static void mask(json_t *j)
{
    const char *key;
    json_t *v;
    size_t i;
    void *next;
    json_object_foreach_safe(j, next, key, v)
    {
        if (json_is_string(v) && strstr(json_string_value(v), "sealed")) {
            char *shown = pst_strdup(json_string_value(v));
            pst_sealed_mask(shown);
            json_object_set_new(j, key, json_string(shown));
            free(shown);
        } else
            mask(v);
    }
    json_array_foreach(j, i, v) mask(v);
}

static json_t *body(pst_client *c, const char *data, size_t len)
{
    json_t *decoded = NULL;
    int32_t id = -1;
    pst_err why = {0};
    if (!data)
        return json_pack("{s:s, s:i}", "format", "null", "bytes", 0);
    bool framed = len >= 5 && !*data, braces = len && (*data == '{' || *data == '[');
    int rc = framed || braces ? pst_codec_to_json_within(c->codec, data, len, PST_GATEWAY_RECORD_ROOM, &decoded, &id, &why) : PST_EINVAL;
    json_t *j = rc ? plain(data, len) : json_pack("{s:s, s:I}", "format", framed ? "avro" : "json", "bytes", (json_int_t)len);
    if (!rc)
        mask(decoded);
    if (!rc)
        json_object_set_new(j, "data", decoded);
    if (!rc && framed)
        json_object_set_new(j, "schema_id", json_integer(id));
    if (rc && framed) /* a JSON text that is none is just text */
        json_object_set_new(j, "why", json_string(why.text));
    return j;
}

static json_t *headers(const pst_record *r, pst_header_room *room)
{
    json_t *list = json_array();
    size_t n = pst_record_headers_all(r, room, 0);
    for (size_t i = 0; i < n; i++) {
        const pst_header *h = &room->at[i];
        json_t *name = text(h->name, strlen(h->name)), *value = h->value ? text(h->value, h->len) : json_null();
        json_t *one = json_pack("{s:o}", "name", name ? name : json_string("?"));
        if (value)
            json_object_set_new(one, "value", value);
        else
            add_bytes(one, h->value, h->len);
        json_array_append_new(list, one);
    }
    return list;
}

json_t *gw_record_json(pst_client *c, const pst_record *r, pst_header_room *room)
{
    return json_pack("{s:s, s:i, s:I, s:o, s:o, s:o, s:o}", "topic", r->topic, "partition", (int)r->partition, "offset",
                     (json_int_t)r->offset, "timestamp", r->timestamp_ms >= 0 ? json_integer(r->timestamp_ms) : json_null(), "key",
                     body(c, r->key, r->key_len), "headers", headers(r, room), "value", body(c, r->value, r->value_len));
}
