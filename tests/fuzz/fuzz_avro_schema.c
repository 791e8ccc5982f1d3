/* fuzz_avro_schema.c - schema text is untrusted: parse, print, compare with itself, make plans and JSON of it. Whatever is accepted must have a
 * canonical form that is accepted again with the same fingerprint, and must be able to read itself unless comparing gave up. */
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    pst_schema *s = NULL, *again = NULL;
    pst_err err = {0};
    pst_buf text = {0}, why = {0}, out = {0};
    pst_decode_plan *plan = NULL;
    pst_columns *columns = NULL;
    static const pst_want wants[] = {
        {"a", PST_WANT_NUMBER, 1}, {"b", PST_WANT_TEXT, 0}, {"a.a", PST_WANT_RAW, 0}, {"f.a.b", PST_WANT_NUMBER, 2}};
    if (pst_schema_parse((const char *)data, len, &s, &err) < 0) {
        PST_ASSERT(err.code && err.text[0]);
        if (pst_schema_parse_writer((const char *)data, len, &s, NULL) < 0)
            return 0;
    }
    pst_schema_canonical(s, &text);
    uint64_t fp = pst_schema_fingerprint(s);
    if (pst_schema_parse_writer(text.data, text.len, &again, &err) == 0)
        PST_ASSERT(pst_schema_fingerprint(again) == fp);
    if (!pst_schema_can_read(s, s, &why))
        PST_ASSERT(why.len > 0);
    json_t *empty = json_object();
    pst_avro_from_json(s, empty, &out, NULL);
    json_decref(empty);
    if (pst_decode_plan_new(s, &pst_metric_point_type, &plan, NULL) == 0)
        pst_decode_plan_free(plan);
    if (pst_columns_new(s, wants, sizeof wants / sizeof *wants, &columns, NULL) == 0) {
        for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
            pst_schema *raw = NULL;
            const char *of = pst_columns_schema(columns, i);
            if (of)
                PST_ASSERT(strlen(of) > PST_AVRO_SCHEMA_MAX || pst_schema_parse_writer(of, strlen(of), &raw, NULL) == 0 ||
                           strstr(of, "\"error\""));
            pst_schema_free(raw);
        }
        free(pst_columns_explain(columns));
        pst_columns_free(columns);
    }
    pst_schema_free(again);
    pst_schema_free(s);
    pst_buf_done(&text);
    pst_buf_done(&why);
    pst_buf_done(&out);
    return 0;
}
