/* test_code_sweep.c - archives of code: who needs them keeps them, age and a new put count, and a sweep beside a writer loses nothing. */
#include "test.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/objects/objects.h"
#include "s3_server.h"
#include "trainer/code_sweep.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOUR_US ((int64_t)3600 * 1000000)

typedef struct place {
    char dir[64], *url;
    pst_objects *o;
    tcore *core;
    trainer_code_sweep *sweep;
    int64_t mono;
} place;

static void place_open(place *p, int64_t keep_us)
{
    snprintf(p->dir, sizeof p->dir, "/tmp/pst-sweep-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->url = pst_sprintf("file:%s", p->dir);
    assert_int_equal(pst_objects_open(p->url, &p->o, NULL), 0);
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    p->core = tcore_new(&policy);
    p->sweep = trainer_code_sweep_new(keep_us);
    p->mono = 1;
}

static void place_close(place *p)
{
    trainer_code_sweep_free(p->sweep);
    tcore_free(p->core);
    pst_objects_close(p->o);
    pst_fs_remove_tree(p->dir, NULL);
    free(p->url);
}

/* Puts an archive as if that had been so long ago; its key in key[80]. */
static void put(place *p, const char *content, int64_t ago_us, char *key, char **ret_uri)
{
    char hex[65], path[256];
    pst_sha256_hex(content, strlen(content), hex);
    snprintf(key, 80, "code/%s", hex);
    assert_int_equal(pst_objects_put(p->o, key, content, strlen(content), ret_uri, NULL), 0);
    int64_t then = pst_now_us() - ago_us;
    struct timespec t[2] = {{then / 1000000, 0}, {then / 1000000, 0}};
    snprintf(path, sizeof path, "%s/%s", p->dir, key);
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static bool there(place *p, const char *key)
{
    pst_buf b = {0};
    int rc = pst_objects_get(p->o, key, NULL, 1 << 20, &b, NULL);
    pst_buf_done(&b);
    return rc == 0;
}

static void load(place *p, const char *id, pst_job_public_state state, const char *uri, const char *sha256)
{
    pst_code_ref code = {
        .uri = (char *)(uri ? uri : ""), .sha256 = (char *)(sha256 ? sha256 : ""), .media_type = (char *)"application/zip"};
    pst_job_state s = {.training_id = (char *)id,
                       .request_id = (char *)id,
                       .name = (char *)"n",
                       .description = (char *)"",
                       .user = (char *)"u",
                       .state = state,
                       .queue = (char *)"default",
                       .site = (char *)"local",
                       .framework = (char *)"custom",
                       .manifest = (char *)"name: n\nframework: {name: custom, version: \"1\", command: x}\n",
                       .learners = 1,
                       .stop_by = (char *)"",
                       .request_sha256 = (char *)"",
                       .code = uri || sha256 ? &code : NULL,
                       .seq = 1,
                       .submitted_at = 1};
    tcore_load(p->core, &s);
}

/* A pass, and the steps that it takes. */
static void pass(place *p, int64_t wall_us)
{
    p->mono += 24 * HOUR_US;
    for (int i = 0; i < 10; i++)
        trainer_code_sweep_step(p->sweep, p->o, p->core, p->mono, wall_us);
}

static void test_sweep_keeps_what_a_job_can_still_use(void **state)
{
    (void)state;
    place p;
    char queued[80], runs[80], failed[80], halted[80], done[80], ended[80], nobody[80], young[80], *uri[7] = {NULL};
    place_open(&p, 48 * HOUR_US);
    put(&p, "queued", 100 * HOUR_US, queued, &uri[0]);
    put(&p, "runs", 100 * HOUR_US, runs, &uri[1]);
    put(&p, "failed", 100 * HOUR_US, failed, &uri[2]);
    put(&p, "halted", 100 * HOUR_US, halted, &uri[3]);
    put(&p, "done", 100 * HOUR_US, done, &uri[4]);
    put(&p, "ended", 100 * HOUR_US, ended, &uri[5]);
    put(&p, "nobody", 100 * HOUR_US, nobody, NULL);
    put(&p, "young", 47 * HOUR_US, young, NULL);
    load(&p, "j1", PST_JOB_PUBLIC_STATE_QUEUED, uri[0], NULL);
    load(&p, "j2", PST_JOB_PUBLIC_STATE_PROCESSING, "code/elsewhere", strchr(runs, '/') + 1);
    load(&p, "j3", PST_JOB_PUBLIC_STATE_FAILED, uri[2], NULL);
    load(&p, "j4", PST_JOB_PUBLIC_STATE_HALTED, uri[3], NULL);
    load(&p, "j5", PST_JOB_PUBLIC_STATE_COMPLETED, uri[4], strchr(done, '/') + 1);
    load(&p, "j6", PST_JOB_PUBLIC_STATE_TERMINATED, uri[5], NULL);
    load(&p, "j7", PST_JOB_PUBLIC_STATE_COMPLETED, uri[0], NULL); /* shares the archive of one that waits */
    tcore_loaded(p.core);
    pass(&p, pst_now_us());
    assert_true(there(&p, queued));
    assert_true(there(&p, runs));
    assert_true(there(&p, failed));
    assert_true(there(&p, halted));
    assert_true(there(&p, young));
    assert_false(there(&p, done));
    assert_false(there(&p, ended));
    assert_false(there(&p, nobody));
    pass(&p, pst_now_us() + 2 * HOUR_US);
    assert_false(there(&p, young));
    for (int i = 0; i < 7; i++)
        free(uri[i]);
    place_close(&p);
}

static void test_sweep_a_put_or_a_touch_makes_it_new_again(void **state)
{
    (void)state;
    place p;
    char again[80], touched[80], gone[80];
    place_open(&p, 48 * HOUR_US);
    put(&p, "again", 100 * HOUR_US, again, NULL);
    put(&p, "touched", 100 * HOUR_US, touched, NULL);
    put(&p, "gone", 100 * HOUR_US, gone, NULL);
    assert_int_equal(pst_objects_put(p.o, again, "again", 5, NULL, NULL), 0);
    assert_int_equal(pst_objects_touch(p.o, touched, NULL), 0);
    pst_err err = {0};
    assert_int_equal(pst_objects_touch(p.o, "code/none", &err), PST_ENOTFOUND);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    pass(&p, pst_now_us());
    assert_true(there(&p, again));
    assert_true(there(&p, touched));
    assert_false(there(&p, gone));
    place_close(&p);
}

static void test_sweep_leaves_alone_what_is_no_code_and_keeps_for_ever_on_demand(void **state)
{
    (void)state;
    place p, q;
    char key[80], other[80];
    place_open(&p, 48 * HOUR_US);
    put(&p, "x", 100 * HOUR_US, key, NULL);
    assert_int_equal(pst_objects_put(p.o, "code/by-hand.zip", "y", 1, NULL, NULL), 0);
    assert_int_equal(pst_objects_put(p.o, "models/m/0123.onnx", "z", 1, NULL, NULL), 0);
    pass(&p, pst_now_us() + 1000 * HOUR_US);
    assert_false(there(&p, key));
    assert_true(there(&p, "code/by-hand.zip"));
    assert_true(there(&p, "models/m/0123.onnx"));
    place_close(&p);
    place_open(&q, 0);
    put(&q, "x", 100 * HOUR_US, other, NULL);
    pass(&q, pst_now_us() + 1000 * HOUR_US);
    assert_true(there(&q, other));
    place_close(&q);
}

static void test_sweep_drafts_of_killed_writers_go(void **state)
{
    (void)state;
    place p;
    char path[2][128];
    place_open(&p, 48 * HOUR_US);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/.tmp/%d-abc", p.dir, i);
        int fd = open(path[i], O_CREAT | O_WRONLY, 0600);
        assert_true(fd >= 0);
        struct timespec t[2] = {{time(NULL) - 2 * 86400, 0}, {time(NULL) - 2 * 86400, 0}};
        if (i == 0)
            assert_int_equal(futimens(fd, t), 0);
        close(fd);
    }
    pass(&p, pst_now_us());
    assert_int_equal(access(path[0], F_OK), -1);
    assert_int_equal(access(path[1], F_OK), 0);
    place_close(&p);
}

typedef struct writer {
    const char *url, *key;
    atomic_bool stop;
} writer;

static void *sweep_for_ever(void *arg)
{
    writer *w = arg;
    pst_objects *o;
    bool removed;
    assert_int_equal(pst_objects_open(w->url, &o, NULL), 0);
    while (!atomic_load(&w->stop))
        pst_objects_expire(o, w->key, pst_now_us() - 60000000, &removed, NULL);
    pst_objects_close(o);
    return NULL;
}

/* What was put again is there: however the writer and a sweeper that takes it for old meet. */
static void test_sweep_beside_a_writer_loses_nothing(void **state)
{
    (void)state;
    place p;
    char key[80];
    pthread_t t;
    place_open(&p, HOUR_US);
    put(&p, "archive", 2 * HOUR_US, key, NULL);
    writer w = {.url = p.url, .key = key};
    assert_int_equal(pthread_create(&t, NULL, sweep_for_ever, &w), 0);
    for (int i = 0; i < 300; i++) {
        put(&p, "archive", 2 * HOUR_US, key, NULL); /* old, so the sweeper is at it */
        assert_int_equal(pst_objects_put(p.o, key, "archive", 7, NULL, NULL), 0);
        assert_true(there(&p, key));
    }
    atomic_store(&w.stop, true);
    pthread_join(t, NULL);
    place_close(&p);
}

/* Three old archives, and then a store that is away. */
static void away_after_the_list(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body,
                                pst_buf *out)
{
    pst_buf xml = {0};
    pst_buf_adds(&xml, "<ListBucketResult>");
    for (int i = 0; i < 3; i++)
        pst_buf_printf(&xml,
                       "<Contents><Key>code/%064d</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>", i);
    pst_buf_adds(&xml, "</ListBucketResult>");
    s3_say(out, n == 1 ? "200" : "503", "", xml.data, n == 1 ? xml.len : 0, -1);
    pst_buf_done(&xml);
}

/* Each archive would be waited for, by the Trainer as a whole. */
static void test_sweep_ends_when_the_store_is_away(void **state)
{
    s3_server server;
    place p;
    place_open(&p, HOUR_US);
    s3_server_start(&server, away_after_the_list, NULL);
    setenv("PENSTOCK_OBJECTS_ENDPOINT", server.url, 1);
    setenv("PENSTOCK_OBJECTS_ACCESS_KEY", "key", 1);
    setenv("PENSTOCK_OBJECTS_SECRET_KEY", "secret", 1);
    pst_objects_close(p.o);
    assert_int_equal(pst_objects_open("s3://bucket", &p.o, NULL), 0);
    pst_objects_patience(p.o, 0);
    tcore_loaded(p.core);
    pass(&p, pst_now_us());
    assert_int_equal(server.requests, 2);
    place_close(&p);
    s3_server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep_keeps_what_a_job_can_still_use),
        cmocka_unit_test(test_sweep_a_put_or_a_touch_makes_it_new_again),
        cmocka_unit_test(test_sweep_leaves_alone_what_is_no_code_and_keeps_for_ever_on_demand),
        cmocka_unit_test(test_sweep_drafts_of_killed_writers_go),
        cmocka_unit_test(test_sweep_beside_a_writer_loses_nothing),
        cmocka_unit_test(test_sweep_ends_when_the_store_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
