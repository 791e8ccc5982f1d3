/* load.c - load for the gateway, from one thread: a client in Python would be the limit itself. Plain sockets and epoll, so that what a client costs is a
 * system call or two a request.
 *
 *     bench_gateway_load PORT TOKEN submit CONNECTIONS SECONDS MANIFEST TAG ACCEPTED   one submission after another on each connection
 *     bench_gateway_load PORT TOKEN listen STREAMS SECONDS TOPICS                      event streams, read as they come
 *     bench_gateway_load PORT TOKEN stall  STREAMS SECONDS TOPICS                      event streams that are opened and never read
 *
 * submit is a closed loop: a connection sends its next request when its answer has come; latency is from the first byte sent to the last one read. The request
 * ids of all that were answered 202 are written to the file ACCEPTED, a line each, for whoever counts them on the topic. Prints one line of JSON. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 16384, REQUEST_MAX = 65536, LATENCIES_MAX = 4 << 20, EVENTS_MAX = 512, DRAIN_S = 10 };

typedef struct connection {
    int fd, n; /* requests sent so far */
    char answer[ANSWER_MAX];
    size_t have;
    int64_t sent_us;
    uint64_t bytes, events;
    int busy;
} connection;

static struct sockaddr_in address = {.sin_family = AF_INET};
static const char *token, *tag;
static char manifest[REQUEST_MAX / 2];
static size_t manifest_len;
static int poller;
static uint32_t *latencies;
static size_t n_latencies, refused, broken;
static FILE *accepted;

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void open_connection(connection *c, int receive_bytes)
{
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    if (c->fd < 0)
        fail("socket");
    if (receive_bytes)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = c});
}

static void send_all(connection *c, const char *text, size_t len)
{
    ssize_t n = write(c->fd, text, len);
    if (n != (ssize_t)len) /* a request is far smaller than a socket's buffer */
        broken++;
}

static void submit(connection *c, int index)
{
    char text[REQUEST_MAX];
    int head = snprintf(text, sizeof text,
                        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/yaml\r\n"
                        "Idempotency-Key: %s-%d-%d\r\nContent-Length: %zu\r\n\r\n",
                        token, tag, index, c->n, manifest_len);
    memcpy(text + head, manifest, manifest_len);
    c->n++;
    c->have = 0;
    c->busy = 1;
    c->sent_us = now_us();
    send_all(c, text, (size_t)head + manifest_len);
}

/* 0: not whole yet; else its status. */
static int answer_status(connection *c)
{
    c->answer[c->have] = 0;
    char *body = strstr(c->answer, "\r\n\r\n"), *length = strcasestr(c->answer, "content-length:");
    if (!body || !length || length > body || c->have < (size_t)(body + 4 - c->answer) + strtoul(length + 15, NULL, 10))
        return 0;
    return atoi(c->answer + 9);
}

static void take_answer(connection *c, int index, int going_on)
{
    ssize_t n = read(c->fd, c->answer + c->have, sizeof c->answer - 1 - c->have);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        broken++;
        c->busy = 0;
        close(c->fd);
        c->fd = -1;
        return;
    }
    c->have += (size_t)n;
    int status = answer_status(c);
    if (!status)
        return;
    c->busy = 0;
    if (status == 202) {
        if (n_latencies < LATENCIES_MAX)
            latencies[n_latencies++] = (uint32_t)(now_us() - c->sent_us);
        fprintf(accepted, "%s-%d-%d\n", tag, index, c->n - 1);
    } else if (!refused++) {
        fprintf(stderr, "refused: %.600s\n", c->answer);
    }
    if (going_on)
        submit(c, index);
}

static int by_size(const void *a, const void *b)
{
    return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}

