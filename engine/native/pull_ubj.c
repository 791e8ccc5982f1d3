/* pull_ubj.c - UBJSON (draft 12: big-endian, optimised containers with $ and #) for the pull reader; see pull.h. */
#include "engine/native/pull.h"

#include <string.h>

static int byte(eng_pull *p, uint8_t *ret)
{
    if (p->at == p->end)
        return eng_pull_fail(p, PST_EPARSE, "the file ends inside a value");
    *ret = *p->at++;
    return 0;
}

/* Bytes of a whole number's or float's marker; 0 = another kind of marker. */
static int width_of(uint8_t marker)
{
    switch (marker) {
    case 'i':
    case 'U': return 1;
    case 'I': return 2;
    case 'l':
    case 'd': return 4;
    case 'L':
    case 'D': return 8;
    default: return 0;
    }
}

static int bits(eng_pull *p, int width, uint64_t *ret)
{
    if (p->end - p->at < width)
        return eng_pull_fail(p, PST_EPARSE, "the file ends inside a number");
    uint64_t v = 0;
    for (int i = 0; i < width; i++)
        v = v << 8 | *p->at++;
    *ret = v;
    return 0;
}

static int number(eng_pull *p, uint8_t marker, eng_pull_token *t)
{
    uint64_t v;
    int rc = bits(p, width_of(marker), &v);
    if (rc < 0)
        return rc;
    t->kind = ENG_PULL_INT;
    switch (marker) {
    case 'i': t->i = (int8_t)v; break;
    case 'U': t->i = (uint8_t)v; break;
    case 'I': t->i = (int16_t)v; break;
    case 'l': t->i = (int32_t)v; break;
    case 'L': t->i = (int64_t)v; break;
    case 'd': {
        uint32_t low = (uint32_t)v;
        t->kind = ENG_PULL_REAL;
        memcpy(&t->f, &low, sizeof t->f);
        return 0;
    }
    default: {
        double d;
        t->kind = ENG_PULL_REAL;
        memcpy(&d, &v, sizeof d);
        t->f = (float)d;
        return 0;
    }
    }
    t->f = (float)t->i;
    return 0;
}

static int length(eng_pull *p, uint64_t *ret)
{
    uint8_t marker;
    eng_pull_token t = {0};
    int rc = byte(p, &marker);
    if (rc < 0)
        return rc;
    if (!width_of(marker) || marker == 'd' || marker == 'D')
        return eng_pull_fail(p, PST_EPARSE, "a length that is no whole number");
    if ((rc = number(p, marker, &t)) < 0)
        return rc;
    if (t.i < 0 || t.i > p->end - p->at)
        return eng_pull_fail(p, PST_EPARSE, "a length of %lld; %lld bytes are left", (long long)t.i, (long long)(p->end - p->at));
    *ret = (uint64_t)t.i;
    return 0;
}

static int text(eng_pull *p, eng_pull_token *t, eng_pull_kind kind)
{
    uint64_t n;
    int rc = length(p, &n);
    if (rc < 0)
        return rc;
    p->text_n = 0;
    eng_pull_add(p, p->at, (size_t)n);
    p->at += n;
    *t = (eng_pull_token){.kind = kind, .s = p->text, .n = (size_t)n};
    return 0;
}

/* Behind [ or {: the element type ($) and the count (#), where given. Each element takes a byte at least, so length() bounds the count. */
static int open_container(eng_pull *p, bool object)
{
    eng_pull_frame f = {.object = object};
    int rc = 0;
    if (p->at < p->end && *p->at == '$') {
        p->at++;
        if ((rc = byte(p, &f.type)) < 0)
            return rc;
        if (!width_of(f.type) && f.type != 'S' && f.type != 'C')
            return eng_pull_fail(p, PST_EUNSUPPORTED, "a typed %s of elements 0x%02x", object ? "object" : "list", f.type);
        if (p->at == p->end || *p->at != '#')
            return eng_pull_fail(p, PST_EPARSE, "a typed %s without a count", object ? "object" : "list");
    }
    if (p->at < p->end && *p->at == '#') {
        p->at++;
        f.counted = true;
        rc = length(p, &f.left);
    }
    return rc < 0 ? rc : eng_pull_push(p, f);
}

static int value(eng_pull *p, uint8_t marker, eng_pull_token *t)
{
    uint8_t c;
    int rc;
    switch (marker) {
    case 'Z': t->kind = ENG_PULL_NULL; return 0;
    case 'T':
    case 'F': *t = (eng_pull_token){.kind = ENG_PULL_BOOL, .i = marker == 'T', .f = marker == 'T'}; return 0;
    case 'C':
        if ((rc = byte(p, &c)) < 0)
            return rc;
        p->text_n = 0;
        eng_pull_add(p, &c, 1);
        *t = (eng_pull_token){.kind = ENG_PULL_TEXT, .s = p->text, .n = 1};
        return 0;
    case 'S': return text(p, t, ENG_PULL_TEXT);
    case '[':
    case '{': t->kind = marker == '{' ? ENG_PULL_OBJECT : ENG_PULL_ARRAY; return open_container(p, marker == '{');
    default:
        return width_of(marker) ? number(p, marker, t)
                                : eng_pull_fail(p, marker == 'H' ? PST_EUNSUPPORTED : PST_EPARSE, "0x%02x begins no value", marker);
    }
}

static int next_marker(eng_pull *p, uint8_t *ret)
{
    int rc;
    do
        rc = byte(p, ret);
    while (rc == 0 && *ret == 'N'); /* no-operation */
    return rc;
}

/* A value, whose marker stands before it unless the container has said its type (0: it has not). */
static int marked_value(eng_pull *p, uint8_t marker, eng_pull_token *t)
{
    int rc = marker ? 0 : next_marker(p, &marker);
    return rc < 0 ? rc : value(p, marker, t);
}

/* One token a call, as in JSON. A container may say its count, then it has no marker of its end, and its type, then its elements have none. */
int eng_pull_ubj_next(eng_pull *p, eng_pull_token *t)
{
    if (!p->depth) {
        if (p->started) {
            t->kind = ENG_PULL_END;
            return p->at == p->end ? 0 : eng_pull_fail(p, PST_EPARSE, "more bytes behind the document");
        }
        p->started = true;
        return marked_value(p, 0, t);
    }
    eng_pull_frame *f = &p->frames[p->depth - 1];
    if (f->after_key) {
        f->after_key = false;
        return marked_value(p, f->type, t);
    }
    bool over = f->counted && !f->left;
    if (!f->counted) {
        while (p->at < p->end && *p->at == 'N')
            p->at++;
        if (p->at == p->end)
            return eng_pull_fail(p, PST_EPARSE, "the file ends inside %s", f->object ? "an object" : "a list");
        over = *p->at == (f->object ? '}' : ']');
        p->at += over;
    }
    if (over) {
        p->depth--;
        t->kind = f->object ? ENG_PULL_OBJECT_END : ENG_PULL_ARRAY_END;
        return 0;
    }
    f->left -= f->counted;
    if (f->object) {
        f->after_key = true;
        return text(p, t, ENG_PULL_KEY);
    }
    return marked_value(p, f->type, t);
}
