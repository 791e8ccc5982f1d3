/* s3_xml.c - one pass over the bytes, a stack of names, no tree. What we do not need is checked as the rest and passed over: a server may add elements. */
#include "common/objects/s3_xml.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/http/fetch.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 16, NAME_MAX_ = 64, TEXT_MAX = 8192 };

typedef struct reader {
    const char *at, *end;
    char names[DEPTH_MAX][NAME_MAX_];
    int depth;
    pst_buf text; /* of the innermost element, since its last child */
    pst_err *err;
} reader;

static int bad(reader *r, const char *what)
{
    return pst_err_set(r->err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "the answer is not the XML of an S3 server: %s", what);
}

static bool begins(const reader *r, const char *with)
{
    size_t n = strlen(with);
    return (size_t)(r->end - r->at) >= n && !memcmp(r->at, with, n);
}

static void add_utf8(pst_buf *out, unsigned long c)
{
    if (c < 0x80) {
        pst_buf_addc(out, (char)c);
    } else if (c < 0x800) {
        pst_buf_addc(out, (char)(0xc0 | c >> 6));
        pst_buf_addc(out, (char)(0x80 | (c & 0x3f)));
    } else {
        if (c < 0x10000) {
            pst_buf_addc(out, (char)(0xe0 | c >> 12));
        } else {
            pst_buf_addc(out, (char)(0xf0 | c >> 18));
            pst_buf_addc(out, (char)(0x80 | (c >> 12 & 0x3f)));
        }
        pst_buf_addc(out, (char)(0x80 | (c >> 6 & 0x3f)));
        pst_buf_addc(out, (char)(0x80 | (c & 0x3f)));
    }
}

/* "&amp;", "&#10;", "&#xA;". A NUL is no character: no file could be named so. */
static int entity(reader *r)
{
    static const struct {
        const char *name;
        char c;
    } five[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof five / sizeof *five; i++)
        if (begins(r, five[i].name)) {
            pst_buf_addc(&r->text, five[i].c);
            r->at += strlen(five[i].name);
            return 0;
        }
    const char *semicolon = memchr(r->at, ';', (size_t)(r->end - r->at) < 12 ? (size_t)(r->end - r->at) : 12);
    if (!semicolon || !begins(r, "&#"))
        return bad(r, "an entity that is not known");
    char digits[16];
    size_t n = (size_t)(semicolon - r->at) - 2;
    memcpy(digits, r->at + 2, n);
    digits[n] = 0;
    bool is_hex = *digits == 'x';
    const char *from = digits + is_hex;
    if (!*from || strspn(from, is_hex ? "0123456789abcdefABCDEF" : "0123456789") != strlen(from))
        return bad(r, "a character that is no number");
    unsigned long c = strtoul(from, NULL, is_hex ? 16 : 10);
    if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return bad(r, "a number that is no character");
    add_utf8(&r->text, c);
    r->at = semicolon + 1;
    return 0;
}

/* A name without its prefix; r->at stands behind it. */
static int name_at(reader *r, char ret[NAME_MAX_])
{
    const char *from = r->at;
    while (r->at < r->end && !strchr(" \t\r\n/>=\"'<&", *r->at))
        if (*r->at++ == ':')
            from = r->at;
    size_t n = (size_t)(r->at - from);
    if (!n || n >= NAME_MAX_ || memchr(from, 0, n))
        return bad(r, "an element without a name, or with one that is too long");
    memcpy(ret, from, n);
    ret[n] = 0;
    return 0;
}

/* To behind the next '>', quotes minded. *ret_empty: it was "/>". */
static int rest_of_tag(reader *r, bool *ret_empty)
{
    char quote = 0;
    for (; r->at < r->end; r->at++) {
        if (quote) {
            quote = *r->at == quote ? 0 : quote;
        } else if (*r->at == '"' || *r->at == '\'') {
            quote = *r->at;
        } else if (*r->at == '<') {
            break;
        } else if (*r->at == '>') {
            *ret_empty = r->at[-1] == '/';
            r->at++;
            return 0;
        }
    }
    return bad(r, "an element that does not end");
}

static int skip_past(reader *r, const char *what)
{
    const char *at = memmem(r->at, (size_t)(r->end - r->at), what, strlen(what));
    if (!at)
        return bad(r, "a remark that does not end");
    r->at = at + strlen(what);
    return 0;
}

/* Of an element that ends: its text goes to the caller. */
static int close_one(reader *r, int (*fn)(void *, const char *, const char *, const char *), void *arg)
{
    r->depth--;
    pst_buf_adds(&r->text, "");
    int rc = fn(arg, r->depth ? r->names[r->depth - 1] : "", r->names[r->depth], r->text.data);
    pst_buf_clear(&r->text);
    return rc;
}

static int tag(reader *r, int (*fn)(void *, const char *, const char *, const char *), void *arg)
{
    char name[NAME_MAX_];
    bool empty = false, closes = begins(r, "</");
    if (begins(r, "<?"))
        return skip_past(r, "?>");
    if (begins(r, "<!--"))
        return skip_past(r, "-->");
    if (begins(r, "<!"))
        return bad(r, "a document type, or data that are marked as such");
    r->at += closes ? 2 : 1;
    int rc = name_at(r, name);
    if (!rc)
        rc = rest_of_tag(r, &empty);
    if (rc < 0)
        return rc;
    if (closes)
        return r->depth && !strcmp(r->names[r->depth - 1], name) ? close_one(r, fn, arg) : bad(r, "an element ends that did not begin");
    if (r->depth == DEPTH_MAX)
        return bad(r, "more than 16 elements in one another");
    memcpy(r->names[r->depth++], name, sizeof name);
    pst_buf_clear(&r->text);
    return empty ? close_one(r, fn, arg) : 0;
}

