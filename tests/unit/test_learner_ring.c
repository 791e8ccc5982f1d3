/* The ring by itself: sums against plain ones to the last bit, gatherings, who is let in, what is fenced off, neighbours that stall or vanish; and the
 * shares of ranges and minibatches. Ranks are threads; their ports are those that were free a moment ago. */
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "trainer/learner/pool.h"
#include "trainer/learner/random.h"
#include "trainer/learner/ranges.h"
#include "trainer/learner/ring_inside.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { WORLD_MAX = 7 };
static learn_place places[WORLD_MAX];

static int bound(int *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

static int new_ports(void **state)
{
    int fd[WORLD_MAX];
    for (int i = 0; i < WORLD_MAX; i++) {
        fd[i] = bound(&places[i].port);
        snprintf(places[i].address, sizeof places[i].address, "127.0.0.1");
    }
    for (int i = 0; i < WORLD_MAX; i++)
        close(fd[i]);
    return 0;
}

static int call(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    for (int i = 0; i < 500; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
            return fd;
        close(fd);
        pst_sleep_ms(10);
    }
    fail_msg("nobody listens at %d", port);
    return -1;
}

static bool never(void *arg)
{
    return false;
}

static learn_ring_opts opts(int rank, int world)
{
    return (learn_ring_opts){rank, world, 0, places, "training-t", 3, "the secret of generation 3", 20000000, NULL, never};
}

/* ---- ranks as threads ------------------------------------------------------------------------------------------------------------ */

typedef struct rank {
    pthread_t thread;
    learn_ring_opts o;
    size_t n;
    float *x;
    int rc;
    pst_err err;
    int (*work)(struct rank *r, learn_ring *ring);
} rank;

static void *rank_main(void *arg)
{
    rank *r = arg;
    learn_ring *ring = NULL;
    r->rc = learn_ring_join(&r->o, &ring, &r->err);
    if (!r->rc)
        r->rc = r->work(r, ring);
    learn_ring_leave(ring);
    return NULL;
}

static void start(rank *r, int k, int world, int (*work)(rank *, learn_ring *))
{
    *r = (rank){.o = opts(k, world), .work = work};
    assert_int_equal(pthread_create(&r->thread, NULL, rank_main, r), 0);
}

static void must_end(rank *r)
{
    pthread_join(r->thread, NULL);
    if (r->rc < 0)
        fail_msg("rank %d: %s", r->o.rank, r->err.text);
}

static float number(int rank_, size_t i)
{
    learn_rng g;
    learn_rng_seed(&g, (uint64_t)rank_ + 1, i);
    return (float)(learn_rng_normal(&g) * pow(10, (double)(i % 9) - 4)); /* sizes so different that order shows */
}

static int sum_work(rank *r, learn_ring *ring)
{
    for (size_t i = 0; i < r->n; i++)
        r->x[i] = number(r->o.rank, i);
    return learn_ring_sum(ring, r->x, r->n, &r->err);
}

/* The sum in the order that the ring promises: part k begins with rank k, and goes once around. */
static float plain(size_t n, int world, size_t i)
{
    int k = 0;
    while (k + 1 < world && i >= n / (size_t)world * (size_t)(k + 1) + n % (size_t)world * (size_t)(k + 1) / (size_t)world)
        k++;
    float sum = number(k, i);
    for (int s = 1; s < world; s++)
        sum += number((k + s) % world, i);
    return sum;
}

static void sum_of(int world, size_t n)
{
    rank r[WORLD_MAX];
    new_ports(NULL);
    for (int k = 0; k < world; k++) {
        r[k] = (rank){.o = opts(k, world), .n = n, .x = calloc(n + 1, sizeof(float)), .work = sum_work};
        assert_int_equal(pthread_create(&r[k].thread, NULL, rank_main, &r[k]), 0);
    }
    for (int k = 0; k < world; k++)
        must_end(&r[k]);
    for (size_t i = 0; i < n; i++) {
        float wanted = plain(n, world, i);
        for (int k = 0; k < world; k++)
            if (memcmp(&r[k].x[i], &wanted, sizeof wanted) != 0)
                fail_msg("world %d, %zu numbers: rank %d has %.9g at %zu, not %.9g", world, n, k, (double)r[k].x[i], i, (double)wanted);
    }
    for (int k = 0; k < world; k++)
        free(r[k].x);
}

static void test_sums_are_plain_sums_to_the_last_bit(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 3, 7, 64, 1001};
    for (int world = 2; world <= WORLD_MAX; world += world == 3 ? 2 : 1)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            sum_of(world, sizes[i]);
    sum_of(3, 400003); /* several frames a part, and more than a socket's buffer */
}

