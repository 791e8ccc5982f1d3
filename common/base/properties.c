/* properties.c - Java's .properties files. Lines are joined first and split at the first = or : then, as the clients do it that people copy such files from. */
#include "common/base/properties.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    const char *data;
    size_t len;
} part;

static part trim(const char *s, size_t n)
{
    while (n && isspace((unsigned char)*s))
        s++, n--;
    while (n && isspace((unsigned char)s[n - 1]))
        n--;
    return (part){s, n};
}

static int entry(const pst_buf *line, const char *file, int number, pst_property_fn take, void *arg, pst_err *err)
{
    char *origin = pst_sprintf("%s:%d", file, number);
    size_t at = 0;
    int rc = 0;
    while (at < line->len && line->data[at] != '=' && line->data[at] != ':')
        at++;
    part key = trim(line->data, at), value = at < line->len ? trim(line->data + at + 1, line->len - at - 1) : (part){0};
    if (at == line->len || !key.len) {
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: `%.*s` is not key=value", origin,
                         line->len < 80 ? (int)line->len : 80, line->data);
    } else {
        char *k = pst_strndup(key.data, key.len), *v = pst_strndup(value.data, value.len);
        take(arg, k, v, origin);
        free(k);
        free(v);
    }
    free(origin);
    return rc;
}

int pst_properties_parse(const char *text, size_t len, const char *file, pst_property_fn take, void *arg, pst_err *err)
{
    pst_buf line = {0};
    int number = 0, first = 0, rc = 0;
    for (size_t at = 0; rc == 0 && at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        part p = trim(text + at, n);
        at += n + (end != NULL);
        number++;
        if (memchr(p.data, 0, p.len)) {
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s:%d: a NUL byte; is it a file of properties?", file, number);
            break;
        }
        if (!line.len && (!p.len || *p.data == '#' || *p.data == '!'))
            continue;
        first = line.len ? first : number;
        bool more = p.len && p.data[p.len - 1] == '\\' && at < len; /* behind the last line there is nothing to join */
        size_t keep = p.len && p.data[p.len - 1] == '\\' && (more || end) ? p.len - 1 : p.len;
        pst_buf_add(&line, p.data, keep);
        if (more || !line.len)
            continue;
        rc = entry(&line, file, first, take, arg, err);
        pst_buf_clear(&line);
    }
    if (rc == 0 && line.len)
        rc = entry(&line, file, first, take, arg, err);
    pst_buf_done(&line);
    return rc;
}