int s3_xml_read(const char *text, size_t len, int (*fn)(void *arg, const char *parent, const char *name, const char *text), void *arg,
                pst_err *err)
{
    reader r = {.at = text, .end = text + len, .err = err};
    int rc = 0;
    bool any = false;
    while (!rc && r.at < r.end) {
        if (*r.at == '<') {
            rc = tag(&r, fn, arg);
            any = any || r.depth;
        } else if (*r.at == '&') {
            rc = entity(&r);
        } else if (!*r.at || r.text.len >= TEXT_MAX) {
            rc = bad(&r, "more than 8 KiB of text in one element, or a NUL");
        } else {
            pst_buf_addc(&r.text, *r.at++);
        }
    }
    if (!rc && (r.depth || !any))
        rc = bad(&r, any ? "it ends in the middle" : "there is no element in it");
    pst_buf_done(&r.text);
    return rc;
}

/* ---- lists ------------------------------------------------------------------------------------------------------------------------- */

typedef struct listing {
    pst_s3_list *list;
    char *key, *next;
    int64_t size, modified_us;
    bool sized, truncated, coded, is_list;
    size_t before;
    pst_err *err;
} listing;

static int take_object(listing *l)
{
    pst_s3_list *list = l->list;
    if (!l->key || !*l->key || !l->sized)
        return pst_err_set(l->err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "the list has an object without a key or a size");
    list->at = pst_array_room(list->at, list->n, &list->cap, sizeof *list->at);
    list->at[list->n++] = (pst_s3_object){.key = l->key, .bytes = l->size, .modified_us = l->modified_us};
    l->key = NULL;
    l->modified_us = 0;
    l->sized = false;
    return 0;
}

static int on_list(void *arg, const char *parent, const char *name, const char *text)
{
    listing *l = arg;
    bool object = !strcmp(parent, "Contents"), top = !strcmp(parent, "ListBucketResult");
    if (object && !strcmp(name, "Key")) {
        free(l->key);
        l->key = pst_strdup(text);
    } else if (object && !strcmp(name, "Size")) {
        char *end;
        l->size = strtoll(text, &end, 10);
        l->sized = *text && !*end && l->size >= 0 && l->size < INT64_MAX;
    } else if (object && !strcmp(name, "LastModified")) {
        if (pst_time_parse(text, &l->modified_us) < 0)
            l->modified_us = 0;
    } else if (top && !strcmp(name, "Contents")) {
        return take_object(l);
    } else if (top && !strcmp(name, "IsTruncated")) {
        l->truncated = !strcmp(text, "true");
    } else if (top && !strcmp(name, "EncodingType")) {
        l->coded = !strcmp(text, "url");
    } else if (top && !strcmp(name, "NextContinuationToken")) {
        free(l->next);
        l->next = pst_strdup(text);
    } else if (!*parent) {
        l->is_list = !strcmp(name, "ListBucketResult");
    }
    return 0;
}

/* A server that codes its keys says so, before or after them; a form's + stands for a blank there. */
static int decode_keys(listing *l)
{
    for (size_t i = l->before; l->coded && i < l->list->n; i++) {
        char *key = l->list->at[i].key;
        for (char *c = key; *c; c++)
            *c = *c == '+' ? ' ' : *c;
        if (strstr(key, "%00"))
            return pst_err_set(l->err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "the list has a key with a NUL in it: no file can be named so");
        l->list->at[i].key = pst_fetch_unescape(key, strlen(key));
        free(key);
    }
    return 0;
}

int s3_xml_list(const char *text, size_t len, pst_s3_list *list, char **ret_next, pst_err *err)
{
    listing l = {.list = list, .before = list->n, .err = err};
    int rc = s3_xml_read(text, len, on_list, &l, err);
    if (!rc)
        rc = decode_keys(&l);
    if (!rc && !l.is_list)
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "the answer is no list of a bucket (is it an S3 server?)");
    if (!rc && l.truncated && (!l.next || !*l.next))
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "the list is cut, and does not say where it goes on");
    if (!rc) {
        *ret_next = l.truncated ? l.next : NULL;
        l.next = l.truncated ? NULL : l.next;
    }
    free(l.key);
    free(l.next);
    return rc;
}

/* ---- one value --------------------------------------------------------------------------------------------------------------------- */

typedef struct search {
    const char *name;
    char *found;
} search;

static int on_value(void *arg, const char *parent, const char *name, const char *text)
{
    search *s = arg;
    if (!s->found && !strcmp(name, s->name))
        s->found = pst_strdup(text);
    return 0;
}

char *s3_xml_value(const char *text, size_t len, const char *name)
{
    search s = {.name = name};
    pst_err unused = {0};
    s3_xml_read(text, len, on_value, &s, &unused);
    return s.found ? s.found : pst_strdup("");
}