static int gather_work(rank *r, learn_ring *ring)
{
    pst_buf mine = {0}, all[WORLD_MAX];
    int rc = 0;
    for (int turn = 0; turn < 20 && !rc; turn++) {
        pst_buf_clear(&mine);
        for (int i = 0; i < (r->o.rank + turn) % 4 * 100000; i++)
            pst_buf_addc(&mine, (char)(i * 7 + r->o.rank));
        rc = learn_ring_gather(ring, mine.data, mine.len, 300000, all, &r->err);
        for (int k = 0; k < r->o.world; k++) {
            bool good = all[k].len == (size_t)((k + turn) % 4) * 100000;
            for (size_t i = 0; !rc && good && i < all[k].len; i += 997)
                good = all[k].data[i] == (char)((int)i * 7 + k);
            if (!rc && !good)
                rc = pst_err_set(&r->err, PST_EPARSE, PST_CLASS_FATAL, "test", 0, "turn %d: what rank %d gave came as %zu bytes", turn, k,
                                 all[k].len);
            pst_buf_done(&all[k]);
        }
    }
    pst_buf_done(&mine);
    return rc;
}

static void test_everybody_gets_what_everybody_gave(void **state)
{
    rank r[4];
    for (int k = 0; k < 4; k++)
        start(&r[k], k, 4, gather_work);
    for (int k = 0; k < 4; k++)
        must_end(&r[k]);
}

static int too_much(rank *r, learn_ring *ring)
{
    pst_buf all[WORLD_MAX];
    char bytes[100] = {0};
    int rc = learn_ring_gather(ring, bytes, r->o.rank ? 100 : 10, 50, all, &r->err);
    for (int k = 0; k < r->o.world; k++)
        pst_buf_done(&all[k]);
    return rc;
}

static void test_more_than_the_limit_is_refused(void **state)
{
    rank r[2];
    for (int k = 0; k < 2; k++)
        start(&r[k], k, 2, too_much);
    for (int k = 0; k < 2; k++)
        pthread_join(r[k].thread, NULL);
    assert_int_equal(r[0].rc, PST_ELIMIT);
    assert_non_null(strstr(r[0].err.text, "rank 1 announces 100 bytes"));
}

/* ---- who is let in --------------------------------------------------------------------------------------------------------------- */

