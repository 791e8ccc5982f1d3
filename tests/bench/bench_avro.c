/* bench_avro.c - how long a record takes: columns and struct decode against avro-c's generic reader, on the same bytes, one thread.
 *
 *     bench_avro [SECONDS]      per measurement, default 1
 *
 * Printed: nanoseconds of CPU time a record (the best of five rounds) and the ratio avro-c ÷ ours. Nothing is judged here. */
#include "schemas/avro.h"
#include "schemas/events.h"

#include <avro.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RECORDS = 2000 };

static pst_buf bytes;
static size_t at[RECORDS + 1];
static volatile double sink;

/* ---- what is measured: one call = all records ------------------------------------------------------------------------------------- */

static pst_columns *columns;
static pst_decode_plan *plan;
static const pst_type *type;
static avro_value_t value;
static avro_schema_t schema;

static const pst_want wants[] = {{"cpu.user", PST_WANT_NUMBER, 1},
                                 {"cpu.system", PST_WANT_NUMBER, 1},
                                 {"cpu.iowait", PST_WANT_NUMBER, 1},
                                 {"cpu.idle", PST_WANT_NUMBER, 1},
                                 {"load1", PST_WANT_NUMBER, 1},
                                 {"memory.used", PST_WANT_NUMBER, 1},
                                 {"memory.cached", PST_WANT_NUMBER, 1},
                                 {"context_switches", PST_WANT_NUMBER, 1},
                                 {"interrupts", PST_WANT_NUMBER, 1},
                                 {"processes_running", PST_WANT_NUMBER, 1},
                                 {"disk.reads", PST_WANT_NUMBER, 1},
                                 {"disk.writes", PST_WANT_NUMBER, 1},
                                 {"network.rx_bytes", PST_WANT_NUMBER, 1},
                                 {"host", PST_WANT_TEXT, 0}};
enum { WANTS = sizeof wants / sizeof *wants };

static void run_columns(void)
{
    double numbers[WANTS];
    uint8_t missing[WANTS];
    pst_slice texts[WANTS];
    for (size_t i = 0; i < RECORDS; i++) {
        PST_ASSERT(pst_columns_run(columns, bytes.data + at[i], at[i + 1] - at[i], numbers, missing, texts, NULL) == 0);
        sink += numbers[0];
    }
}

static void run_struct(void)
{
    union {
        pst_telemetry t;
        pst_job_event e;
    } event;
    for (size_t i = 0; i < RECORDS; i++) {
        PST_ASSERT(pst_decode_run(plan, bytes.data + at[i], at[i + 1] - at[i], &event, NULL) == 0);
        pst_event_clear(type, &event);
    }
}

/* avro-c's newer interface, one value used again; fields are fetched by index, which is its quickest way. */
static void run_theirs(void)
{
    static avro_reader_t reader;
    if (!reader)
        reader = avro_reader_memory(NULL, 0);
    for (size_t i = 0; i < RECORDS; i++) {
        avro_reader_memory_set_source(reader, bytes.data + at[i], (int64_t)(at[i + 1] - at[i]));
        PST_ASSERT(avro_value_read(reader, &value) == 0);
    }
}

static void get(avro_value_t *record, size_t field)
{
    avro_value_t v;
    double d = 0;
    avro_value_get_by_index(record, field, &v, NULL);
    avro_value_get_double(&v, &d);
    sink += d;
}

static void run_theirs_with_fields(void)
{
    static avro_reader_t reader;
    if (!reader)
        reader = avro_reader_memory(NULL, 0);
    for (size_t i = 0; i < RECORDS; i++) {
        avro_value_t inner, branch;
        avro_reader_memory_set_source(reader, bytes.data + at[i], (int64_t)(at[i + 1] - at[i]));
        PST_ASSERT(avro_value_read(reader, &value) == 0);
        avro_value_get_by_index(&value, 2, &inner, NULL);
        for (size_t k = 0; k < 4; k++)
            get(&inner, k);
        get(&value, 3);
        avro_value_get_by_index(&value, 4, &inner, NULL);
        get(&inner, 0);
        get(&inner, 1);
        get(&value, 5);
        get(&value, 6);
        for (size_t k = 9; k < 11; k++) {
            avro_value_get_by_index(&value, k, &inner, NULL);
            avro_value_get_current_branch(&inner, &branch);
            if (avro_value_get_type(&branch) == AVRO_RECORD) {
                get(&branch, 0);
                get(&branch, 1);
            }
        }
    }
}

