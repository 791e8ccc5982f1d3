/* fuzz_avro_decode.c - record bytes are untrusted: the first byte chooses a writer's schema, the rest is its data. Every reader of ours gets it:
 * event struct, columns, JSON. What decodes into a struct encodes to bytes that decode to the same struct. */
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/type.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char *const others[] = {
    "{\"type\":\"record\",\"name\":\"MetricPoint\",\"fields\":[{\"name\":\"training_id\",\"type\":[\"null\",\"bytes\",\"string\"]},{"
    "\"name\":\"time\",\"type\":\"int\"},"
    "{\"name\":\"values\",\"type\":{\"type\":\"map\",\"values\":[\"int\",\"float\"]}},{\"name\":\"skip\",\"type\":{\"type\":\"record\","
    "\"name\":\"Tree\",\"fields\":["
    "{\"name\":\"kids\",\"type\":{\"type\":\"array\",\"items\":\"Tree\"}},{\"name\":\"v\",\"type\":[\"null\",\"string\",\"Tree\"]}]}},"
    "{\"name\":\"nulls\",\"type\":{\"type\":\"array\",\"items\":\"null\"}}]}",
    "{\"type\":\"record\",\"name\":\"Telemetry\",\"fields\":[{\"name\":\"host\",\"type\":{\"type\":\"enum\",\"name\":\"E\",\"symbols\":["
    "\"A\",\"B\"]}},{\"name\":\"cpu\",\"type\":"
    "[\"null\",{\"type\":\"record\",\"name\":\"C\",\"fields\":[{\"name\":\"user\",\"type\":[\"float\",\"null\",\"long\"]},{\"name\":\"v\","
    "\"type\":{\"type\":\"array\",\"items\":"
    "[\"null\",\"double\",\"int\"]}}]}]},{\"name\":\"id\",\"type\":{\"type\":\"fixed\",\"name\":\"F\",\"size\":3}}]}"};

enum { MAX = 64 };

static struct {
    const pst_type *type;
    pst_schema *schema;
    pst_decode_plan *plan;
    pst_columns *columns;
} readers[MAX];
static size_t n_readers;

static const pst_want wants[] = {{"cpu.user", PST_WANT_NUMBER, 1}, {"cpu.v", PST_WANT_NUMBER, 2}, {"host", PST_WANT_TEXT, 0},
                                 {"cpu", PST_WANT_RAW, 0},         {"id", PST_WANT_TEXT, 0},      {"spec", PST_WANT_RAW, 0},
                                 {"time", PST_WANT_NUMBER, 1}};
enum { WANTS = sizeof wants / sizeof *wants };

static void add(const char *text, const pst_type *type)
{
    size_t i = n_readers++;
    PST_ASSERT(i < MAX && pst_schema_parse(text, strlen(text), &readers[i].schema, NULL) == 0);
    readers[i].type = type;
    if (type)
        PST_ASSERT(pst_decode_plan_new(readers[i].schema, type, &readers[i].plan, NULL) == 0);
    pst_columns_new(readers[i].schema, wants, WANTS, &readers[i].columns, NULL); /* not all have fitting fields */
}

static void set_up(void)
{
    if (n_readers)
        return;
    add(others[0], &pst_metric_point_type);
    add(others[1], NULL);
    for (size_t i = 0; i < pst_types_n; i++)
        add(pst_types[i]->schema, pst_types[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    double numbers[16];
    uint8_t missing[WANTS];
    pst_slice texts[WANTS];
    json_t *j = NULL;
    pst_err err = {0};
    set_up();
    if (!len)
        return 0;
    size_t r = data[0] % n_readers;
    const uint8_t *body = data + 1;
    len--;
    int rc = pst_avro_to_json(readers[r].schema, body, len, &j, &err);
    PST_ASSERT((rc == 0) == (j != NULL) && (rc == 0 || err.text[0]));
    json_decref(j);
    if (readers[r].columns && pst_columns_run(readers[r].columns, body, len, numbers, missing, texts, NULL) == 0)
        for (size_t i = 0; i < WANTS; i++)
            PST_ASSERT(missing[i] <= 1);
    if (readers[r].plan) {
        const pst_type *t = readers[r].type;
        void *event = pst_alloc(t->size);
        rc = pst_decode_run(readers[r].plan, body, len, event, NULL);
        if (rc == 0 && r >= 2) { /* the type's own schema */
            pst_buf once = {0}, twice = {0};
            void *copy = pst_alloc(t->size);
            pst_event_encode(t, event, &once);
            PST_ASSERT(pst_decode_run(readers[r].plan, once.data ? once.data : "", once.len, copy, NULL) == 0);
            pst_event_encode(t, copy, &twice);
            PST_ASSERT(once.len == twice.len && (!once.len || !memcmp(once.data, twice.data, once.len)));
            json_decref(pst_event_to_json(t, event));
            pst_event_clear(t, copy);
            free(copy);
            pst_buf_done(&once);
            pst_buf_done(&twice);
        }
        pst_event_clear(t, event);
        free(event);
    }
    return 0;
}
