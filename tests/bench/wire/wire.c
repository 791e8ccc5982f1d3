/* wire.c - what a record costs in the client alone: librdkafka and ours behind the same table (bus_client.h), against a stub broker in a process of its own
 * that answers at once from batches built beforehand. CPU time of the whole process, user and system, by getrusage: librdkafka's threads count, as they
 * do for whoever pays for the core. Rounds alternate between the clients, and the best of each is said.
 *
 *     bench_wire [records] [value bytes] [codec] [rounds]         default 2000000 120 none 3
 *     bench_wire serve PORT [records] [value bytes] [codec]       the stub alone, topic "bench", for another client */
#include "common/base/clock.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/bus/wire/wire.h"
#include "tests/bench/wire/stub.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { IN_BATCH = 1000, ROOM = 1024, WAIT_MS = 100, GIVE_UP_S = 60 };

static char bootstrap[40];
static int64_t delivered, failed;

static void on_fault(void *owner, int code, const char *reason)
{
    fprintf(stderr, "fault %d: %s\n", code, reason ? reason : "");
}

static void on_moved(void *owner)
{
}

static void on_rebalance(void *owner, bus_change change, bus_places *list, bool incremental)
{
}

static void on_delivered(void *owner, const bus_delivered *d)
{
    delivered++;
    failed += d->code != 0;
}

static const bus_listener listener = {.fault = on_fault, .moved = on_moved, .rebalance = on_rebalance, .delivered = on_delivered};

static void fail(const char *what)
{
    fprintf(stderr, "bench_wire: %s\n", what);
    exit(1);
}

static double cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static pst_bus_conf *conf_of(const char *codec)
{
    pst_err err = {0};
    pst_bus_conf *c = pst_bus_conf_new(bootstrap, "bench");
    if (pst_bus_conf_set(c, "compression.codec", codec, "bench", &err) < 0)
        fail(err.text);
    return c;
}

static double consume(const bus_client *client, int64_t records)
{
    pst_err err = {0};
    bus_handle *h;
    pst_bus_conf *conf = conf_of("none");
    if (client->consumer->open(conf, &(bus_consumer_needs){.inflight_bytes = 64 << 20, .poll_interval_ms = 300000}, &listener, &h, &err) <
        0)
        fail(err.text);
    bus_place place = {.topic = (char[]){"bench"}, .offset = 0};
    if (client->consumer->assign(h, &(bus_places){.at = &place, .n = 1, .cap = 1}))
        fail("assign");
    static pst_record room[ROOM];
    int64_t n = 0, give_up = pst_mono_us() + GIVE_UP_S * 1000000LL;
    uint64_t bytes = 0;
    double from = 0;
    while (n < records) {
        bus_run run;
        client->consumer->poll(h, WAIT_MS, room, ROOM, 1 << 20, &run);
        if (pst_mono_us() > give_up)
            fail("not all records came in a minute");
        if (run.kind == BUS_RUN_FAULT)
            fprintf(stderr, "fault %d: %s\n", run.code, run.reason ? run.reason : "");
        if (run.kind != BUS_RUN_RECORDS)
            continue;
        if (!n) /* the connection is none of a record's price */
            from = cpu_us();
        for (size_t i = 0; i < run.n; i++)
            bytes += room[i].value_len + *(const uint8_t *)room[i].value;
        if (room[0].offset != n || room[run.n - 1].offset != n + (int64_t)run.n - 1)
            fail("records are missing");
        n += (int64_t)run.n;
        client->consumer->release(h, room, run.n);
    }
    double us = cpu_us() - from;
    client->consumer->assign(h, NULL);
    client->consumer->close(h);
    client->common->free(h);
    pst_bus_conf_free(conf);
    return bytes ? us * 1000 / (double)records : 0;
}

