/* pull.h - one bounded reader of documents in two syntaxes, JSON text and UBJSON (draft 12): the caller pulls token by token, nothing is
 * built in memory. XGBoost writes its models in both; the same reader of models then serves both.
 *
 *     pst_pull p;
 *     pst_pull_token t;
 *     pst_pull_init(&p, PST_PULL_JSON, data, len, 16, err);
 *     while ((rc = pst_pull_next(&p, &t)) == 0 && t.kind != PST_PULL_END) …
 *     pst_pull_done(&p);
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

#define PST_PULL_DEPTH_MAX 64

typedef enum {
    PST_PULL_END, /* of the document */
    PST_PULL_OBJECT,
    PST_PULL_OBJECT_END,
    PST_PULL_ARRAY,
    PST_PULL_ARRAY_END,
    PST_PULL_KEY,
    PST_PULL_TEXT,
    PST_PULL_INT,  /* i and f */
    PST_PULL_REAL, /* f */
    PST_PULL_BOOL, /* i */
    PST_PULL_NULL
} pst_pull_kind;

typedef struct pst_pull_token {
    pst_pull_kind kind;
    const char *s; /* KEY, TEXT: NUL-terminated; may hold NULs inside, n counts */
    size_t n;
    int64_t i;
    float f;
} pst_pull_token;

typedef enum { PST_PULL_JSON, PST_PULL_UBJSON } pst_pull_syntax;

typedef struct pst_pull_frame {
    bool object, first, after_key;
    bool counted; /* UBJSON: ends after `left` elements, without a closing mark */
    uint8_t type; /* UBJSON: marker of every element; 0 = each has its own */
    uint64_t left;
} pst_pull_frame;

typedef struct pst_pull {
    pst_pull_syntax syntax;
    const uint8_t *begin, *at, *end;
    int depth, depth_max;
    bool started;
    pst_pull_frame frames[PST_PULL_DEPTH_MAX];
    char *text; /* of the token at hand; the engine's memory (heap.h) */
    size_t text_n, text_cap;
    locale_t c_locale;
    pst_err *err;
} pst_pull;

void pst_pull_init(pst_pull *p, pst_pull_syntax syntax, const void *data, size_t len, int depth_max, pst_err *err);
void pst_pull_done(pst_pull *p);
int pst_pull_next(pst_pull *p, pst_pull_token *t);
/* The token t has just been pulled and begins a value: passes over the rest of it. */
int pst_pull_skip(pst_pull *p, const pst_pull_token *t);
const char *pst_pull_kind_name(pst_pull_kind kind); /* "a list", "a number" … */
/* Sets an error of class DATA that names the byte at hand; returns code. */
int pst_pull_fail(pst_pull *p, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The locale of C's own notation: the program's may write numbers with a comma. Never freed. */
locale_t pst_c_locale(void);

/* What the two syntaxes share; not for callers. */
int pst_pull_push(pst_pull *p, pst_pull_frame f);
void pst_pull_add(pst_pull *p, const void *s, size_t n); /* to text, NUL-terminated */
int pst_pull_json_next(pst_pull *p, pst_pull_token *t);
int pst_pull_ubj_next(pst_pull *p, pst_pull_token *t);

#endif
