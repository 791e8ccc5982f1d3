/* peer.c - the same pipeline as somebody writes it in C from parts: librdkafka's batches, avro-c's generic values, and either this repository's engine or
 * ONNX Runtime's C interface. At least once. Tuned: a deep queue of fetched records, batches both ways, one value of each schema used again, fields by index,
 * tensors made beforehand.
 *
 *     bench_scorer_peer BOOTSTRAP TOPIC OUTPUT IN.avsc OUT.avsc OUT_ID MODEL own|LIBONNXRUNTIME RECORDS WIDTH BATCH DIMS
 *
 * Records: a long, then WIDTH floats, plain or nullable, or one array of them. DIMS: of one row, as 30 or 1x28x28. Scores: the model's last output. */
#include "tests/bench/engine/bench.h"

#include <avro.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMMIT_RECORDS = 100000, FRAME = 5, VALUE_MAX = 64 << 10, BATCH_MAX = 4096, WIDTH_MAX = 784, TEXT_MAX = 64 << 10 };

static rd_kafka_t *consumer, *producer;
static avro_value_t in, out;
static int64_t failed;

static void fail(const char *what)
{
    fprintf(stderr, "bench_scorer_peer: %s\n", what);
    exit(1);
}

static void set(rd_kafka_conf_t *c, const char *key, const char *value)
{
    char why[256];
    if (rd_kafka_conf_set(c, key, value, why, sizeof why))
        fail(why);
}

static void on_delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    failed += m->err != 0;
}

static void open_clients(const char *bootstrap, const char *topic, const char *group)
{
    char why[256];
    rd_kafka_conf_t *c = rd_kafka_conf_new();
    set(c, "bootstrap.servers", bootstrap);
    set(c, "group.id", group);
    set(c, "auto.offset.reset", "earliest");
    set(c, "enable.auto.commit", "false");
    set(c, "enable.auto.offset.store", "false");
    set(c, "queued.min.messages", "1000000");
    set(c, "fetch.wait.max.ms", "100");
    set(c, "check.crcs", "true");
    if (!(consumer = rd_kafka_new(RD_KAFKA_CONSUMER, c, why, sizeof why)))
        fail(why);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    if (rd_kafka_subscribe(consumer, topics))
        fail("cannot subscribe");
    rd_kafka_topic_partition_list_destroy(topics);
    c = rd_kafka_conf_new();
    set(c, "bootstrap.servers", bootstrap);
    set(c, "enable.idempotence", "true");
    set(c, "compression.type", "lz4");
    set(c, "linger.ms", "5");
    set(c, "queue.buffering.max.messages", "1000000");
    rd_kafka_conf_set_dr_msg_cb(c, on_delivered);
    if (!(producer = rd_kafka_new(RD_KAFKA_PRODUCER, c, why, sizeof why)))
        fail(why);
}

static avro_value_t value_of(const char *file)
{
    static char text[TEXT_MAX];
    FILE *f = fopen(file, "r");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    avro_schema_t schema = NULL;
    avro_value_t v = {0};
    if (!n || avro_schema_from_json_length(text, n, &schema))
        fail("a schema cannot be read");
    fclose(f);
    avro_generic_value_new(avro_generic_class_from_schema(schema), &v);
    return v;
}

static avro_value_t at(avro_value_t *record, size_t field)
{
    avro_value_t v = {0};
    avro_value_get_by_index(record, field, &v, NULL);
    return v;
}

/* One field's number; false: null. */
static bool number(avro_value_t *v, float *ret)
{
    avro_value_t branch;
    if (avro_value_get_type(v) != AVRO_UNION)
        return avro_value_get_float(v, ret) == 0;
    avro_value_get_current_branch(v, &branch);
    return avro_value_get_type(&branch) == AVRO_FLOAT && avro_value_get_float(&branch, ret) == 0;
}

static void decode(avro_reader_t reader, const rd_kafka_message_t *m, size_t width, float *row, bool *missing)
{
    avro_reader_memory_set_source(reader, (const char *)m->payload + FRAME, (int64_t)m->len - FRAME);
    if (avro_value_read(reader, &in))
        fail(avro_strerror());
    avro_value_t first = at(&in, 1);
    avro_value_t *from = avro_value_get_type(&first) == AVRO_ARRAY ? &first : &in;
    for (size_t i = 0; i < width; i++) {
        avro_value_t v = at(from, from == &in ? i + 1 : i);
        missing[i] = !number(&v, &row[i]);
        if (missing[i])
            row[i] = 0;
    }
}

static void set_scores(const bench_out *y, size_t row)
{
    avro_value_t list = at(&out, 0), item;
    avro_value_reset(&list);
    for (int64_t k = 0; k < y->stride; k++) {
        size_t i = row * (size_t)y->stride + (size_t)k;
        avro_value_append(&list, &item, NULL);
        avro_value_set_double(&item, y->wide ? ((const double *)y->data)[i] : (double)((const float *)y->data)[i]);
    }
}

/* What is the same in every Score. */
static void set_constants(const char *topic)
{
    avro_value_t v = at(&out, 1), inner, branch;
    avro_value_set_branch(&v, 0, &branch);
    v = at(&out, 2);
    inner = at(&v, 0);
    avro_value_set_string(&inner, "model");
    inner = at(&v, 1);
    avro_value_set_int(&inner, 0);
    inner = at(&v, 2);
    avro_value_set_string(&inner, "0000000000000000000000000000000000000000000000000000000000000000");
    if (!avro_value_get_by_index(&v, 3, &inner, NULL))
        avro_value_set_string(&inner, "cpu");
    v = at(&out, 3);
    inner = at(&v, 0);
    avro_value_set_string(&inner, topic);
    v = at(&out, 4);
    avro_value_set_enum(&v, 0);
    v = at(&out, 7);
    avro_value_set_branch(&v, 0, &branch);
}

