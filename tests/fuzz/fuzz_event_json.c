/* fuzz_event_json.c - the JSON texts that anyone may publish: requests, models, pipelines. An event that was taken gives a text that is
 * taken again and gives the same text. */
#include "common/base/json.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef union any {
    pst_job_request request;
    pst_model_event model;
    pst_pipeline_spec pipeline;
} any;

static char *round_trip(const pst_type *t, const json_t *in)
{
    any event;
    pst_err err = {0};
    memset(&event, 0, sizeof event);
    if (pst_event_from_json(t, in, &event, &err) < 0) {
        PST_ASSERT(err.text[0]);
        return NULL;
    }
    json_t *out = pst_event_to_json(t, &event);
    char *text = pst_json_text(out);
    json_decref(out);
    pst_event_clear(t, &event);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pst_type *const types[] = {&pst_job_request_type, &pst_model_event_type, &pst_pipeline_spec_type};
    json_t *in = NULL;
    if (pst_json_parse((const char *)data, size, "fuzz", &in, NULL) < 0)
        return 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char *first = round_trip(types[i], in);
        json_t *again = NULL;
        if (!first)
            continue;
        PST_ASSERT(pst_json_parse(first, strlen(first), "again", &again, NULL) == 0);
        char *second = round_trip(types[i], again);
        PST_ASSERT(second && !strcmp(first, second));
        json_decref(again);
        free(first);
        free(second);
    }
    json_decref(in);
    return 0;
}
