/* event.c - life of an event struct, driven by its descriptor (type.h): clear, copy, compare, encode; the small maps inside. */
#include "schemas/type.h"

#include "common/base/array.h"
#include "common/base/err.h"

#include <stdlib.h>
#include <string.h>

const char *pst_enum_text(const pst_enum_type *e, int value)
{
    return value >= 0 && value < e->n ? e->symbols[value] : "?";
}

int pst_enum_parse(const pst_enum_type *e, const char *text)
{
    for (int i = 0; text && i < e->n; i++)
        if (!strcmp(e->symbols[i], text))
            return i;
    return -1;
}

const char *pst_type_name(const pst_type *t)
{
    return t->name;
}

const char *pst_type_schema(const pst_type *t)
{
    return t->schema;
}

size_t pst_type_size(const pst_type *t)
{
    return t->size;
}

const pst_type *pst_type_find(const char *name)
{
    for (size_t i = 0; i < pst_types_n; i++)
        if (!strcmp(pst_types[i]->name, name))
            return pst_types[i];
    return NULL;
}

size_t pst_field_item_size(const pst_field_type *f)
{
    if (f->shape == PST_SHAPE_MAP)
        return f->kind == PST_KIND_STRING ? sizeof(pst_str_pair) : sizeof(pst_dbl_pair);
    switch (f->kind) {
    case PST_KIND_BOOL: return sizeof(bool);
    case PST_KIND_INT: return sizeof(int32_t);
    case PST_KIND_LONG: return sizeof(int64_t);
    case PST_KIND_FLOAT: return sizeof(float);
    case PST_KIND_DOUBLE: return sizeof(double);
    case PST_KIND_STRING: return sizeof(char *);
    case PST_KIND_BYTES: return sizeof(pst_bytes);
    case PST_KIND_ENUM: return sizeof(int); /* checked below: a C enum of ours is as wide as int */
    case PST_KIND_RECORD: return f->record->size;
    }
    return 0;
}

typedef enum { one_symbol } one_enum;
_Static_assert(sizeof(one_enum) == sizeof(int), "enums are stored and loaded as int");

/* ---- clear ------------------------------------------------------------------------------------------------------------------ */

static void clear_value(const pst_field_type *f, void *at)
{
    if (f->kind == PST_KIND_STRING)
        free(*(char **)at);
    else if (f->kind == PST_KIND_BYTES)
        free(((pst_bytes *)at)->data);
    else if (f->kind == PST_KIND_RECORD)
        pst_event_clear(f->record, at);
}

void pst_event_clear(const pst_type *t, void *event)
{
    if (!event)
        return;
    for (size_t i = 0; i < t->n_fields; i++) {
        const pst_field_type *f = &t->fields[i];
        char *at = (char *)event + f->offset;
        if (f->shape == PST_SHAPE_ONE || (f->shape == PST_SHAPE_NULLABLE && f->kind != PST_KIND_RECORD)) {
            clear_value(f, at);
        } else if (f->shape == PST_SHAPE_NULLABLE) {
            pst_event_clear(f->record, *(void **)at);
            free(*(void **)at);
        } else {
            char *items = *(char **)at;
            size_t n = *(size_t *)((char *)event + f->aux), size = pst_field_item_size(f);
            for (size_t k = 0; k < n; k++) {
                if (f->shape == PST_SHAPE_ARRAY) {
                    clear_value(f, items + k * size);
                } else {
                    free(*(char **)(items + k * size)); /* key: first member of both pairs */
                    if (f->kind == PST_KIND_STRING)
                        free(((pst_str_pair *)(void *)(items + k * size))->value);
                }
            }
            free(items);
        }
    }
    memset(event, 0, t->size);
}

/* ---- copy ------------------------------------------------------------------------------------------------------------------- */

static void copy_value(const pst_field_type *f, const void *from, void *to)
{
    if (f->kind == PST_KIND_STRING) {
        const char *text = *(char *const *)from; /* where null is not allowed NULL means "", as encode writes it: a copy says so */
        *(char **)to = pst_strdup(text || f->shape == PST_SHAPE_NULLABLE ? text : "");
    } else if (f->kind == PST_KIND_BYTES) {
        const pst_bytes *b = from;
        pst_bytes *c = to;
        c->len = b->len;
        c->data = b->data ? pst_strndup(b->data, b->len) : NULL;
    } else if (f->kind == PST_KIND_RECORD) {
        pst_event_copy(f->record, from, to);
    } else {
        memcpy(to, from, pst_field_item_size(f));
    }
}

