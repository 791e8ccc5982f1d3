/* pull.h - one bounded reader of documents in two syntaxes, JSON text and UBJSON (draft 12): the caller pulls token by token, nothing is
 * built in memory. XGBoost writes its models in both; the same reader of models then serves both.
 *
 *     eng_pull p;
 *     eng_pull_token t;
 *     eng_pull_init(&p, ENG_PULL_JSON, data, len, 16, err);
 *     while ((rc = eng_pull_next(&p, &t)) == 0 && t.kind != ENG_PULL_END) …
 *     eng_pull_done(&p);
 *
 * Every token takes at least one byte of the file, so the work is bounded by its length; nesting by depth_max. Text in tokens is borrowed
 * until the next token. Numbers with a fraction are float32, correctly rounded: that is all XGBoost keeps. NaN, Infinity and -Infinity are
 * numbers, as XGBoost writes them. Errors say at which byte. Not covered, because XGBoost never writes them: UBJSON's high-precision
 * numbers and typed containers of containers or of values without bytes. @thread any, one owner. */
#ifndef PST_ENGINE_NATIVE_PULL_H
#define PST_ENGINE_NATIVE_PULL_H

#include "common/base/err.h"

#include <locale.h>
#include <stdbool.h>

#define ENG_PULL_DEPTH_MAX 64

typedef enum {
    ENG_PULL_END, /* of the document */
    ENG_PULL_OBJECT,
    ENG_PULL_OBJECT_END,
    ENG_PULL_ARRAY,
    ENG_PULL_ARRAY_END,
    ENG_PULL_KEY,
    ENG_PULL_TEXT,
    ENG_PULL_INT,  /* i and f */
    ENG_PULL_REAL, /* f */
    ENG_PULL_BOOL, /* i */
    ENG_PULL_NULL
} eng_pull_kind;

typedef struct eng_pull_token {
    eng_pull_kind kind;
    const char *s; /* KEY, TEXT: NUL-terminated; may hold NULs inside, n counts */
    size_t n;
    int64_t i;
    float f;
} eng_pull_token;

typedef enum { ENG_PULL_JSON, ENG_PULL_UBJSON } eng_pull_syntax;

typedef struct eng_pull_frame {
    bool object, first, after_key;
    bool counted; /* UBJSON: ends after `left` elements, without a closing mark */
    uint8_t type; /* UBJSON: marker of every element; 0 = each has its own */
    uint64_t left;
} eng_pull_frame;

typedef struct eng_pull {
    eng_pull_syntax syntax;
    const uint8_t *begin, *at, *end;
    int depth, depth_max;
    bool started;
    eng_pull_frame frames[ENG_PULL_DEPTH_MAX];
    char *text; /* of the token at hand; the engine's memory (heap.h) */
    size_t text_n, text_cap;
    locale_t c_locale;
    pst_err *err;
} eng_pull;

void eng_pull_init(eng_pull *p, eng_pull_syntax syntax, const void *data, size_t len, int depth_max, pst_err *err);
void eng_pull_done(eng_pull *p);
int eng_pull_next(eng_pull *p, eng_pull_token *t);
/* The token t has just been pulled and begins a value: passes over the rest of it. */
int eng_pull_skip(eng_pull *p, const eng_pull_token *t);
const char *eng_pull_kind_name(eng_pull_kind kind); /* "a list", "a number" … */
/* Sets an error of class DATA that names the byte at hand; returns code. */
int eng_pull_fail(eng_pull *p, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The locale of C's own notation: the program's may write numbers with a comma. Never freed. */
locale_t eng_c_locale(void);

/* What the two syntaxes share; not for callers. */
int eng_pull_push(eng_pull *p, eng_pull_frame f);
void eng_pull_add(eng_pull *p, const void *s, size_t n); /* to text, NUL-terminated */
int eng_pull_json_next(eng_pull *p, eng_pull_token *t);
int eng_pull_ubj_next(eng_pull *p, eng_pull_token *t);

#endif
