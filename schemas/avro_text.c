/* avro_text.c - schemas as text: parsing canonical form, its 64-bit Rabin fingerprint, self-contained text of an inner type.
 * Source: Avro 1.11 specification, "Parsing Canonical Form for Schemas", "Schema Fingerprints". */
#include "schemas/avro_node.h"

#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>

/* A named type is written out where it is met first, which is where it was defined: so the recursion is as deep as the text was. */
static void canonical(const av_node *n, bool *seen, pst_buf *out)
{
    if (n->name && seen[n->id]) {
        pst_buf_printf(out, "\"%s\"", n->name);
        return;
    }
    seen[n->id] = true;
    switch (n->kind) {
    case PST_AVRO_UNION:
        pst_buf_addc(out, '[');
        for (size_t i = 0; i < n->n_branches; i++) {
            if (i)
                pst_buf_addc(out, ',');
            canonical(n->branches[i], seen, out);
        }
        pst_buf_addc(out, ']');
        return;
    case PST_AVRO_ARRAY:
    case PST_AVRO_MAP:
        pst_buf_printf(out, "{\"type\":\"%s\",\"%s\":", av_word(n->kind), n->kind == PST_AVRO_ARRAY ? "items" : "values");
        canonical(n->item, seen, out);
        break;
    case PST_AVRO_FIXED: pst_buf_printf(out, "{\"name\":\"%s\",\"type\":\"fixed\",\"size\":%zu", n->name, n->size); break;
    case PST_AVRO_ENUM:
        pst_buf_printf(out, "{\"name\":\"%s\",\"type\":\"enum\",\"symbols\":[", n->name);
        for (size_t i = 0; i < n->n_symbols; i++)
            pst_buf_printf(out, "%s\"%s\"", i ? "," : "", n->symbols[i]);
        pst_buf_addc(out, ']');
        break;
    case PST_AVRO_RECORD: {
        const char *word = json_string_value(json_object_get(n->json, "type")); /* "record" or "error" */
        pst_buf_printf(out, "{\"name\":\"%s\",\"type\":\"%s\",\"fields\":[", n->name, word);
        for (size_t i = 0; i < n->n_fields; i++) {
            pst_buf_printf(out, "%s{\"name\":\"%s\",\"type\":", i ? "," : "", n->fields[i].name);
            canonical(n->fields[i].type, seen, out);
            pst_buf_addc(out, '}');
        }
        pst_buf_addc(out, ']');
        break;
    }
    default: pst_buf_printf(out, "\"%s\"", av_word(n->kind)); return;
    }
    pst_buf_addc(out, '}');
}

void pst_schema_canonical(const pst_schema *s, pst_buf *ret_text)
{
    bool *seen = pst_alloc(s->n_nodes * sizeof *seen);
    canonical(s->root, seen, ret_text);
    free(seen);
}

uint64_t pst_schema_fingerprint(const pst_schema *s)
{
    const uint64_t empty = 0xc15d213aa4d7a795ull;
    pst_buf text = {0};
    uint64_t fp = empty;
    pst_schema_canonical(s, &text);
    for (size_t i = 0; i < text.len; i++) {
        uint64_t row = (fp ^ (uint8_t)text.data[i]) & 0xff;
        for (int k = 0; k < 8; k++)
            row = (row >> 1) ^ (empty & -(row & 1));
        fp = (fp >> 8) ^ row;
    }
    pst_buf_done(&text);
    return fp;
}

/* ---- self-contained text ---------------------------------------------------------------------------------------------------- */

static void others(const json_t *obj, const char *const *skip, pst_buf *out)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)obj, key, v)
    {
        bool mine = false;
        for (size_t i = 0; skip[i] && !mine; i++)
            mine = !strcmp(skip[i], key);
        if (mine)
            continue;
        pst_buf_addc(out, ',');
        pst_json_quote(out, key, strlen(key));
        pst_buf_addc(out, ':');
        pst_json_add(out, v);
    }
}

/* The whole schema as it was written, attributes of others included. seen, by node id: a named type is written out where it first occurs and by
 * name after that, which also ends recursive ones. */
static void full(const av_node *n, bool *seen, pst_buf *out)
{
    static const char *const written[] = {"type", "name", "namespace", "aliases", "fields", "items", "values", NULL}, *const type_only[] = {
                                                                                                                          "type", NULL};
    if (n->name && seen[n->id]) {
        pst_buf_printf(out, "\"%s\"", n->name);
        return;
    }
    seen[n->id] = true;
    if (n->kind == PST_AVRO_UNION) {
        for (size_t i = 0; i < n->n_branches; i++) {
            pst_buf_addc(out, i ? ',' : '[');
            full(n->branches[i], seen, out);
        }
        pst_buf_adds(out, n->n_branches ? "]" : "[]");
        return;
    }
    if (!n->json) {
        pst_buf_printf(out, "\"%s\"", av_word(n->kind));
        return;
    }
    pst_buf_printf(out, "{\"type\":\"%s\"", json_string_value(json_object_get(n->json, "type")));
    if (n->name)
        pst_buf_printf(out, ",\"name\":\"%s\",\"namespace\":\"%.*s\"", n->base, n->base > n->name ? (int)(n->base - n->name - 1) : 0,
                       n->name);
    for (size_t i = 0; i < n->n_aliases; i++)
        pst_buf_printf(out, "%s\"%s\"%s", i ? "," : ",\"aliases\":[", n->aliases[i], i + 1 == n->n_aliases ? "]" : "");
    others(n->json, written, out);
    if (n->kind == PST_AVRO_ARRAY || n->kind == PST_AVRO_MAP) {
        pst_buf_adds(out, n->kind == PST_AVRO_ARRAY ? ",\"items\":" : ",\"values\":");
        full(n->item, seen, out);
    }
    if (n->kind == PST_AVRO_RECORD) {
        pst_buf_adds(out, ",\"fields\":[");
        for (size_t i = 0; i < n->n_fields; i++) {
            pst_buf_adds(out, i ? ",{\"type\":" : "{\"type\":");
            full(n->fields[i].type, seen, out);
            others(n->fields[i].json, type_only, out);
            pst_buf_addc(out, '}');
        }
        pst_buf_addc(out, ']');
    }
    pst_buf_addc(out, '}');
}

void av_node_text(const pst_schema *s, const av_node *n, pst_buf *out)
{
    bool *seen = pst_alloc(s->n_nodes * sizeof *seen);
    full(n, seen, out);
    free(seen);
}
