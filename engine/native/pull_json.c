/* pull_json.c - JSON text (RFC 8259, and NaN and Infinity) for the pull reader; see pull.h. */
#include "engine/native/pull.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 400

static void skip_space(eng_pull *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

/* -1: none. */
static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32; /* lower case */
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int hex4(eng_pull *p, unsigned *ret)
{
    *ret = 0;
    if (p->end - p->at < 4)
        return eng_pull_fail(p, PST_EPARSE, "the file ends inside a text");
    for (int i = 0; i < 4; i++) {
        int v = hex_digit(*p->at++);
        if (v < 0)
            return eng_pull_fail(p, PST_EPARSE, "\\u needs four hexadecimal digits");
        *ret = *ret * 16 + (unsigned)v;
    }
    return 0;
}

static void add_utf8(eng_pull *p, unsigned c)
{
    uint8_t b[4] = {(uint8_t)c};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; n > 1 && i-- > 0; c >>= 6)
        b[i] = (uint8_t)(i ? 0x80 | (c & 63) : lead[n] | c);
    eng_pull_add(p, b, n);
}

static int escape(eng_pull *p)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return eng_pull_fail(p, PST_EPARSE, "the file ends inside a text");
    int c = *p->at++;
    const char *k = c ? strchr(from, c) : NULL;
    if (k) {
        eng_pull_add(p, &to[k - from], 1);
        return 0;
    }
    unsigned u, low;
    if (c != 'u')
        return eng_pull_fail(p, PST_EPARSE, "an unknown escape in a text");
    int rc = hex4(p, &u);
    if (rc < 0)
        return rc;
    if (u >= 0xd800 && u < 0xdc00) { /* the first half of a pair */
        if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
            return eng_pull_fail(p, PST_EPARSE, "half a surrogate pair in a text");
        p->at += 2;
        if ((rc = hex4(p, &low)) < 0)
            return rc;
        if (low < 0xdc00 || low > 0xdfff)
            return eng_pull_fail(p, PST_EPARSE, "half a surrogate pair in a text");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    } else if (u >= 0xdc00 && u < 0xe000) {
        return eng_pull_fail(p, PST_EPARSE, "half a surrogate pair in a text");
    }
    add_utf8(p, u);
    return 0;
}

static int text(eng_pull *p, eng_pull_token *t, eng_pull_kind kind)
{
    p->text_n = 0;
    for (p->at++;;) {
        const uint8_t *from = p->at;
        while (p->at < p->end && *p->at != '"' && *p->at != '\\' && *p->at >= 0x20)
            p->at++;
        eng_pull_add(p, from, (size_t)(p->at - from));
        if (p->at == p->end)
            return eng_pull_fail(p, PST_EPARSE, "the file ends inside a text");
        int c = *p->at;
        if (c < 0x20)
            return eng_pull_fail(p, PST_EPARSE, "a control character in a text");
        p->at++;
        if (c == '"')
            break;
        int rc = escape(p);
        if (rc < 0)
            return rc;
    }
    *t = (eng_pull_token){.kind = kind, .s = p->text, .n = p->text_n};
    return 0;
}

