/* pull.c - what both syntaxes of the pull reader share; see pull.h. */
#include "engine/native/pull.h"

#include "engine/heap.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc's own constant: takes no memory */
    PST_ASSERT(c_locale);
}

locale_t pst_c_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_c_locale);
    return c_locale;
}

void pst_pull_init(pst_pull *p, pst_pull_syntax syntax, const void *data, size_t len, int depth_max, pst_err *err)
{
    *p = (pst_pull){.syntax = syntax,
                    .begin = data,
                    .at = data,
                    .end = (const uint8_t *)data + len,
                    .depth_max = depth_max < PST_PULL_DEPTH_MAX ? depth_max : PST_PULL_DEPTH_MAX,
                    .err = err};
    p->c_locale = pst_c_locale();
}

void pst_pull_done(pst_pull *p)
{
    pst_heap_free(p->text);
    p->text = NULL;
}

void pst_pull_add(pst_pull *p, const void *s, size_t n)
{
    if (p->text_n + n + 1 > p->text_cap) {
        p->text_cap = 2 * p->text_cap > p->text_n + n + 64 ? 2 * p->text_cap : p->text_n + n + 64;
        p->text = pst_heap_realloc(p->text, p->text_cap);
    }
    if (n)
        memcpy(p->text + p->text_n, s, n);
    p->text_n += n;
    p->text[p->text_n] = 0;
}

int pst_pull_fail(pst_pull *p, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(p->err, code, PST_CLASS_DATA, "model", 0, "%s (at byte %zu of the file)", text, (size_t)(p->at - p->begin));
}

int pst_pull_push(pst_pull *p, pst_pull_frame f)
{
    if (p->depth >= p->depth_max)
        return pst_pull_fail(p, PST_ELIMIT, "lists and objects nest deeper than %d (depth_max)", p->depth_max);
    f.first = true;
    p->frames[p->depth++] = f;
    return 0;
}

int pst_pull_next(pst_pull *p, pst_pull_token *t)
{
    *t = (pst_pull_token){0};
    return p->syntax == PST_PULL_JSON ? pst_pull_json_next(p, t) : pst_pull_ubj_next(p, t);
}

int pst_pull_skip(pst_pull *p, const pst_pull_token *t)
{
    int rc = 0, depth = p->depth - 1;
    if (t->kind != PST_PULL_OBJECT && t->kind != PST_PULL_ARRAY)
        return 0;
    pst_pull_token next;
    while (p->depth > depth && rc == 0)
        rc = pst_pull_next(p, &next);
    return rc;
}

const char *pst_pull_kind_name(pst_pull_kind kind)
{
    static const char *const names[] = {[PST_PULL_END] = "the end of the file",
                                        [PST_PULL_OBJECT] = "an object",
                                        [PST_PULL_OBJECT_END] = "an object's end",
                                        [PST_PULL_ARRAY] = "a list",
                                        [PST_PULL_ARRAY_END] = "a list's end",
                                        [PST_PULL_KEY] = "a key",
                                        [PST_PULL_TEXT] = "a text",
                                        [PST_PULL_INT] = "a whole number",
                                        [PST_PULL_REAL] = "a number",
                                        [PST_PULL_BOOL] = "true or false",
                                        [PST_PULL_NULL] = "null"};
    return names[kind];
}