/* A copy owns everything it points to; nothing is shared with the original, so either may be cleared first. */
void pst_event_copy(const pst_type *t, const void *event, void *ret_copy)
{
    PST_ASSERT(event != ret_copy);
    memset(ret_copy, 0, t->size);
    for (size_t i = 0; i < t->n_fields; i++) {
        const pst_field_type *f = &t->fields[i];
        const char *from = (const char *)event + f->offset;
        char *to = (char *)ret_copy + f->offset;
        if (f->shape == PST_SHAPE_NULLABLE && f->kind == PST_KIND_RECORD) {
            const void *inner = *(void *const *)from;
            if (inner) {
                *(void **)to = pst_alloc(f->record->size);
                pst_event_copy(f->record, inner, *(void **)to);
            }
        } else if (f->shape == PST_SHAPE_ONE || f->shape == PST_SHAPE_NULLABLE) {
            copy_value(f, from, to);
            if (f->shape == PST_SHAPE_NULLABLE && pst_kind_flagged(f->kind))
                *((char *)ret_copy + f->aux) = *((const char *)event + f->aux);
        } else {
            const char *items = *(const char *const *)from;
            size_t n = *(const size_t *)((const char *)event + f->aux), size = pst_field_item_size(f);
            char *copy = n ? pst_alloc(n * size) : NULL;
            *(size_t *)((char *)ret_copy + f->aux) = n;
            *(char **)to = copy;
            for (size_t k = 0; k < n; k++) {
                if (f->shape == PST_SHAPE_ARRAY) {
                    copy_value(f, items + k * size, copy + k * size);
                } else if (f->kind == PST_KIND_STRING) {
                    const pst_str_pair *p = (const void *)(items + k * size);
                    *(pst_str_pair *)(void *)(copy + k * size) = (pst_str_pair){pst_strdup(p->key), pst_strdup(p->value)};
                } else {
                    const pst_dbl_pair *p = (const void *)(items + k * size);
                    *(pst_dbl_pair *)(void *)(copy + k * size) = (pst_dbl_pair){pst_strdup(p->key), p->value};
                }
            }
        }
    }
}

/* ---- equal ------------------------------------------------------------------------------------------------------------------ */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* NULL and "" are the same where null is not allowed: encode writes both as "". */
static bool same_value(const pst_field_type *f, const void *a, const void *b)
{
    switch (f->kind) {
    case PST_KIND_STRING: {
        const char *x = *(char *const *)a, *y = *(char *const *)b;
        if (f->shape != PST_SHAPE_NULLABLE)
            return !strcmp(x ? x : "", y ? y : "");
        return same_text(x, y);
    }
    case PST_KIND_BYTES: {
        const pst_bytes *x = a, *y = b;
        if (f->shape == PST_SHAPE_NULLABLE && !x->data != !y->data)
            return false;
        return x->len == y->len && (!x->len || !memcmp(x->data, y->data, x->len));
    }
    case PST_KIND_RECORD: return pst_event_equal(f->record, a, b);
    case PST_KIND_FLOAT:
        return *(const float *)a == *(const float *)b || (*(const float *)a != *(const float *)a && *(const float *)b != *(const float *)b);
    case PST_KIND_DOUBLE: {
        double x = *(const double *)a, y = *(const double *)b;
        return x == y || (x != x && y != y);
    }
    default: return !memcmp(a, b, pst_field_item_size(f));
    }
}

/* Maps have no order: every entry of one has its equal in the other (both have the same length and unique keys). */
static bool same_map(const pst_field_type *f, const void *a, const void *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < n && !found; k++) {
            if (f->kind == PST_KIND_STRING) {
                const pst_str_pair *x = (const pst_str_pair *)a + i, *y = (const pst_str_pair *)b + k;
                found = same_text(x->key, y->key) && same_text(x->value, y->value);
            } else {
                const pst_dbl_pair *x = (const pst_dbl_pair *)a + i, *y = (const pst_dbl_pair *)b + k;
                found = same_text(x->key, y->key) && (x->value == y->value || (x->value != x->value && y->value != y->value));
            }
        }
        if (!found)
            return false;
    }
    return true;
}

/* Equal means: encode writes the same data. So NaN equals NaN, maps have no order, and a nullable value without its flag is not looked at. */
bool pst_event_equal(const pst_type *t, const void *a, const void *b)
{
    for (size_t i = 0; i < t->n_fields; i++) {
        const pst_field_type *f = &t->fields[i];
        const char *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;
        if (f->shape == PST_SHAPE_ONE) {
            if (!same_value(f, x, y))
                return false;
        } else if (f->shape == PST_SHAPE_NULLABLE && f->kind == PST_KIND_RECORD) {
            const void *p = *(void *const *)x, *q = *(void *const *)y;
            if (!p != !q || (p && !pst_event_equal(f->record, p, q)))
                return false;
        } else if (f->shape == PST_SHAPE_NULLABLE) {
            if (pst_kind_flagged(f->kind)) {
                bool p = *((const bool *)a + f->aux), q = *((const bool *)b + f->aux);
                if (p != q || (p && !same_value(f, x, y)))
                    return false;
            } else if (!same_value(f, x, y)) {
                return false;
            }
        } else {
            size_t n = *(const size_t *)((const char *)a + f->aux), size = pst_field_item_size(f);
            const char *p = *(const char *const *)x, *q = *(const char *const *)y;
            if (n != *(const size_t *)((const char *)b + f->aux))
                return false;
            if (f->shape == PST_SHAPE_MAP && !same_map(f, p, q, n))
                return false;
            for (size_t k = 0; f->shape == PST_SHAPE_ARRAY && k < n; k++)
                if (!same_value(f, p + k * size, q + k * size))
                    return false;
        }
    }
    return true;
}

