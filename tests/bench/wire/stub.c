/* stub.c - see stub.h. It speaks the lowest versions that both clients have, which are not flexible: ApiVersions 0 to 3, Metadata 7, ListOffsets 1 to 5, Fetch 11
 * (without sessions), Produce 7, InitProducerId 0 to 1, FindCoordinator 0. Older versions of Produce and Fetch are named and not spoken: by them librdkafka judges
 * which codecs a broker knows, and it uses the newest. A thread a connection, which reads a request, answers it, and reads the next. */
#include "tests/bench/wire/stub.h"

#include "common/base/err.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TOPIC "bench"
enum { REQUEST_MAX = 100 << 20, NODE = 1 };
enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, FIND_COORDINATOR = 10, API_VERSIONS = 18, INIT_PRODUCER_ID = 22 };

static stub_conf conf;
static int own_port;
static wire_block *one_batch; /* all are alike but for the offset, which no sum covers */

static wire_block *batch_built(void)
{
    wire_build b = {0};
    char *value = pst_alloc((size_t)conf.value_bytes);
    wire_build_begin(&b);
    for (int i = 0; i < conf.in_batch; i++) {
        for (int k = 0; k < conf.value_bytes; k++)
            value[k] = (char)((i * 7 + k * k) % 61 + 'A');
        wire_build_add(&b, &(pst_out){.value = value, .value_len = (size_t)conf.value_bytes, .timestamp_ms = 1700000000000 + i});
    }
    wire_block *ret;
    pst_err err = {0};
    wire_seal seal = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1, .codec = conf.codec, .level = -1};
    if (wire_build_close(&b, &seal, &ret, &err) < 0) {
        fprintf(stderr, "stub: %s\n", err.text);
        exit(1);
    }
    wire_build_done(&b);
    free(value);
    return ret;
}

