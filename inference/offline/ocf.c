/* ocf.c - container files. A block holds records back to back without their lengths, so each record is walked over with the schema to find
 * its end; the decode plan then reads it properly. The walk trusts nothing: depth, items and bytes are bounded. */
#include "inference/offline/ocf.h"

#include "common/base/map.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SYNC = 16, META_MAX = 1000, BLOCK_MAX = 256 << 20, DEPTH_MAX = 64 };

typedef struct cursor {
    const uint8_t *p, *end;
    int64_t items; /* budget of array items and map entries */
} cursor;

struct score_ocf {
    char *name;
    cursor file, block;
    uint8_t sync[SYNC];
    bool deflate;
    int64_t left; /* records left in the block */
    uint8_t *inflated;
    size_t inflated_cap;
    pst_schema *schema;
    json_t *tree;
    pst_map named; /* full and short names → json_t of the type, borrowed from tree */
};

static int broken(const score_ocf *f, pst_err *err, const char *what)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "avro", 0, "%s is no sound Avro file: %s", f->name, what);
}

static bool get_long(cursor *c, int64_t *ret)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (c->p == c->end)
            return false;
        uint8_t b = *c->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *ret = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
            return true;
        }
    }
    return false;
}

static bool skip(cursor *c, int64_t n)
{
    if (n < 0 || n > c->end - c->p)
        return false;
    c->p += n;
    return true;
}

static bool get_bytes(cursor *c, pst_slice *ret)
{
    int64_t n;
    if (!get_long(c, &n) || n < 0 || n > c->end - c->p)
        return false;
    *ret = (pst_slice){c->p, (size_t)n};
    c->p += n;
    return true;
}

/* ---- walking over one record ----------------------------------------------------------------------------------------------- */

static bool walk(score_ocf *f, const json_t *type, cursor *c, int depth);

static bool walk_blocks(score_ocf *f, const json_t *item, bool keys, cursor *c, int depth)
{
    for (int64_t n; get_long(c, &n);) {
        if (n == 0)
            return true;
        if (n < 0) {
            int64_t bytes;
            if (!get_long(c, &bytes) || !skip(c, bytes))
                return false;
            continue;
        }
        if ((c->items -= n) < 0)
            return false;
        for (; n > 0; n--) {
            pst_slice key;
            if ((keys && !get_bytes(c, &key)) || !walk(f, item, c, depth))
                return false;
        }
    }
    return false;
}

static bool walk_word(score_ocf *f, const char *word, cursor *c, int depth)
{
    int64_t v;
    pst_slice s;
    if (!strcmp(word, "null"))
        return true;
    if (!strcmp(word, "boolean"))
        return skip(c, 1);
    if (!strcmp(word, "int") || !strcmp(word, "long"))
        return get_long(c, &v);
    if (!strcmp(word, "float"))
        return skip(c, 4);
    if (!strcmp(word, "double"))
        return skip(c, 8);
    if (!strcmp(word, "string") || !strcmp(word, "bytes"))
        return get_bytes(c, &s);
    const json_t *named = pst_map_get(&f->named, word);
    return named && walk(f, named, c, depth);
}

/* Past one value of this type; false: it is cut off, or no such value. */
static bool walk(score_ocf *f, const json_t *type, cursor *c, int depth)
{
    if (++depth > DEPTH_MAX)
        return false;
    if (json_is_string(type))
        return walk_word(f, json_string_value(type), c, depth);
    if (json_is_array(type)) {
        int64_t branch;
        return get_long(c, &branch) && branch >= 0 && branch < (int64_t)json_array_size(type) &&
               walk(f, json_array_get(type, (size_t)branch), c, depth);
    }
    const json_t *inner = json_object_get(type, "type");
    const char *word = json_string_value(inner);
    if (!word)
        return inner && walk(f, inner, c, depth);
    if (!strcmp(word, "record") || !strcmp(word, "error")) {
        size_t i;
        json_t *field;
        json_array_foreach(json_object_get(type, "fields"), i, field)
        {
            if (!walk(f, json_object_get(field, "type"), c, depth))
                return false;
        }
        return true;
    }
    if (!strcmp(word, "array"))
        return walk_blocks(f, json_object_get(type, "items"), false, c, depth);
    if (!strcmp(word, "map"))
        return walk_blocks(f, json_object_get(type, "values"), true, c, depth);
    int64_t v;
    if (!strcmp(word, "enum"))
        return get_long(c, &v);
    if (!strcmp(word, "fixed"))
        return skip(c, json_integer_value(json_object_get(type, "size")));
    return walk_word(f, word, c, depth);
}