/* ---- encode ----------------------------------------------------------------------------------------------------------------- */

static void put_value(const pst_field_type *f, const void *at, pst_buf *out)
{
    switch (f->kind) {
    case PST_KIND_BOOL: pst_buf_addc(out, *(const bool *)at ? 1 : 0); break;
    case PST_KIND_INT: pst_avro_put_long(out, *(const int32_t *)at); break;
    case PST_KIND_LONG: pst_avro_put_long(out, *(const int64_t *)at); break;
    case PST_KIND_FLOAT: pst_avro_put_float(out, *(const float *)at); break;
    case PST_KIND_DOUBLE: pst_avro_put_double(out, *(const double *)at); break;
    case PST_KIND_STRING: {
        const char *s = *(char *const *)at;
        pst_avro_put_bytes(out, s ? s : "", s ? strlen(s) : 0);
        break;
    }
    case PST_KIND_BYTES: pst_avro_put_bytes(out, ((const pst_bytes *)at)->data, ((const pst_bytes *)at)->len); break;
    case PST_KIND_ENUM:
        PST_ASSERT(*(const int *)at >= 0 && *(const int *)at < f->enumeration->n);
        pst_avro_put_long(out, *(const int *)at);
        break;
    case PST_KIND_RECORD: pst_event_encode(f->record, at, out); break;
    }
}

static void put_items(const pst_field_type *f, const char *items, size_t n, pst_buf *out)
{
    size_t size = pst_field_item_size(f);
    PST_ASSERT(items || !n);
    if (n)
        pst_avro_put_long(out, (int64_t)n);
    for (size_t k = 0; k < n; k++) {
        const char *at = items + k * size;
        if (f->shape == PST_SHAPE_ARRAY) {
            put_value(f, at, out);
            continue;
        }
        const char *key = *(char *const *)at;
        pst_avro_put_bytes(out, key, strlen(key));
        if (f->kind == PST_KIND_STRING) {
            const char *v = ((const pst_str_pair *)(const void *)at)->value;
            pst_avro_put_bytes(out, v ? v : "", v ? strlen(v) : 0);
        } else {
            pst_avro_put_double(out, ((const pst_dbl_pair *)(const void *)at)->value);
        }
    }
    pst_avro_put_long(out, 0);
}

void pst_event_encode(const pst_type *t, const void *event, pst_buf *out)
{
    for (size_t i = 0; i < t->n_fields; i++) {
        const pst_field_type *f = &t->fields[i];
        const char *at = (const char *)event + f->offset;
        const void *value = at;
        bool null = false;
        switch (f->shape) {
        case PST_SHAPE_ONE: put_value(f, at, out); break;
        case PST_SHAPE_NULLABLE:
            if (pst_kind_flagged(f->kind))
                null = !*((const bool *)event + f->aux);
            else if (f->kind == PST_KIND_RECORD) {
                value = *(void *const *)at;
                null = !value;
            } else
                null = !*(void *const *)at; /* char *, or the data of pst_bytes */
            pst_avro_put_long(out, null ? f->null_branch : 1 - f->null_branch);
            if (!null)
                put_value(f, value, out);
            break;
        case PST_SHAPE_ARRAY:
        case PST_SHAPE_MAP: put_items(f, *(const char *const *)at, *(const size_t *)((const char *)event + f->aux), out); break;
        }
    }
}

/* ---- maps ------------------------------------------------------------------------------------------------------------------- */

void pst_str_map_set(pst_str_pair **map, size_t *n, const char *key, const char *value)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp((*map)[i].key, key)) {
            char *old = (*map)[i].value;
            (*map)[i].value = pst_strdup(value); /* before the free: value may be the old text */
            free(old);
            if (!value) {
                free((*map)[i].key);
                memmove(*map + i, *map + i + 1, (*n - i - 1) * sizeof **map);
                (*n)--;
            }
            return;
        }
    if (!value)
        return;
    *map = pst_array_one_more(*map, *n, sizeof **map);
    (*map)[(*n)++] = (pst_str_pair){pst_strdup(key), pst_strdup(value)};
}

const char *pst_str_map_get(const pst_str_pair *map, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(map[i].key, key))
            return map[i].value;
    return NULL;
}

void pst_dbl_map_set(pst_dbl_pair **map, size_t *n, const char *key, double value)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp((*map)[i].key, key)) {
            (*map)[i].value = value;
            return;
        }
    *map = pst_array_one_more(*map, *n, sizeof **map);
    (*map)[(*n)++] = (pst_dbl_pair){pst_strdup(key), value};
}