static double produce(const bus_client *client, int64_t records, size_t value_bytes, const char *codec)
{
    pst_err err = {0};
    bus_handle *h;
    pst_bus_conf *conf = conf_of(codec);
    if (client->producer->open(conf, &(bus_producer_needs){.message_timeout_ms = 60000, .linger_ms = 5}, &listener, &h, &err) < 0)
        fail(err.text);
    client->producer->expect(h, "bench");
    char *value = pst_alloc(value_bytes);
    for (size_t k = 0; k < value_bytes; k++)
        value[k] = (char)(k * k % 61 + 'A');
    pst_out out = {.topic = "bench", .partition = 0, .value = value, .value_len = value_bytes, .timestamp_ms = 1700000000000};
    delivered = failed = 0;
    size_t sent;
    client->producer->send(h, &out, 1, &sent);
    int64_t give_up = pst_mono_us() + GIVE_UP_S * 1000000LL;
    while (!delivered && pst_mono_us() < give_up)
        client->common->serve(h, WAIT_MS);
    double from = cpu_us();
    for (int64_t n = 0; n < records;) {
        if (pst_mono_us() > give_up)
            fail("not all records were taken in a minute");
        value[0] = (char)n;
        int code = client->producer->send(h, &out, 1, &sent);
        if (!code)
            n++;
        else if (code != BUS_ERR__QUEUE_FULL)
            fail(client->common->code_text(code));
        if (code || n % 1000 == 0)
            client->common->serve(h, code ? 10 : 0);
    }
    while (delivered < records + 1) {
        if (pst_mono_us() > give_up)
            fail("not all records were acknowledged in a minute");
        client->producer->flush(h, WAIT_MS);
        client->common->serve(h, 0);
    }
    double us = cpu_us() - from;
    if (failed)
        fail("records were refused");
    client->common->free(h);
    pst_bus_conf_free(conf);
    free(value);
    return us * 1000 / (double)records;
}

static wire_codec codec_of(const char *name)
{
    for (int i = 0; wire_codec_names[i]; i++)
        if (!strcmp(wire_codec_names[i], name))
            return (wire_codec)i;
    fail("codec: none, gzip, snappy, lz4 or zstd");
    return WIRE_NONE;
}

static const char *arg(int argc, char **argv, int i, const char *def)
{
    return i < argc ? argv[i] : def;
}

int main(int argc, char **argv)
{
    bool serve = argc > 1 && !strcmp(argv[1], "serve");
    int skip = serve ? 3 : 1;
    const char *codec = arg(argc, argv, skip + 2, "none");
    stub_conf stub = {.port = serve ? atoi(arg(argc, argv, 2, "0")) : 0,
                      .records = atoll(arg(argc, argv, skip, "2000000")) / IN_BATCH * IN_BATCH,
                      .in_batch = IN_BATCH,
                      .value_bytes = atoi(arg(argc, argv, skip + 1, "120")),
                      .codec = codec_of(codec)};
    int rounds = atoi(arg(argc, argv, skip + 3, "3")), port;
    if (stub.records < IN_BATCH || stub.value_bytes < 1 || rounds < 1)
        fail("at least 1000 records of one byte, one round");
    int fd = stub_listen(&stub, &port);
    pid_t child = serve ? 0 : fork();
    if (!child) {
        if (!serve)
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        else
            printf("127.0.0.1:%d\n", port), fflush(stdout);
        stub_serve(fd, port, &stub);
    }
    close(fd);
    snprintf(bootstrap, sizeof bootstrap, "127.0.0.1:%d", port);
    const bus_client *clients[] = {&pst_rdk_client, &pst_wire_client};
    double best[2][2] = {{1e9, 1e9}, {1e9, 1e9}};
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < 2; i++) {
            double in = consume(clients[i], stub.records), out = produce(clients[i], stub.records, (size_t)stub.value_bytes, codec);
            best[i][0] = in < best[i][0] ? in : best[i][0];
            best[i][1] = out < best[i][1] ? out : best[i][1];
        }
    printf("%lld records of %d bytes, %s, batches of %d read; CPU ns a record, best of %d\n", (long long)stub.records, stub.value_bytes,
           codec, IN_BATCH, rounds);
    for (int i = 0; i < 2; i++)
        printf("%-8s consume %7.1f  produce %7.1f\n", clients[i]->name, best[i][0], best[i][1]);
    kill(child, SIGKILL);
    return 0;
}
