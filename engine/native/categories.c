/* categories.c - lists of names → JSON text; see categories.h. Texts are checked as they come, so that one list that cannot be written costs no other. */
#include "engine/native/categories.h"

#include "engine/ops/regex.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

static void add(eng_heap_text *t, const char *s, size_t n)
{
    eng_heap_printf(t, "%.*s", (int)n, s);
}

void eng_categories_begin(eng_categories *c)
{
    c->one.len = c->n_words = 0;
    c->spoilt = false;
}

void eng_categories_text(eng_categories *c, const char *s, size_t n)
{
    if (c->spoilt || n > INT_MAX / 8 || memchr(s, 0, n) || eng_utf8_count(s, n) < 0) {
        c->spoilt = true;
        return;
    }
    eng_heap_printf(&c->one, "%s\"", c->n_words++ ? ", " : "");
    for (size_t i = 0, from = 0; i <= n; i++) {
        bool plain = i < n && (unsigned char)s[i] >= ' ' && s[i] != '"' && s[i] != '\\';
        if (plain)
            continue;
        if (i > from)
            add(&c->one, s + from, i - from);
        if (i < n)
            eng_heap_printf(&c->one, "\\u%04x", (unsigned)(unsigned char)s[i]);
        from = i + 1;
    }
    add(&c->one, "\"", 1);
}

void eng_categories_number(eng_categories *c, int64_t v)
{
    eng_heap_printf(&c->one, "%s%" PRId64, c->n_words++ ? ", " : "", v);
}

void eng_categories_json(eng_categories *c, int64_t feature, const char *json, size_t n)
{
    if (n > INT_MAX)
        return;
    eng_heap_printf(&c->all, "%s\"%" PRId64 "\": ", c->n++ ? ", " : "{", feature);
    add(&c->all, json, n);
}

void eng_categories_end(eng_categories *c, int64_t feature)
{
    if (c->spoilt || !c->n_words)
        return;
    eng_heap_printf(&c->one, "]");
    eng_heap_printf(&c->all, "%s\"%" PRId64 "\": [", c->n++ ? ", " : "{", feature);
    add(&c->all, c->one.data, c->one.len);
}

const char *eng_categories_take(eng_categories *c, eng_zone *zone)
{
    const char *ret = NULL;
    if (c->n) {
        eng_heap_printf(&c->all, "}");
        ret = eng_zone_strdup(zone, c->all.data, c->all.len);
    }
    eng_heap_free(c->all.data);
    eng_heap_free(c->one.data);
    *c = (eng_categories){0};
    return ret;
}