static void set_place(const rd_kafka_message_t *m, int64_t stamp, int64_t now)
{
    avro_value_t source = at(&out, 3), v = at(&source, 1);
    avro_value_set_int(&v, m->partition);
    v = at(&source, 2);
    avro_value_set_long(&v, m->offset);
    v = at(&source, 3);
    avro_value_set_long(&v, stamp * 1000);
    v = at(&out, 5);
    avro_value_set_long(&v, now);
}

static void set_missing(const bool *missing, size_t width)
{
    avro_value_t list = at(&out, 6), item;
    char name[24];
    avro_value_reset(&list);
    for (size_t i = 0; i < width; i++) {
        if (!missing[i])
            continue;
        snprintf(name, sizeof name, "f%zu", i);
        avro_value_append(&list, &item, NULL);
        avro_value_set_string(&item, name);
    }
}

static void send_all(rd_kafka_topic_t *to, rd_kafka_message_t *messages, size_t n)
{
    while (n) {
        int sent = rd_kafka_produce_batch(to, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_PARTITION, messages, (int)n);
        messages += sent;
        n -= (size_t)sent;
        rd_kafka_poll(producer, n ? 10 : 0);
    }
}

static void commit(void)
{
    if (rd_kafka_flush(producer, 60000) || failed || rd_kafka_commit(consumer, NULL, 0))
        fail("a commit failed");
}

int main(int argc, char **argv)
{
    if (argc != 13)
        fail("twelve arguments, see the source");
    bench_job job = {0};
    char why[BENCH_WHY] = "";
    int64_t records = atoll(argv[9]), done = 0, committed = 0;
    size_t width = (size_t)atoi(argv[10]), batch = (size_t)atoi(argv[11]), id = (size_t)atoi(argv[6]);
    job.cols = 1;
    for (char *d = strtok(argv[12], "x"); d && job.rank < 4; d = strtok(NULL, "x"))
        job.cols *= job.dims[job.rank++] = atoll(d);
    if (!width || width > WIDTH_MAX || !batch || batch > BATCH_MAX || (size_t)job.cols != width)
        fail("width or batch is out of range");
    bool own = !strcmp(argv[8], "own");
    const bench_side *side = own ? &bench_penstock : &bench_ort;
    job.values = 1;
    void *model = side->open(own ? "best" : argv[8], argv[7], &job, why);
    float *rows = calloc(batch * width, sizeof *rows);
    if (!model || !side->prepare(model, rows, (int64_t)batch, (int)batch))
        fail(why);
    static bool missing[BATCH_MAX][WIDTH_MAX];
    static rd_kafka_message_t *got[BATCH_MAX], sends[BATCH_MAX];
    static char value[VALUE_MAX];
    char *values = calloc(batch, 4096);
    open_clients(argv[1], argv[2], argv[3]);
    in = value_of(argv[4]);
    out = value_of(argv[5]);
    set_constants(argv[2]);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
    rd_kafka_topic_t *to = rd_kafka_topic_new(producer, argv[3], NULL);
    avro_reader_t reader = avro_reader_memory(NULL, 0);
    avro_writer_t writer = avro_writer_memory(value, sizeof value);
    while (done < records) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 20, got, batch);
        size_t have = 0;
        for (ssize_t i = 0; i < n; i++)
            if (got[i]->err)
                rd_kafka_message_destroy(got[i]);
            else
                got[have++] = got[i];
        if (!have)
            continue;
        for (size_t i = 0; i < have; i++)
            decode(reader, got[i], width, rows + i * width, missing[i]);
        bench_out y;
        if (!side->run(model, rows, 0, (int)batch, &y))
            fail("the model failed");
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        for (size_t i = 0; i < have; i++) {
            int64_t stamp = rd_kafka_message_timestamp(got[i], NULL);
            set_scores(&y, i);
            set_place(got[i], stamp, now.tv_sec * 1000000 + now.tv_nsec / 1000);
            set_missing(missing[i], width);
            avro_writer_reset(writer);
            if (avro_value_write(writer, &out) || avro_writer_tell(writer) > 4096 - FRAME)
                fail("a score cannot be written");
            char *v = values + i * 4096;
            for (int k = 1; k < FRAME; k++)
                v[k] = (char)(id >> 8 * (FRAME - 1 - k));
            memcpy(v + FRAME, value, (size_t)avro_writer_tell(writer));
            sends[i] = (rd_kafka_message_t){.payload = v,
                                            .len = (size_t)avro_writer_tell(writer) + FRAME,
                                            .key = got[i]->key,
                                            .key_len = got[i]->key_len,
                                            .partition = got[i]->partition};
        }
        send_all(to, sends, have);
        for (size_t i = 0; i < have; i++) {
            if (i + 1 == have || got[i + 1]->partition != got[i]->partition) /* the last of a run speaks for it */
                rd_kafka_offset_store(got[i]->rkt, got[i]->partition, got[i]->offset);
        }
        for (size_t i = 0; i < have; i++) {
            rd_kafka_message_destroy(got[i]);
        }
        done += (int64_t)have;
        if (done - committed >= COMMIT_RECORDS || done >= records) {
            commit();
            committed = done;
        }
    }
    rd_kafka_consumer_close(consumer);
    return 0;
}