static bool digit(const eng_pull *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

/* By the letter of the grammar, since strtof takes more (hexadecimals, leading zeros). A whole number of up to 18 digits stays one and
 * cannot overflow; -0 is real, since an integer would lose its sign. */
static int number(eng_pull *p, eng_pull_token *t)
{
    const uint8_t *from = p->at;
    bool minus = *p->at == '-', whole = true;
    p->at += minus;
    if (!digit(p))
        return eng_pull_fail(p, PST_EPARSE, "a number without digits");
    const uint8_t *digits = p->at;
    while (digit(p))
        p->at++;
    size_t n_digits = (size_t)(p->at - digits);
    if (*digits == '0' && n_digits > 1)
        return eng_pull_fail(p, PST_EPARSE, "a number with a leading zero");
    if (p->at < p->end && *p->at == '.') {
        whole = false;
        p->at++;
        if (!digit(p))
            return eng_pull_fail(p, PST_EPARSE, "a number that ends in a dot");
        while (digit(p))
            p->at++;
    }
    if (p->at < p->end && (*p->at | 32) == 'e') {
        whole = false;
        p->at++;
        p->at += p->at < p->end && (*p->at == '+' || *p->at == '-');
        if (!digit(p))
            return eng_pull_fail(p, PST_EPARSE, "an exponent without digits");
        while (digit(p))
            p->at++;
    }
    char copy[NUMBER_BYTES_MAX + 1];
    size_t n = (size_t)(p->at - from);
    if (n > NUMBER_BYTES_MAX)
        return eng_pull_fail(p, PST_ELIMIT, "a number of %zu characters; at most %d are taken", n, NUMBER_BYTES_MAX);
    memcpy(copy, from, n);
    copy[n] = 0;
    if (whole && n_digits <= 18 && !(minus && *digits == '0')) {
        int64_t v = 0;
        for (size_t i = 0; i < n_digits; i++)
            v = v * 10 + (digits[i] - '0');
        v = minus ? -v : v;
        *t = (eng_pull_token){.kind = ENG_PULL_INT, .i = v, .f = (float)v};
        return 0;
    }
    *t = (eng_pull_token){.kind = ENG_PULL_REAL, .f = strtof_l(copy, NULL, p->c_locale)};
    return isinf(t->f) ? eng_pull_fail(p, PST_EPARSE, "the number %.40s is larger than a float holds", copy) : 0;
}

static int word(eng_pull *p, eng_pull_token *t)
{
    static const struct {
        const char *text;
        eng_pull_kind kind;
        int64_t i;
        float f;
    } words[] = {{"true", ENG_PULL_BOOL, 1, 1},  {"false", ENG_PULL_BOOL, 0, 0},           {"null", ENG_PULL_NULL, 0, 0},
                 {"NaN", ENG_PULL_REAL, 0, NAN}, {"Infinity", ENG_PULL_REAL, 0, INFINITY}, {"-Infinity", ENG_PULL_REAL, 0, -INFINITY}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].text);
        if ((size_t)(p->end - p->at) >= n && !memcmp(p->at, words[i].text, n)) {
            p->at += n;
            *t = (eng_pull_token){.kind = words[i].kind, .i = words[i].i, .f = words[i].f};
            return 0;
        }
    }
    return eng_pull_fail(p, PST_EPARSE, "a value was expected");
}

static int value(eng_pull *p, eng_pull_token *t)
{
    if (p->at == p->end)
        return eng_pull_fail(p, PST_EPARSE, "the file ends where a value was expected");
    int c = *p->at;
    if (c == '"')
        return text(p, t, ENG_PULL_TEXT);
    if (c == '{' || c == '[') {
        p->at++;
        t->kind = c == '{' ? ENG_PULL_OBJECT : ENG_PULL_ARRAY;
        return eng_pull_push(p, (eng_pull_frame){.object = c == '{'});
    }
    if ((c >= '0' && c <= '9') || (c == '-' && p->end - p->at > 1 && p->at[1] != 'I'))
        return number(p, t);
    return word(p, t);
}

/* One token a call. Where the reader stands is in its frames, not on the C stack; a key and its value are two calls (after_key). */
int eng_pull_json_next(eng_pull *p, eng_pull_token *t)
{
    skip_space(p);
    if (!p->depth) {
        if (!p->started) {
            p->started = true;
            return value(p, t);
        }
        t->kind = ENG_PULL_END;
        return p->at == p->end ? 0 : eng_pull_fail(p, PST_EPARSE, "more bytes behind the document");
    }
    eng_pull_frame *f = &p->frames[p->depth - 1];
    if (f->after_key) {
        f->after_key = false;
        return value(p, t);
    }
    if (p->at == p->end)
        return eng_pull_fail(p, PST_EPARSE, "the file ends inside %s", f->object ? "an object" : "a list");
    if (*p->at == (f->object ? '}' : ']')) {
        p->at++;
        p->depth--;
        t->kind = f->object ? ENG_PULL_OBJECT_END : ENG_PULL_ARRAY_END;
        return 0;
    }
    if (!f->first) {
        if (*p->at != ',')
            return eng_pull_fail(p, PST_EPARSE, "a comma was expected");
        p->at++;
        skip_space(p);
    }
    f->first = false;
    if (!f->object)
        return value(p, t);
    if (p->at == p->end || *p->at != '"')
        return eng_pull_fail(p, PST_EPARSE, "a key was expected");
    int rc = text(p, t, ENG_PULL_KEY);
    if (rc < 0)
        return rc;
    skip_space(p);
    if (p->at == p->end || *p->at != ':')
        return eng_pull_fail(p, PST_EPARSE, "a colon was expected behind a key");
    p->at++;
    f->after_key = true;
    return 0;
}