static bool receive(int fd, void *to, size_t n)
{
    for (uint8_t *p = to; n;) {
        ssize_t got = read(fd, p, n);
        if (got <= 0)
            return false;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

typedef struct request {
    int16_t api, version;
    int32_t id;
    wire_in in;
    wire_out out; /* behind the answer's length */
    int64_t from; /* Fetch: first batch that follows the answer's bytes, -1 = none */
    size_t batches;
} request;

static void put_versions(request *q)
{
    static const struct {
        int16_t key, min, max;
    } have[] = {{PRODUCE, 0, 7},          {FETCH, 0, 11},       {LIST_OFFSETS, 1, 5},    {METADATA, 0, 7},
                {FIND_COORDINATOR, 0, 0}, {API_VERSIONS, 0, 3}, {INIT_PRODUCER_ID, 0, 1}};
    size_t n = sizeof have / sizeof *have;
    bool known = q->version <= 3; /* of a later one the answer is an error in the first format, KIP-511 */
    wire_out *o = &q->out;
    o->flexible = known && q->version == 3;
    wire_put_i16(o, known ? 0 : 35);
    wire_put_count(o, n);
    for (size_t i = 0; i < n; i++) {
        wire_put_i16(o, have[i].key);
        wire_put_i16(o, have[i].min);
        wire_put_i16(o, have[i].max);
        wire_put_tags(o);
    }
    if (known && q->version >= 1)
        wire_put_i32(o, 0);
    wire_put_tags(o);
}

static void put_metadata(request *q)
{
    wire_out *o = &q->out;
    int16_t v = q->version;
    if (v >= 3)
        wire_put_i32(o, 0);
    wire_put_count(o, 1);
    wire_put_i32(o, NODE);
    wire_put_str(o, "127.0.0.1");
    wire_put_i32(o, own_port);
    if (v >= 1)
        wire_put_str(o, NULL); /* rack */
    if (v >= 2)
        wire_put_str(o, "stub");
    if (v >= 1)
        wire_put_i32(o, NODE); /* controller */
    wire_put_count(o, 1);
    wire_put_i16(o, 0);
    wire_put_str(o, TOPIC);
    if (v >= 1)
        wire_put_bool(o, false);
    wire_put_count(o, 1);
    wire_put_i16(o, 0);
    wire_put_i32(o, 0);
    wire_put_i32(o, NODE);
    if (v >= 7)
        wire_put_i32(o, 0); /* leader epoch */
    for (int replicas = 0; replicas < 2; replicas++) {
        wire_put_count(o, 1);
        wire_put_i32(o, NODE);
    }
    if (v >= 5)
        wire_put_count(o, 0); /* offline ones */
}

static void put_offsets(request *q)
{
    wire_in *in = &q->in;
    wire_out *o = &q->out;
    wire_get_i32(in);
    if (q->version >= 2)
        wire_get_i8(in);
    wire_get_count(in, 1, NULL);
    wire_get_str(in);
    wire_get_count(in, 1, NULL);
    wire_get_i32(in);
    if (q->version >= 4)
        wire_get_i32(in);
    int64_t time = wire_get_i64(in);
    if (q->version >= 2)
        wire_put_i32(o, 0);
    wire_put_count(o, 1);
    wire_put_str(o, TOPIC);
    wire_put_count(o, 1);
    wire_put_i32(o, 0);
    wire_put_i16(o, 0);
    wire_put_i64(o, -1);
    wire_put_i64(o, time == PST_OFFSET_END ? conf.records : 0);
    if (q->version >= 4)
        wire_put_i32(o, 0);
}

static void put_fetched(request *q)
{
    wire_in *in = &q->in;
    wire_out *o = &q->out;
    int16_t v = q->version;
    wire_get_i32(in);
    int wait_ms = wire_get_i32(in);
    wire_get_i32(in);
    int32_t max = wire_get_i32(in), partition_max = 0;
    wire_get_i8(in);
    if (v >= 7) {
        wire_get_i32(in);
        wire_get_i32(in);
    }
    int64_t offset = -1;
    if (wire_get_count(in, 1, NULL)) {
        wire_get_str(in);
        wire_get_count(in, 1, NULL);
        wire_get_i32(in);
        if (v >= 9)
            wire_get_i32(in);
        offset = wire_get_i64(in);
        if (v >= 5)
            wire_get_i64(in);
        partition_max = wire_get_i32(in);
    }
    if (partition_max < max)
        max = partition_max;
    int64_t first = offset < 0 ? 0 : offset / conf.in_batch, all = conf.records / conf.in_batch;
    size_t fit = (size_t)max / one_batch->len;
    q->from = offset < 0 || first >= all ? -1 : first;
    q->batches = q->from < 0 ? 0 : (size_t)(all - first) < (fit ? fit : 1) ? (size_t)(all - first) : (fit ? fit : 1);
    if (!q->batches)
        nanosleep(&(struct timespec){wait_ms / 1000, wait_ms % 1000 * 1000000L}, NULL);
    wire_put_i32(o, 0);
    if (v >= 7) {
        wire_put_i16(o, 0);
        wire_put_i32(o, 0); /* no session is kept */
    }
    wire_put_count(o, offset < 0 ? 0 : 1);
    if (offset < 0)
        return;
    wire_put_str(o, TOPIC);
    wire_put_count(o, 1);
    wire_put_i32(o, 0);
    wire_put_i16(o, 0);
    wire_put_i64(o, conf.records);
    wire_put_i64(o, conf.records);
    if (v >= 5)
        wire_put_i64(o, 0);
    wire_put_i32(o, -1); /* none were aborted */
    if (v >= 11)
        wire_put_i32(o, -1);
    wire_put_i32(o, (int32_t)(q->batches * one_batch->len));
}

/* ---- what is produced ------------------------------------------------------------------------------------------------------------ */

enum { INVALID_MSG = 2, OUT_OF_ORDER_SEQUENCE = 45 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static stub_log seen;
static int32_t next_sequence;

stub_log stub_seen(void)
{
    pthread_mutex_lock(&lock);
    stub_log copy = seen;
    pthread_mutex_unlock(&lock);
    return copy;
}

void stub_forget(void)
{
    pthread_mutex_lock(&lock);
    seen = (stub_log){0};
    next_sequence = 0;
    pthread_mutex_unlock(&lock);
}

/* Every record of eight bytes says which it is. */
static void judge_values(const wire_batch_head *h, wire_str bytes)
{
    wire_block *block = wire_block_new(bytes.len);
    memcpy(block->data, bytes.at, bytes.len);
    block->len = bytes.len;
    wire_batch_head own = *h;
    own.records = block->data + (h->records - (const uint8_t *)bytes.at);
    wire_records r;
    pst_record record;
    pst_err err = {0};
    if (wire_records_begin(&own, block, &r, &err) == 0) {
        for (int64_t n = seen.records; wire_records_next(&r, &record, 1, &err) == 1; n++) {
            char digits[24];
            snprintf(digits, sizeof digits, "%08lld", (long long)n);
            seen.wrong += record.value_len == 8 && memcmp(record.value, digits, 8) != 0;
        }
        wire_records_done(&r);
    }
    wire_block_drop(block);
}

/* As a broker judges an idempotent producer: what comes again is acknowledged and not kept, what leaves a gap is refused. */
static int judge(const wire_batch_head *h, wire_str bytes)
{
    if (h->producer_id >= 0 && h->base_sequence < next_sequence) {
        seen.again++;
        return 0;
    }
    if (h->producer_id >= 0 && h->base_sequence > next_sequence) {
        seen.out_of_order++;
        return OUT_OF_ORDER_SEQUENCE;
    }
    if (conf.value_bytes == 8)
        judge_values(h, bytes);
    seen.records += h->n;
    next_sequence += (int32_t)h->n;
    return 0;
}

/* false = nobody waits for an answer (acks=0). */
static bool put_produced(request *q)
{
    wire_in *in = &q->in;
    wire_out *o = &q->out;
    wire_get_str(in);
    int16_t acks = wire_get_i16(in);
    wire_get_i32(in);
    wire_get_count(in, 1, NULL);
    wire_get_str(in);
    wire_get_count(in, 1, NULL);
    int32_t partition = wire_get_i32(in);
    wire_str records = wire_get_blob(in);
    wire_in batch = wire_in_of(records.at, records.len, false);
    wire_batch_head h;
    pst_err err = {0};
    int code = INVALID_MSG;
    pthread_mutex_lock(&lock);
    if (!in->bad && wire_batch_next(&batch, true, &h, &err) == 1)
        code = judge(&h, records);
    else
        fprintf(stderr, "stub: a batch that is none: %s\n", err.text);
    int64_t at = seen.records;
    pthread_mutex_unlock(&lock);
    wire_put_count(o, 1);
    wire_put_str(o, TOPIC);
    wire_put_count(o, 1);
    wire_put_i32(o, partition);
    wire_put_i16(o, (int16_t)code);
    wire_put_i64(o, at);
    wire_put_i64(o, -1);
    if (q->version >= 5)
        wire_put_i64(o, 0);
    wire_put_i32(o, 0);
    return acks != 0;
}

static void put_producer_id(request *q)
{
    wire_put_i32(&q->out, 0);
    wire_put_i16(&q->out, 0);
    wire_put_i64(&q->out, 4000);
    wire_put_i16(&q->out, 0);
}

static void put_coordinator(request *q)
{
    wire_put_i16(&q->out, 0);
    wire_put_i32(&q->out, NODE);
    wire_put_str(&q->out, "127.0.0.1");
    wire_put_i32(&q->out, own_port);
}

/* 1 = answer it, 0 = no answer is expected, -1 = nothing that is spoken here. */
static int answer(request *q)
{
    switch (q->api) {
    case API_VERSIONS: put_versions(q); return 1;
    case METADATA: put_metadata(q); return 1;
    case LIST_OFFSETS: put_offsets(q); return 1;
    case FETCH: put_fetched(q); return 1;
    case PRODUCE: return put_produced(q);
    case FIND_COORDINATOR: put_coordinator(q); return 1;
    case INIT_PRODUCER_ID: put_producer_id(q); return 1;
    default: fprintf(stderr, "stub: request %d of version %d is not spoken here\n", q->api, q->version); return -1;
    }
}

static void be(uint8_t *to, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> 8 * (n - 1 - i));
}

static bool send_all(int fd, const void *data, size_t n)
{
    for (const uint8_t *p = data; n;) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool serve_one(int fd, pst_buf *in, pst_buf *out, wire_block *batch)
{
    uint8_t size[4];
    if (!receive(fd, size, 4))
        return false;
    wire_in head = wire_in_of(size, 4, false);
    int32_t len = wire_get_i32(&head);
    if (len < 8 || len > REQUEST_MAX)
        return false;
    pst_buf_clear(in);
    pst_buf_reserve(in, (size_t)len);
    if (!receive(fd, in->data, (size_t)len))
        return false;
    pst_buf_clear(out);
    request q = {.in = wire_in_of(in->data, (size_t)len, false), .out = {.to = out}, .from = -1};
    q.api = wire_get_i16(&q.in);
    q.version = wire_get_i16(&q.in);
    q.id = wire_get_i32(&q.in);
    wire_get_str(&q.in); /* client id */
    wire_put_i32(&q.out, 0);
    wire_put_i32(&q.out, q.id);
    int answered = answer(&q);
    if (answered <= 0)
        return answered == 0;
    be((uint8_t *)out->data, out->len - 4 + q.batches * batch->len, 4);
    if (!send_all(fd, out->data, out->len))
        return false;
    for (size_t i = 0; i < q.batches; i++) {
        be(batch->data, (uint64_t)((q.from + (int64_t)i) * conf.in_batch), 8);
        if (!send_all(fd, batch->data, batch->len))
            return false;
    }
    return true;
}

static void *serve_connection(void *arg)
{
    int fd = (int)(intptr_t)arg;
    pst_buf in = {0}, out = {0};
    wire_block *batch = wire_block_new(one_batch->len);
    memcpy(batch->data, one_batch->data, one_batch->len);
    batch->len = one_batch->len;
    while (serve_one(fd, &in, &out, batch))
        ;
    close(fd);
    pst_buf_done(&in);
    pst_buf_done(&out);
    wire_block_drop(batch);
    return NULL;
}

int stub_listen(const stub_conf *c, int *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)c->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&at, &len)) {
        perror("stub: cannot listen on 127.0.0.1");
        exit(1);
    }
    *ret_port = ntohs(at.sin_port);
    return fd;
}

_Noreturn void stub_serve(int listener, int port, const stub_conf *c)
{
    conf = *c;
    own_port = port;
    one_batch = batch_built();
    for (;;) {
        int fd = accept(listener, NULL, NULL), on = 1;
        pthread_t thread;
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (pthread_create(&thread, NULL, serve_connection, (void *)(intptr_t)fd)) {
            close(fd);
            continue;
        }
        pthread_detach(thread);
    }
}
