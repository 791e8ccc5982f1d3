/* avro_peer.c - our Avro reader behind a pipe, for tests in other languages (tests/live/test_avro_fastavro.py): one JSON object a line in, one a
 * line out.
 *     {"op":"decode","schema":S,"hex":H}                → {"json":…}            any data → plain JSON
 *     {"op":"encode","schema":S,"json":V}               → {"hex":…}
 *     {"op":"struct","schema":S,"hex":H}                → {"json":…}            writer's data → struct Kinds (avro_kinds.avsc) → JSON
 *     {"op":"columns","schema":S,"hex":H,"wants":[[path,"number"|"text"|"raw",slots]…]} → {"numbers":[…],"missing":[…],"texts":[hex|null…],"absent":[…]}
 *     {"op":"can_read","schema":S,"writer":S}           → {"yes":…,"why":…}
 *     {"op":"canonical","schema":S}                     → {"text":…,"fingerprint":hex}
 *     {"op":"kinds"}                                    → {"schema":…}
 * Failures: {"error":text,"code":name}. */
#include "common/base/json.h"

#include "kinds/events.h"
#include "schemas/type.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pst_buf unhex(const json_t *j)
{
    pst_buf b = {0};
    unsigned v;
    for (const char *s = json_string_value(j); s && *s && sscanf(s, "%2x", &v) == 1; s += 2)
        pst_buf_addc(&b, (char)v);
    pst_buf_reserve(&b, 0);
    return b;
}

static json_t *hex(const void *data, size_t len)
{
    pst_buf b = {0};
    for (size_t i = 0; i < len; i++)
        pst_buf_printf(&b, "%02x", ((const uint8_t *)data)[i]);
    json_t *j = json_string(b.data ? b.data : "");
    pst_buf_done(&b);
    return j;
}

static int parse(const json_t *request, const char *key, pst_schema **ret, pst_err *err)
{
    char *text = pst_json_text(json_object_get(request, key));
    int rc = pst_schema_parse(text, strlen(text), ret, err);
    free(text);
    return rc;
}

static int to_struct(const pst_schema *s, const pst_buf *b, json_t *answer, pst_err *err)
{
    pst_decode_plan *p = NULL;
    pst_kinds k;
    int rc = pst_decode_plan_new(s, &pst_kinds_type, &p, err);
    if (!rc && (rc = pst_decode_run(p, b->data, b->len, &k, err)) == 0) {
        json_object_set_new(answer, "json", pst_event_to_json(&pst_kinds_type, &k));
        pst_event_clear(&pst_kinds_type, &k);
    }
    pst_decode_plan_free(p);
    return rc;
}

static int to_columns(const pst_schema *s, const pst_buf *b, const json_t *request, json_t *answer, pst_err *err)
{
    const json_t *list = json_object_get(request, "wants");
    size_t n = json_array_size(list), slots = 0;
    pst_want *wants = pst_alloc(n * sizeof *wants);
    pst_columns *c = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *kind = json_string_value(json_array_get(json_array_get(list, i), 1));
        wants[i].path = json_string_value(json_array_get(json_array_get(list, i), 0));
        wants[i].kind = *kind == 'n' ? PST_WANT_NUMBER : *kind == 't' ? PST_WANT_TEXT : PST_WANT_RAW;
        wants[i].slots = (uint32_t)json_integer_value(json_array_get(json_array_get(list, i), 2));
        slots += *kind == 'n' ? wants[i].slots : 0;
    }
    double *numbers = pst_alloc(slots * sizeof *numbers);
    uint8_t *missing = pst_alloc(n);
    pst_slice *texts = pst_alloc(n * sizeof *texts);
    int rc = pst_columns_new(s, wants, n, &c, err);
    if (!rc && (rc = pst_columns_run(c, b->data, b->len, numbers, missing, texts, err)) == 0) {
        json_t *jn = json_array(), *jm = json_array(), *jt = json_array(), *ja = json_array();
        for (size_t i = 0; i < slots; i++)
            json_array_append_new(jn, isfinite(numbers[i]) ? json_real(numbers[i])
                                                           : json_string(isnan(numbers[i]) ? "NaN"
                                                                         : numbers[i] > 0  ? "Infinity"
                                                                                           : "-Infinity"));
        for (size_t i = 0; i < n; i++) {
            json_array_append_new(jm, json_integer(missing[i]));
            json_array_append_new(jt, texts[i].data ? hex(texts[i].data, texts[i].len) : json_null());
            json_array_append_new(ja, json_boolean(pst_columns_absent(c, i)));
        }
        json_object_set_new(answer, "numbers", jn);
        json_object_set_new(answer, "missing", jm);
        json_object_set_new(answer, "texts", jt);
        json_object_set_new(answer, "absent", ja);
    }
    pst_columns_free(c);
    free(numbers);
    free(missing);
    free(texts);
    free(wants);
    return rc;
}

static int serve(const json_t *request, json_t *answer, pst_err *err)
{
    const char *op = pst_json_str(request, "op", "");
    pst_schema *s = NULL, *w = NULL;
    pst_buf b = unhex(json_object_get(request, "hex")), out = {0};
    json_t *j = NULL;
    int rc = 0;
    if (!strcmp(op, "kinds"))
        json_object_set_new(answer, "schema", json_string(pst_type_schema(&pst_kinds_type)));
    else
        rc = parse(request, "schema", &s, err);
    if (!rc && !strcmp(op, "decode") && (rc = pst_avro_to_json(s, b.data, b.len, &j, err)) == 0)
        json_object_set_new(answer, "json", j);
    if (!rc && !strcmp(op, "encode") && (rc = pst_avro_from_json(s, json_object_get(request, "json"), &out, err)) == 0)
        json_object_set_new(answer, "hex", hex(out.data, out.len));
    if (!rc && !strcmp(op, "struct"))
        rc = to_struct(s, &b, answer, err);
    if (!rc && !strcmp(op, "columns"))
        rc = to_columns(s, &b, request, answer, err);
    if (!rc && !strcmp(op, "can_read") && (rc = parse(request, "writer", &w, err)) == 0) {
        json_object_set_new(answer, "yes", json_boolean(pst_schema_can_read(s, w, &out)));
        json_object_set_new(answer, "why", json_string(out.data ? out.data : ""));
    }
    if (!rc && !strcmp(op, "canonical")) {
        pst_schema_canonical(s, &out);
        json_object_set_new(answer, "text", json_string(out.data));
        pst_buf_clear(&out);
        pst_buf_printf(&out, "%016llx", (unsigned long long)pst_schema_fingerprint(s));
        json_object_set_new(answer, "fingerprint", json_string(out.data));
    }
    pst_schema_free(s);
    pst_schema_free(w);
    pst_buf_done(&b);
    pst_buf_done(&out);
    return rc;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        pst_err err = {0};
        json_t *request = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL), *answer = json_object();
        int rc = request ? serve(request, answer, &err) : PST_EPARSE;
        if (rc < 0) {
            json_object_clear(answer);
            json_object_set_new(answer, "error", json_string(err.text));
            json_object_set_new(answer, "code", json_string(pst_code_name(rc)));
        }
        char *text = pst_json_text(answer);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(answer);
        json_decref(request);
    }
    free(line);
    return 0;
}
