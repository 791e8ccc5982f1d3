/* pull.c - what both syntaxes of the pull reader (pull.h) share: the stack of open containers, bounded, texts, errors with their byte, and a locale
 * in which a decimal point is a point whatever the process has set. */
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

locale_t eng_c_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_c_locale);
    return c_locale;
}

void eng_pull_init(eng_pull *p, eng_pull_syntax syntax, const void *data, size_t len, int depth_max, pst_err *err)
{
    *p = (eng_pull){.syntax = syntax,
                    .begin = data,
                    .at = data,
                    .end = (const uint8_t *)data + len,
                    .depth_max = depth_max < ENG_PULL_DEPTH_MAX ? depth_max : ENG_PULL_DEPTH_MAX,
                    .err = err};
    p->c_locale = eng_c_locale();
}

void eng_pull_done(eng_pull *p)
{
    eng_heap_free(p->text);
    p->text = NULL;
}

void eng_pull_add(eng_pull *p, const void *s, size_t n)
{
    p->text = eng_heap_room(p->text, p->text_n, n + 1, &p->text_cap, 1);
    if (n)
        memcpy(p->text + p->text_n, s, n);
    p->text_n += n;
    p->text[p->text_n] = 0;
}

int eng_pull_fail(eng_pull *p, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(p->err, code, PST_CLASS_DATA, "model", 0, "%s (at byte %zu of the file)", text, (size_t)(p->at - p->begin));
}

int eng_pull_push(eng_pull *p, eng_pull_frame f)
{
    if (p->depth >= p->depth_max)
        return eng_pull_fail(p, PST_ELIMIT, "lists and objects nest deeper than %d (depth_max)", p->depth_max);
    f.first = true;
    p->frames[p->depth++] = f;
    return 0;
}

int eng_pull_next(eng_pull *p, eng_pull_token *t)
{
    *t = (eng_pull_token){0};
    return p->syntax == ENG_PULL_JSON ? eng_pull_json_next(p, t) : eng_pull_ubj_next(p, t);
}

int eng_pull_skip(eng_pull *p, const eng_pull_token *t)
{
    int rc = 0, depth = p->depth - 1;
    if (t->kind != ENG_PULL_OBJECT && t->kind != ENG_PULL_ARRAY)
        return 0;
    eng_pull_token next;
    while (p->depth > depth && rc == 0)
        rc = eng_pull_next(p, &next);
    return rc;
}

const char *eng_pull_kind_name(eng_pull_kind kind)
{
    static const char *const names[] = {[ENG_PULL_END] = "the end of the file",
                                        [ENG_PULL_OBJECT] = "an object",
                                        [ENG_PULL_OBJECT_END] = "an object's end",
                                        [ENG_PULL_ARRAY] = "a list",
                                        [ENG_PULL_ARRAY_END] = "a list's end",
                                        [ENG_PULL_KEY] = "a key",
                                        [ENG_PULL_TEXT] = "a text",
                                        [ENG_PULL_INT] = "a whole number",
                                        [ENG_PULL_REAL] = "a number",
                                        [ENG_PULL_BOOL] = "true or false",
                                        [ENG_PULL_NULL] = "null"};
    return names[kind];
}