static void run_submit(connection *all, int n, int seconds)
{
    int64_t begin = now_us(), end = begin + seconds * 1000000LL;
    for (int i = 0; i < n; i++)
        open_connection(&all[i], 0);
    for (int i = 0; i < n; i++)
        submit(&all[i], i);
    struct epoll_event events[EVENTS_MAX];
    for (int busy = n; busy && now_us() < end + DRAIN_S * 1000000LL;) {
        int got = epoll_wait(poller, events, EVENTS_MAX, 100);
        for (int i = 0; i < got; i++) {
            connection *c = events[i].data.ptr;
            take_answer(c, (int)(c - all), now_us() < end);
        }
        busy = 0;
        for (int i = 0; now_us() >= end && i < n; i++)
            busy += all[i].busy;
        if (now_us() < end)
            busy = n;
    }
    double took = (double)(now_us() - begin) / 1e6;
    qsort(latencies, n_latencies, sizeof *latencies, by_size);
    size_t unanswered = 0;
    for (int i = 0; i < n; i++)
        unanswered += (size_t)all[i].busy;
    printf("{\"accepted\": %zu, \"refused\": %zu, \"broken\": %zu, \"unanswered\": %zu, \"seconds\": %.2f, \"per_s\": %.0f", n_latencies,
           refused, broken, unanswered, took, (double)n_latencies / took);
    if (n_latencies)
        printf(", \"p50_ms\": %.2f, \"p99_ms\": %.2f, \"worst_ms\": %.2f", latencies[n_latencies / 2] / 1e3,
               latencies[n_latencies * 99 / 100] / 1e3, latencies[n_latencies - 1] / 1e3);
    printf("}\n");
}

static void count_events(connection *c, const char *at, size_t len)
{
    c->bytes += len;
    for (size_t i = 0; i + 4 < len; i++)
        c->events += !memcmp(at + i, "\nid: ", 5);
}

static void run_streams(connection *all, int n, int seconds, const char *topics, int reads)
{
    static char chunk[1 << 18];
    char text[1024];
    int len = snprintf(text, sizeof text, "GET /events/stream?topics=%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n",
                       topics, token);
    for (int i = 0; i < n; i++) {
        open_connection(&all[i], reads ? 0 : 4096);
        send_all(&all[i], text, (size_t)len);
    }
    printf("{\"open\": %d}\n", n);
    fflush(stdout);
    struct epoll_event events[EVENTS_MAX];
    size_t closed = 0;
    for (int64_t end = now_us() + seconds * 1000000LL; now_us() < end;) {
        if (!reads) {
            usleep(100000);
            continue;
        }
        int got = epoll_wait(poller, events, EVENTS_MAX, 100);
        for (int i = 0; i < got; i++) {
            connection *c = events[i].data.ptr;
            ssize_t r = read(c->fd, chunk, sizeof chunk);
            if (r > 0)
                count_events(c, chunk, (size_t)r);
            else if (r == 0 || errno != EAGAIN) {
                closed++;
                close(c->fd);
            }
        }
    }
    uint64_t least = UINT64_MAX, most = 0, bytes = 0;
    for (int i = 0; i < n; i++) {
        least = all[i].events < least ? all[i].events : least;
        most = all[i].events > most ? all[i].events : most;
        bytes += all[i].bytes;
    }
    printf("{\"streams\": %d, \"closed\": %zu, \"events_least\": %llu, \"events_most\": %llu, \"bytes\": %llu}\n", n, closed,
           (unsigned long long)least, (unsigned long long)most, (unsigned long long)bytes);
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return fprintf(stderr,
                       "usage: PORT TOKEN submit CONNECTIONS SECONDS MANIFEST TAG ACCEPTED | listen|stall STREAMS SECONDS TOPICS\n"),
               2;
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    token = argv[2];
    int n = atoi(argv[4]), seconds = atoi(argv[5]);
    connection *all = calloc((size_t)n, sizeof *all);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (!all || n < 1)
        fail("connections");
    if (strcmp(argv[3], "submit") != 0) {
        run_streams(all, n, seconds, argv[6], !strcmp(argv[3], "listen"));
        return 0;
    }
    FILE *f = fopen(argv[6], "r");
    accepted = argc > 8 ? fopen(argv[8], "w") : NULL;
    latencies = malloc(LATENCIES_MAX * sizeof *latencies);
    if (!f || !accepted || !latencies)
        fail(argv[6]);
    manifest_len = fread(manifest, 1, sizeof manifest, f);
    tag = argv[7];
    run_submit(all, n, seconds);
    return fclose(accepted) ? 1 : 0;
}
