/* event_text.c - are an event's texts UTF-8, as Avro says of a string? Clients in languages whose strings are bytes send others. The decoder takes them as they come, since what
 * our own programs observed (a command's last words) shall not be lost to a byte; who writes a client's text on, into events that others must be able to read, asks here first. */
#include "schemas/type.h"

#include "schemas/avro.h"
#include "schemas/avro_node.h"

#include <string.h>

static int wrong(const char *record, const char *field, pst_err *err)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "avro", 0, "%s.%s is not UTF-8 text", record, field);
}

static bool is_bad(const char *text)
{
    return text && !av_utf8_valid(text, strlen(text));
}

static int check_items(const pst_type *t, const pst_field_type *f, const char *items, size_t n, pst_err *err)
{
    size_t size = pst_field_item_size(f);
    int rc = 0;
    for (size_t k = 0; k < n && !rc; k++) {
        const char *at = items + k * size;
        if (f->shape == PST_SHAPE_MAP && is_bad(*(char *const *)(const void *)at)) /* key: first member of both pairs */
            rc = wrong(t->name, f->name, err);
        else if (f->shape == PST_SHAPE_MAP && f->kind == PST_KIND_STRING && is_bad(((const pst_str_pair *)(const void *)at)->value))
            rc = wrong(t->name, f->name, err);
        else if (f->shape == PST_SHAPE_ARRAY && f->kind == PST_KIND_STRING && is_bad(*(char *const *)(const void *)at))
            rc = wrong(t->name, f->name, err);
        else if (f->shape == PST_SHAPE_ARRAY && f->kind == PST_KIND_RECORD)
            rc = pst_event_check_text(f->record, at, err);
    }
    return rc;
}

int pst_event_check_text(const pst_type *t, const void *event, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->n_fields && !rc; i++) {
        const pst_field_type *f = &t->fields[i];
        const char *at = (const char *)event + f->offset;
        if (f->shape == PST_SHAPE_ARRAY || f->shape == PST_SHAPE_MAP)
            rc = check_items(t, f, *(char *const *)(const void *)at, *(const size_t *)(const void *)((const char *)event + f->aux), err);
        else if (f->kind == PST_KIND_STRING && is_bad(*(char *const *)(const void *)at))
            rc = wrong(t->name, f->name, err);
        else if (f->kind == PST_KIND_RECORD) {
            const void *record = f->shape == PST_SHAPE_NULLABLE ? *(void *const *)(const void *)at : at;
            rc = record ? pst_event_check_text(f->record, record, err) : 0;
        }
    }
    return rc;
}