static learn_welcome greet(int port, int generation, const char *secret, int from, bool prove)
{
    learn_run run;
    learn_run_make(&run, "training-t", generation, 2, secret);
    learn_hello h = {(uint32_t)generation, 2, (uint32_t)from, 0, {0}, {1, 2, 3}};
    memcpy(h.job, run.job, sizeof h.job);
    uint8_t hello[LEARN_HELLO_BYTES], bytes[LEARN_WELCOME_BYTES], proof[LEARN_PROOF_BYTES];
    learn_welcome w = {0};
    int fd = call(port);
    learn_hello_put(&h, hello);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(recv(fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    assert_true(learn_welcome_get(bytes, &w));
    if (prove) {
        learn_ring_mac(&run, "proof", hello, w.nonce, proof);
        send(fd, proof, sizeof proof, MSG_NOSIGNAL);
        assert_int_equal(recv(fd, bytes, 1, MSG_WAITALL), 0); /* closed: not believed */
    }
    close(fd);
    return w;
}

static void test_strangers_are_sent_away_and_the_ring_closes(void **state)
{
    rank r[2];
    int idle[40];
    start(&r[0], 0, 2, sum_work);
    for (int i = 0; i < 40; i++) /* they say nothing, and are more than there are places */
        idle[i] = call(places[0].port);
    for (int i = 0; i < 3; i++) {
        static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                            "PSTRING1 and then bytes that are no hello at all, for as long as it takes ......",
                                            "\x16\x03\x01\x02"};
        int fd = call(places[0].port);
        send(fd, texts[i], strlen(texts[i]), MSG_NOSIGNAL);
        close(fd);
    }
    learn_welcome w = greet(places[0].port, 2, "the secret of generation 2", 1, false);
    assert_int_equal(w.answer, LEARN_REFUSED_STALE);
    assert_int_equal(w.generation, 3);
    assert_int_equal(greet(places[0].port, 4, "of 4", 1, false).answer, LEARN_REFUSED_NEWER);
    assert_int_equal(greet(places[0].port, 3, "the secret of generation 3", 5, false).answer, LEARN_REFUSED_PLACE);
    assert_int_equal(greet(places[0].port, 3, "a guess", 1, true).answer, LEARN_WELCOME); /* its proof is wrong */
    start(&r[1], 1, 2, sum_work);
    for (int k = 0; k < 2; k++)
        must_end(&r[k]);
    for (int i = 0; i < 40; i++)
        close(idle[i]);
}

static atomic_bool stop_now;
static bool stopping(void *arg)
{
    return stop_now;
}

static void test_a_stale_rank_is_fenced(void **state)
{
    rank now = {.o = opts(0, 2), .work = sum_work}, stale = {.o = opts(1, 2), .work = sum_work};
    stop_now = false;
    now.o.stopped = stopping;
    stale.o.stopped = stopping;
    stale.o.generation = 2;
    assert_int_equal(pthread_create(&now.thread, NULL, rank_main, &now), 0);
    assert_int_equal(pthread_create(&stale.thread, NULL, rank_main, &stale), 0);
    pst_sleep_ms(1500);
    stop_now = true;
    pthread_join(stale.thread, NULL);
    pthread_join(now.thread, NULL);
    assert_int_equal(stale.rc, PST_ESTOPPED); /* it was not let in; nor did a word that anybody could have said end it */
    assert_int_equal(now.rc, PST_ESTOPPED);   /* and the other went on waiting */
}

static void test_waiting_for_others_can_be_stopped(void **state)
{
    rank r = {.o = opts(0, 2), .work = sum_work};
    stop_now = false;
    r.o.stopped = stopping;
    assert_int_equal(pthread_create(&r.thread, NULL, rank_main, &r), 0);
    pst_sleep_ms(200);
    stop_now = true;
    pthread_join(r.thread, NULL);
    assert_int_equal(r.rc, PST_ESTOPPED);
}

/* ---- neighbours that go wrong ---------------------------------------------------------------------------------------------------- */

/* A ring of two, whose rank 1 is the test itself; rank 0 sums a million numbers with it. */
static learn_ring *beside(rank *r, int64_t timeout_us)
{
    learn_ring *ring = NULL;
    learn_ring_opts o = opts(1, 2);
    pst_err err = {0};
    *r = (rank){.o = opts(0, 2), .n = 1000000, .x = calloc(1000000, sizeof(float)), .work = sum_work};
    r->o.timeout_us = timeout_us;
    assert_int_equal(pthread_create(&r->thread, NULL, rank_main, r), 0);
    if (learn_ring_join(&o, &ring, &err) < 0)
        fail_msg("%s", err.text);
    return ring;
}

static void must_fail(rank *r, int code, const char *text)
{
    pthread_join(r->thread, NULL);
    free(r->x);
    if (r->rc != code || !strstr(r->err.text, text))
        fail_msg("%d (%s), not %d (…%s…)", r->rc, r->err.text, code, text);
}

static void test_one_that_stalls_is_an_error_and_named(void **state)
{
    rank r;
    learn_ring *ring = beside(&r, 300000);
    int64_t began = pst_mono_us();
    must_fail(&r, PST_ETIMEDOUT, "rank 1 (127.0.0.1 port ");
    assert_true(pst_mono_us() - began >= 300000);
    assert_int_equal(r.err.cls, PST_CLASS_RETRY);
    learn_ring_leave(ring);
}

static void test_one_that_is_busy_and_says_so_is_waited_for(void **state)
{
    rank r;
    pst_err err = {0};
    learn_ring *ring = beside(&r, 2500000);
    float *x = calloc(1000000, sizeof *x);
    for (int i = 0; i < 35; i++) { /* longer than the time-out */
        pst_sleep_ms(100);
        learn_ring_alive(ring);
    }
    assert_int_equal(learn_ring_sum(ring, x, 1000000, &err), 0);
    must_end(&r);
    assert_true(x[5] == r.x[5] && x[5] == number(0, 5));
    free(r.x);
    free(x);
    learn_ring_leave(ring);
}

static void test_one_that_vanishes_is_an_error(void **state)
{
    rank r;
    learn_ring *ring = beside(&r, 20000000);
    learn_ring_leave(ring);
    must_fail(&r, PST_EUNREACH, "rank 1 (127.0.0.1 port ");
    assert_string_equal(r.err.origin, "ring");
    assert_int_equal(r.err.cls, PST_CLASS_RETRY);
}

static void says(const learn_frame *f, const void *payload, size_t len, int code, const char *text)
{
    rank r;
    uint8_t head[LEARN_FRAME_HEAD];
    new_ports(NULL);
    learn_ring *ring = beside(&r, 20000000);
    learn_frame one = *f;
    one.session = one.session ? one.session : ring->out.session;
    one.generation = one.generation ? one.generation : 3;
    one.crc = one.crc ? one.crc : pst_crc32c(0, payload, len);
    learn_frame_put(&one, head);
    send(ring->out.fd, head, sizeof head, MSG_NOSIGNAL);
    send(ring->out.fd, payload, len, MSG_NOSIGNAL);
    must_fail(&r, code, text);
    learn_ring_leave(ring);
}

static void test_messages_that_are_not_of_this_session_are_refused(void **state)
{
    char x[8] = {1};
    says(&(learn_frame){.kind = LEARN_FRAME_SUM, .generation = 2, .length = 8}, x, 8, PST_EFENCED,
         "of generation 2, and this is generation 3");
    says(&(learn_frame){.kind = LEARN_FRAME_SUM, .session = 99, .length = 8}, x, 8, PST_EFENCED, "another session");
    says(&(learn_frame){.kind = LEARN_FRAME_SUM, .sequence = 1, .length = 8}, x, 8, PST_EFENCED, "message 0 of this one was due");
    says(&(learn_frame){.kind = LEARN_FRAME_SUM, .length = 8, .crc = 77}, x, 8, PST_EPARSE, "damaged");
    says(&(learn_frame){.kind = 99, .length = 8}, x, 8, PST_EPARSE, "unknown kind 99");
    says(&(learn_frame){.kind = LEARN_FRAME_SUM, .length = UINT32_MAX}, x, 8, PST_ELIMIT, "4294967295 bytes");
    says(&(learn_frame){.kind = LEARN_FRAME_ALIVE, .length = 8}, x, 8, PST_ELIMIT, "8 bytes");
    says(&(learn_frame){.kind = LEARN_FRAME_BLOB, .length = 8}, x, 8, PST_EINCOMPAT, "elsewhere in the training");
    says(&(learn_frame){.kind = LEARN_FRAME_SUM, .length = 0}, x, 0, PST_EINCOMPAT, "elsewhere in the training");
}

static void test_bytes_that_are_no_message_are_refused(void **state)
{
    rank r;
    char junk[500];
    pst_random(junk, sizeof junk);
    learn_ring *ring = beside(&r, 20000000);
    send(ring->out.fd, junk, sizeof junk, MSG_NOSIGNAL);
    must_fail(&r, PST_EPARSE, "no message of this ring");
    learn_ring_leave(ring);
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------------------------ */

static void test_every_record_is_in_one_minibatch(void **state)
{
    size_t train[3] = {101, 7, 50};
    learn_pool p = {.world = 3, .train = train};
    for (int size = 1; size < 200; size = size * 3 + 1) {
        size_t until[3] = {0, 0, 0};
        int64_t sum = 0, batches = learn_pool_batches(&p, size);
        assert_int_equal(batches, (158 + size - 1) / size);
        for (int64_t b = 0; b < batches; b++) {
            size_t from, to;
            int64_t rows = 0, said = 0;
            for (p.rank = 0; p.rank < 3; p.rank++) {
                said = learn_pool_rows(&p, b, size, &from, &to);
                assert_int_equal(from, until[p.rank]);
                assert_true(to >= from && to - from <= (size_t)size);
                until[p.rank] = to;
                rows += (int64_t)(to - from);
            }
            assert_int_equal(rows, said);
            assert_true(rows <= size + 3 && (rows > 0 || size < 3));
            sum += rows;
        }
        assert_int_equal(sum, 158);
        assert_true(until[0] == 101 && until[1] == 7 && until[2] == 50);
    }
}

static void test_shares_of_ranges(void **state)
{
    learn_data_range whole[] = {
        {(char *)"a", 0, 10, 20, 0}, {(char *)"a", 1, 5, 5, 0}, {(char *)"a", 2, 0, 7, 0}, {(char *)"b", 0, 100, 101, 0}};
    learn_ranges split, joined;
    for (int world = 1; world < 25; world++) {
        int64_t of[25] = {0}, sum = 0;
        learn_ranges_split(whole, 4, world, &split);
        for (size_t i = 0; i < split.n; i++) {
            assert_true(split.at[i].from < split.at[i].to && split.at[i].rank < world && (!i || split.at[i].rank >= split.at[i - 1].rank));
            of[split.at[i].rank] += split.at[i].to - split.at[i].from;
            sum += split.at[i].to - split.at[i].from;
        }
        assert_int_equal(sum, 18);
        for (int k = 0; k < world; k++)
            assert_true(of[k] >= 18 / world && of[k] <= 18 / world + 1);
        learn_ranges_join(split.at, split.n, &joined);
        assert_int_equal(joined.n, 3);
        assert_true(joined.at[0].from == 10 && joined.at[0].to == 20 && joined.at[1].partition == 2 && joined.at[1].to == 7 &&
                    joined.at[2].to == 101);
        learn_ranges_done(&split);
        learn_ranges_done(&joined);
    }
    learn_ranges_limit(whole, 4, 9);
    assert_int_equal(whole[0].to - whole[0].from + whole[2].to - whole[2].from + whole[3].to - whole[3].from, 9);
    assert_true(whole[0].to == 15 && whole[1].to == 5);
    learn_ranges_limit(whole, 4, 0);
    assert_int_equal(whole[0].to, 15);
}

static void test_lists_of_ranges_that_are_none(void **state)
{
    static const char *const bad[] = {"{}",
                                      "[1]",
                                      "[{\"topic\":\"t\",\"partition\":-1,\"from\":0,\"to\":1}]",
                                      "[{\"topic\":\"t\",\"partition\":0,\"from\":2,\"to\":1}]",
                                      "[{\"topic\":\"t\",\"partition\":0,\"from\":0,\"to\":9223372036854775807}]",
                                      "[{\"topic\":\"t\",\"partition\":0,\"from\":0,\"to\":1,\"rank\":3}]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        learn_ranges r;
        json_t *j = json_loads(bad[i], 0, NULL);
        assert_int_equal(learn_ranges_of_json(j, 3, &r, NULL), PST_EPARSE);
        json_decref(j);
    }
}

#define FRESH(t) cmocka_unit_test_setup(t, new_ports)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(test_sums_are_plain_sums_to_the_last_bit),
        FRESH(test_everybody_gets_what_everybody_gave),
        FRESH(test_more_than_the_limit_is_refused),
        FRESH(test_strangers_are_sent_away_and_the_ring_closes),
        FRESH(test_a_stale_rank_is_fenced),
        FRESH(test_waiting_for_others_can_be_stopped),
        FRESH(test_one_that_stalls_is_an_error_and_named),
        FRESH(test_one_that_is_busy_and_says_so_is_waited_for),
        FRESH(test_one_that_vanishes_is_an_error),
        FRESH(test_messages_that_are_not_of_this_session_are_refused),
        FRESH(test_bytes_that_are_no_message_are_refused),
        cmocka_unit_test(test_every_record_is_in_one_minibatch),
        cmocka_unit_test(test_shares_of_ranges),
        cmocka_unit_test(test_lists_of_ranges_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
