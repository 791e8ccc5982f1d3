/* trace.c - a traceparent is text from strangers that goes on into headers, environments and logs: what does not parse is dropped, not carried. */
#include "common/platform/trace.h"

#include "common/base/hash.h"
#include "common/bus/bus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADERS_MAX = 64, SPAN_AT = 36, SPAN_LEN = 16, FLAGS_AT = 53 };

static bool is_hex(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(p[i] >= '0' && p[i] <= '9') && !(p[i] >= 'a' && p[i] <= 'f'))
            return false;
    return true;
}

static bool is_zero(const char *p, size_t n)
{
    return strspn(p, "0") >= n;
}

bool pst_trace_parse(const char *text, size_t len, pst_trace *ret)
{
    *ret = (pst_trace){0};
    if (!text || len < PST_TRACE_LEN || !is_hex(text, 2) || !memcmp(text, "ff", 2))
        return false;
    if (memcmp(text, "00", 2) ? len > PST_TRACE_LEN && text[PST_TRACE_LEN] != '-' : len != PST_TRACE_LEN)
        return false;
    pst_trace t = {0};
    memcpy(t.text, text, PST_TRACE_LEN);
    if (t.text[2] != '-' || t.text[SPAN_AT - 1] != '-' || t.text[FLAGS_AT - 1] != '-')
        return false;
    if (!is_hex(t.text + PST_TRACE_ID_AT, PST_TRACE_ID_LEN) || is_zero(t.text + PST_TRACE_ID_AT, PST_TRACE_ID_LEN))
        return false;
    if (!is_hex(t.text + SPAN_AT, SPAN_LEN) || is_zero(t.text + SPAN_AT, SPAN_LEN) || !is_hex(t.text + FLAGS_AT, 2))
        return false;
    memcpy(t.text, "00", 2); /* what we send on is of the version that we know */
    *ret = t;
    return true;
}

void pst_trace_child(const pst_trace *of, pst_trace *ret)
{
    uint8_t bytes[16 + 8];
    char hex[2 * sizeof bytes + 1], flags[3] = "01";
    pst_random(bytes, sizeof bytes);
    bytes[0] |= 1; /* neither is ever all zeros */
    bytes[16] |= 1;
    pst_hex(bytes, sizeof bytes, hex);
    if (of && *of->text) {
        memcpy(hex, of->text + PST_TRACE_ID_AT, PST_TRACE_ID_LEN);
        memcpy(flags, of->text + FLAGS_AT, 2);
    }
    snprintf(ret->text, sizeof ret->text, "00-%.32s-%.16s-%s", hex, hex + PST_TRACE_ID_LEN, flags);
}

void pst_trace_of_record(const pst_record *r, pst_trace *ret)
{
    pst_header headers[HEADERS_MAX];
    size_t n = pst_record_headers(r, headers, HEADERS_MAX);
    *ret = (pst_trace){0};
    for (size_t i = 0; i < n && i < HEADERS_MAX; i++)
        if (!strcmp(headers[i].name, PST_TRACE_HEADER) && pst_trace_parse(headers[i].value, headers[i].len, ret))
            return;
}

void pst_trace_of_environment(pst_trace *ret)
{
    const char *text = getenv("TRACEPARENT");
    pst_trace_parse(text, text ? strlen(text) : 0, ret);
}

size_t pst_trace_header(const pst_trace *t, pst_header *ret_header)
{
    if (!*t->text)
        return 0;
    *ret_header = (pst_header){PST_TRACE_HEADER, t->text, PST_TRACE_LEN};
    return 1;
}

void pst_trace_out(const pst_trace *t, const char *topic, const char *key, const pst_buf *value, pst_header *header, pst_out *ret_out)
{
    *ret_out = (pst_out){.topic = topic,
                         .partition = -1,
                         .key = key,
                         .key_len = strlen(key),
                         .value = value->data,
                         .value_len = value->len,
                         .headers = header,
                         .n_headers = pst_trace_header(t, header)};
}
