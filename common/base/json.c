/* json.c - Jansson with our limits and our errors, and a printer of our own: Jansson writes all reals with one number of digits, and a
 * weight or a metric is to come back as the same bits. */
#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pst_json_parse(const char *text, size_t len, const char *what, json_t **ret_json, pst_err *err)
{
    json_error_t e;
    if (len > (64u << 20))
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "json", 0, "%s is larger than 64 MiB", what);
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!j)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "json", 0, "%s is not JSON: %s at line %d column %d", what, e.text, e.line,
                           e.column);
    *ret_json = j;
    return 0;
}

const char *pst_json_str(const json_t *obj, const char *key, const char *def)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : def;
}

int64_t pst_json_int(const json_t *obj, const char *key, int64_t def)
{
    const json_t *v = json_object_get(obj, key);
    if (json_is_integer(v))
        return json_integer_value(v);
    return json_is_real(v) ? (int64_t)json_real_value(v) : def;
}

double pst_json_num(const json_t *obj, const char *key, double def)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_number(v) ? json_number_value(v) : def;
}

bool pst_json_bool(const json_t *obj, const char *key, bool def)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_boolean(v) ? json_is_true(v) : def;
}

/* The shortest text that reads back as the same number: 0.1, not 0.10000000000000001. */
static void add_real(pst_buf *out, double x)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    pst_buf_adds(out, text);
    if (!text[strcspn(text, ".e")]) /* stays a real for readers that keep the two apart */
        pst_buf_adds(out, ".0");
}

/* Members keep their order; NULL is null, so that a missing member can be printed without asking. */
void pst_json_add(pst_buf *out, const json_t *j)
{
    const char *key;
    json_t *v;
    bool first = true;
    switch (j ? json_typeof(j) : JSON_NULL) {
    case JSON_OBJECT:
        pst_buf_addc(out, '{');
        json_object_foreach((json_t *)j, key, v)
        {
            if (!first)
                pst_buf_addc(out, ',');
            first = false;
            pst_json_quote(out, key, strlen(key));
            pst_buf_addc(out, ':');
            pst_json_add(out, v);
        }
        pst_buf_addc(out, '}');
        break;
    case JSON_ARRAY:
        pst_buf_addc(out, '[');
        for (size_t i = 0; i < json_array_size(j); i++) {
            if (i)
                pst_buf_addc(out, ',');
            pst_json_add(out, json_array_get(j, i));
        }
        pst_buf_addc(out, ']');
        break;
    case JSON_STRING: pst_json_quote(out, json_string_value(j), json_string_length(j)); break;
    case JSON_INTEGER: pst_buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(j)); break;
    case JSON_REAL: add_real(out, json_real_value(j)); break;
    case JSON_TRUE: pst_buf_adds(out, "true"); break;
    case JSON_FALSE: pst_buf_adds(out, "false"); break;
    case JSON_NULL: pst_buf_adds(out, "null"); break;
    }
}

void pst_json_print(FILE *to, const json_t *j)
{
    pst_buf b = {0};
    pst_json_add(&b, j);
    pst_buf_addc(&b, '\n');
    fwrite(b.data, 1, b.len, to);
    pst_buf_done(&b);
}

json_t *pst_json_real(double v)
{
    if (isfinite(v))
        return json_real(v);
    if (isnan(v))
        return json_string("NaN");
    return json_string(v > 0 ? "Infinity" : "-Infinity");
}

char *pst_json_text(const json_t *j)
{
    pst_buf b = {0};
    pst_json_add(&b, j);
    return pst_buf_steal(&b);
}

/* Length of the valid UTF-8 sequence at p (≤ left), or 0. Overlong forms, surrogates and values above U+10FFFF are invalid. */
static size_t utf8_len(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    size_t n = 0;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        n = 2;
    else if ((p[0] & 0xf0) == 0xe0)
        n = 3;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        n = 4;
    if (!n || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

void pst_json_quote(pst_buf *out, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    pst_buf_addc(out, '"');
    for (size_t i = 0; i < len;) {
        size_t n = utf8_len(p + i, len - i);
        if (!n) {
            pst_buf_adds(out, "\xef\xbf\xbd");
            i++;
        } else if (n > 1) {
            pst_buf_add(out, text + i, n);
            i += n;
        } else {
            unsigned char c = p[i++];
            if (c == '"' || c == '\\')
                pst_buf_printf(out, "\\%c", c);
            else if (c == '\n')
                pst_buf_adds(out, "\\n");
            else if (c < 0x20 || c == 0x7f)
                pst_buf_printf(out, "\\u%04x", c);
            else
                pst_buf_addc(out, (char)c);
        }
    }
    pst_buf_addc(out, '"');
}