/* Names may be written short or in full; inside a namespace the short one means that namespace's. The schema was parsed and checked before. */
static void collect(score_ocf *f, const json_t *type, const char *ns, int depth)
{
    if (depth > DEPTH_MAX)
        return;
    for (size_t i = 0; json_is_array(type) && i < json_array_size(type); i++)
        collect(f, json_array_get(type, i), ns, depth + 1);
    if (!json_is_object(type))
        return;
    const char *name = json_string_value(json_object_get(type, "name")), *own = json_string_value(json_object_get(type, "namespace"));
    char *inner = pst_strdup(own ? own : ns);
    if (name) {
        const char *dot = strrchr(name, '.');
        if (dot) {
            free(inner);
            inner = pst_strndup(name, (size_t)(dot - name));
        }
        char *full = dot || !*inner ? pst_strdup(name) : pst_sprintf("%s.%s", inner, name);
        pst_map_put(&f->named, full, (void *)(uintptr_t)type);
        if (!dot && !pst_map_get(&f->named, name))
            pst_map_put(&f->named, name, (void *)(uintptr_t)type);
        free(full);
    }
    size_t i;
    json_t *field;
    json_array_foreach(json_object_get(type, "fields"), i, field)
    {
        collect(f, json_object_get(field, "type"), inner, depth + 1);
    }
    collect(f, json_object_get(type, "items"), inner, depth + 1);
    collect(f, json_object_get(type, "values"), inner, depth + 1);
    if (!json_is_string(json_object_get(type, "type")))
        collect(f, json_object_get(type, "type"), inner, depth + 1);
    free(inner);
}

/* ---- the file -------------------------------------------------------------------------------------------------------------- */

bool score_ocf_is(const void *bytes, size_t len)
{
    return len >= 4 && !memcmp(bytes, "Obj\x01", 4);
}

/* Magic, a map in blocks (a negative count is followed by the size in bytes), the sync marker that ends every block. Of the map the schema
 * and the codec count; others are passed over. */
static int read_head(score_ocf *f, pst_err *err)
{
    cursor *c = &f->file;
    int64_t n, meta = 0;
    pst_slice key, value, schema = {0}, codec = {"null", 4};
    c->p += 4;
    for (;;) {
        if (!get_long(c, &n))
            return broken(f, err, "its header is cut off");
        if (n == 0)
            break;
        int64_t bytes;
        if (n < 0 && (!get_long(c, &bytes) || n == INT64_MIN))
            return broken(f, err, "its header is cut off");
        n = n < 0 ? -n : n;
        if ((meta += n) > META_MAX)
            return broken(f, err, "its header has too many entries");
        for (; n > 0; n--) {
            if (!get_bytes(c, &key) || !get_bytes(c, &value))
                return broken(f, err, "its header is cut off");
            if (key.len == 11 && !memcmp(key.data, "avro.schema", 11))
                schema = value;
            if (key.len == 10 && !memcmp(key.data, "avro.codec", 10))
                codec = value;
        }
    }
    if (c->end - c->p < SYNC || !schema.data)
        return broken(f, err, schema.data ? "its header is cut off" : "it has no avro.schema");
    memcpy(f->sync, c->p, SYNC);
    c->p += SYNC;
    f->deflate = codec.len == 7 && !memcmp(codec.data, "deflate", 7);
    if (!f->deflate && !(codec.len == 0 || (codec.len == 4 && !memcmp(codec.data, "null", 4))))
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "avro", 0,
                           "%s is compressed with %.*s; write it with the codec deflate or null", f->name,
                           (int)(codec.len < 40 ? codec.len : 40), (const char *)codec.data);
    int rc = pst_schema_parse(schema.data, schema.len, &f->schema, err);
    if (rc < 0)
        return rc;
    f->tree = json_loadb(schema.data, schema.len, JSON_DECODE_ANY, NULL);
    collect(f, f->tree, "", 0);
    return f->tree ? 0 : broken(f, err, "its schema is no JSON");
}

