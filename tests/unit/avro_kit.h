/* avro_kit.h - what the tests of schemas/ share: schema and JSON texts with ' for ", hex for bytes. */
#ifndef PST_TESTS_AVRO_KIT_H
#define PST_TESTS_AVRO_KIT_H

#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "schemas/avro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REC(fields)         "{'type':'record','name':'R','fields':[" fields "]}"
#define F(name, type)       "{'name':'" name "','type':" type "}"
#define FD(name, type, def) "{'name':'" name "','type':" type ",'default':" def "}"

static inline char *quotes(const char *text)
{
    char *copy = pst_strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    return copy;
}

static inline pst_schema *schema(const char *text)
{
    pst_schema *s = NULL;
    pst_err err = {0};
    char *q = quotes(text);
    if (pst_schema_parse(q, strlen(q), &s, &err) < 0)
        fail_msg("%s: %s", q, err.text);
    free(q);
    return s;
}

static inline json_t *json(const char *text)
{
    char *q = quotes(text);
    json_t *j = json_loads(q, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!j)
        fail_msg("not JSON: %s", q);
    free(q);
    return j;
}

/* "02 0a68" → bytes; spaces are ignored. */
static inline pst_buf hex(const char *text)
{
    pst_buf b = {0};
    for (unsigned v; *text; text++)
        if (*text != ' ') {
            assert_int_equal(sscanf(text, "%2x", &v), 1);
            pst_buf_addc(&b, (char)v);
            text++;
        }
    pst_buf_reserve(&b, 0);
    return b;
}

/* Avro bytes of a JSON value by a schema. */
static inline pst_buf bytes_of(const pst_schema *s, const char *text)
{
    pst_buf b = {0};
    pst_err err = {0};
    json_t *j = json(text);
    if (pst_avro_from_json(s, j, &b, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    json_decref(j);
    pst_buf_reserve(&b, 0);
    return b;
}

static inline void assert_json(const json_t *got, const char *want)
{
    json_t *w = json(want);
    if (!json_equal(got, w)) {
        char *text = pst_json_text(got);
        fail_msg("got %s, want %s", text, want);
    }
    json_decref(w);
}

/* data as exactly sized heap memory: reading beyond its end is seen by ASan. */
static inline void *exact(const void *data, size_t len)
{
    void *p = malloc(len ? len : 1);
    memcpy(p, data, len);
    return p;
}

#endif