/* ---- measuring ------------------------------------------------------------------------------------------------------------------- */

/* CPU time, so that a busy computer changes less. */
static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static double best_ns(void (*run)(void), double seconds)
{
    double best = 1e18;
    run(); /* warm */
    for (int round = 0; round < 5; round++) {
        int64_t start = cpu_us(), now = start;
        long n = 0;
        for (; now - start < (int64_t)(seconds * 1e6 / 5); now = cpu_us(), n++)
            run();
        double ns = (double)(now - start) * 1e3 / ((double)n * RECORDS);
        best = ns < best ? ns : best;
    }
    return best;
}

static void line(const char *what, double ns, double theirs)
{
    printf("%-44s %8.1f ns/record %9.2f M records/s", what, ns, 1e3 / ns);
    if (theirs > 0)
        printf("   avro-c / ours %5.1f", theirs / ns);
    printf("\n");
}

static void load(const pst_type *t)
{
    const char *text = pst_type_schema(t);
    pst_schema *s = NULL;
    pst_err err = {0};
    avro_value_iface_t *iface;
    type = t;
    PST_ASSERT(pst_schema_parse(text, strlen(text), &s, &err) == 0);
    pst_decode_plan_free(plan);
    PST_ASSERT(pst_decode_plan_new(s, t, &plan, &err) == 0);
    pst_columns_free(columns);
    PST_ASSERT(pst_columns_new(s, wants, t == &pst_telemetry_type ? WANTS : 0, &columns, &err) == 0);
    PST_ASSERT(avro_schema_from_json_length(text, strlen(text), &schema) == 0);
    iface = avro_generic_class_from_schema(schema);
    PST_ASSERT(avro_generic_value_new(iface, &value) == 0);
    pst_schema_free(s);
    printf("%s: %d records of %.0f bytes\n", pst_type_name(t), RECORDS, (double)bytes.len / RECORDS);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1, theirs;
    pst_disk_telemetry disk = {100, 200};
    pst_network_telemetry net = {3e6, 2e5};
    for (int i = 0; i < RECORDS; i++) {
        pst_telemetry t = {.host = (char *)(uintptr_t) "host-17.example.org",
                           .time = 1700000000000000 + i * 1000,
                           .cpu = {0.1 * i, 0.2, 0.01, 0.7},
                           .load1 = 1.5,
                           .memory = {0.5, 0.3},
                           .context_switches = 12345,
                           .interrupts = 6789,
                           .processes_running = 3,
                           .disk = &disk,
                           .network = i % 2 ? &net : NULL};
        at[i] = bytes.len;
        pst_event_encode(&pst_telemetry_type, &t, &bytes);
    }
    at[RECORDS] = bytes.len;
    load(&pst_telemetry_type);
    theirs = best_ns(run_theirs, seconds);
    line("avro-c, generic value", theirs, 0);
    double with_fields = best_ns(run_theirs_with_fields, seconds);
    line("avro-c, generic value and 13 fields", with_fields, 0);
    line("columns: 13 numbers, 1 text", best_ns(run_columns, seconds), with_fields);
    line("struct: decode and clear", best_ns(run_struct, seconds), theirs);

    pst_buf_clear(&bytes);
    for (int i = 0; i < RECORDS; i++) {
        pst_job_event e = {.training_id = (char *)(uintptr_t) "training-abcdefghijklmnop",
                           .generation = 1,
                           .seq = i,
                           .time = 1700000000000000 + i,
                           .actor = (char *)(uintptr_t) "lcm:local",
                           .type = PST_JOB_EVENT_TYPE_PROCESS_STARTED,
                           .state = PST_JOB_PUBLIC_STATE_PROCESSING,
                           .process = (char *)(uintptr_t) "learner-1",
                           .reason = (char *)(uintptr_t) "the command runs",
                           .exit_code = i,
                           .has_exit_code = i % 2};
        pst_str_map_set(&e.details, &e.n_details, "host", "host-17");
        at[i] = bytes.len;
        pst_event_encode(&pst_job_event_type, &e, &bytes);
        pst_str_map_set(&e.details, &e.n_details, "host", NULL);
        free(e.details);
    }
    at[RECORDS] = bytes.len;
    load(&pst_job_event_type);
    theirs = best_ns(run_theirs, seconds);
    line("avro-c, generic value", theirs, 0);
    line("columns: everything skipped and checked", best_ns(run_columns, seconds), theirs);
    line("struct: decode and clear", best_ns(run_struct, seconds), theirs);
    return 0;
}