int score_ocf_open(const void *bytes, size_t len, const char *name, score_ocf **ret_file, pst_err *err)
{
    score_ocf *f = pst_alloc(sizeof(*f));
    f->name = pst_strdup(name);
    f->file = (cursor){bytes, (const uint8_t *)bytes + len, 0};
    int rc = score_ocf_is(bytes, len) ? read_head(f, err) : broken(f, err, "it does not begin with Obj1");
    if (rc < 0) {
        score_ocf_free(f);
        return rc;
    }
    *ret_file = f;
    return 0;
}

const pst_schema *score_ocf_schema(const score_ocf *f)
{
    return f->schema;
}

static int inflate_block(score_ocf *f, pst_slice in, pst_err *err)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in.data, .avail_in = (uInt)in.len};
    if (inflateInit2(&z, -15) != Z_OK)
        return broken(f, err, "zlib does not start");
    size_t n = 0;
    int rc = Z_OK;
    while (rc == Z_OK) {
        if (n == f->inflated_cap) {
            if (n >= BLOCK_MAX)
                break;
            f->inflated_cap = n ? n * 2 : 1 << 16;
            f->inflated = pst_realloc(f->inflated, f->inflated_cap);
        }
        z.next_out = f->inflated + n;
        z.avail_out = (uInt)(f->inflated_cap - n);
        rc = inflate(&z, Z_NO_FLUSH);
        n = f->inflated_cap - z.avail_out;
        if (rc == Z_BUF_ERROR && z.avail_out == 0)
            rc = Z_OK;
    }
    inflateEnd(&z);
    if (rc != Z_STREAM_END)
        return broken(f, err, n >= BLOCK_MAX ? "a block is larger than 256 MiB" : "a block does not inflate");
    f->block = (cursor){f->inflated, f->inflated + n, 0};
    return 0;
}

static int next_block(score_ocf *f, pst_err *err)
{
    cursor *c = &f->file;
    int64_t bytes;
    if (!get_long(c, &f->left) || !get_long(c, &bytes) || f->left < 0 || bytes < 0 || bytes > c->end - c->p || c->end - c->p - bytes < SYNC)
        return broken(f, err, "a block is cut off");
    pst_slice data = {c->p, (size_t)bytes};
    c->p += bytes;
    if (memcmp(c->p, f->sync, SYNC) != 0)
        return broken(f, err, "a block does not end in the file's sync marker");
    c->p += SYNC;
    if (f->deflate)
        return data.len > BLOCK_MAX ? broken(f, err, "a block is larger than 256 MiB") : inflate_block(f, data, err);
    f->block = (cursor){data.data, (const uint8_t *)data.data + data.len, 0};
    return 0;
}

int score_ocf_next(score_ocf *f, pst_slice *ret_body, pst_err *err)
{
    while (f->left == 0) {
        if (f->file.p == f->file.end)
            return 0;
        int rc = next_block(f, err);
        if (rc < 0)
            return rc;
    }
    const uint8_t *begin = f->block.p;
    f->block.items = PST_AVRO_ITEMS_MAX;
    if (!walk(f, f->tree, &f->block, 0))
        return broken(f, err, "a record does not fit the file's schema");
    f->left--;
    if (f->left == 0 && f->block.p != f->block.end)
        return broken(f, err, "a block holds more than its records");
    *ret_body = (pst_slice){begin, (size_t)(f->block.p - begin)};
    return 1;
}

void score_ocf_free(score_ocf *f)
{
    if (!f)
        return;
    pst_schema_free(f->schema);
    json_decref(f->tree);
    pst_map_done(&f->named, NULL);
    free(f->inflated);
    free(f->name);
    free(f);
}
