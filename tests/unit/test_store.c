/* test_store.c - one suite for every back end of the document store:
 *     test_store memory | sqlite | mongodb
 * mongodb needs PENSTOCK_TEST_MONGO=mongodb://HOST:PORT (tests/live/mongo/run starts a server and sets it); each test gets a database of its
 * own there. What differs by nature: a rollback on MongoDB keeps documents, so the suite asks only that doing it again is harmless. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *kind;
static char dir[] = "/tmp/pst-store-XXXXXX";
static char *url;
static int n_urls;

static pst_store *open_store(const char *at, bool read_only)
{
    pst_err err = {0};
    pst_store *s = NULL;
    if (pst_store_open(at, read_only, &s, &err) < 0)
        fail_msg("cannot open %s: %s", at, err.text);
    return s;
}

/* A fresh, empty store for every test. */
static int setup(void **state)
{
    free(url);
    n_urls++;
    if (!strcmp(kind, "sqlite"))
        url = pst_sprintf("sqlite:%s/sub%d/store.db", dir, n_urls);
    else if (!strcmp(kind, "mongodb"))
        url = pst_sprintf("%s/pst_test_%d_%d", getenv("PENSTOCK_TEST_MONGO"), (int)getpid(), n_urls);
    else
        url = pst_strdup("memory:");
    pst_err err = {0};
    pst_store *s;
    if (pst_store_open(url, false, &s, &err) < 0) {
        fprintf(stderr, "cannot open %s: %s\n", url, err.text);
        return -1;
    }
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    if (s && !strcmp(kind, "mongodb") && pst_store_begin(s, &err) == 0 && pst_store_commit(s, &err) == 0)
        pst_store_wipe(s, &err);
    pst_store_close(s);
    return 0;
}

static bool put(pst_store *s, const char *id, int64_t seq, const char *text)
{
    pst_err err = {0};
    json_t *doc = json_loads(text, 0, NULL);
    assert_non_null(doc);
    bool applied = false;
    if (pst_store_put(s, "jobs", id, seq, doc, &applied, &err) < 0)
        fail_msg("put %s: %s", id, err.text);
    json_decref(doc);
    return applied;
}

static void get_is(pst_store *s, const char *id, const char *text)
{
    pst_err err = {0};
    json_t *doc = NULL, *want = text ? json_loads(text, 0, NULL) : NULL;
    int rc = pst_store_get(s, "jobs", id, &doc, &err);
    if (!text) {
        assert_int_equal(rc, PST_ENOTFOUND);
        assert_int_equal(err.cls, PST_CLASS_DATA);
        return;
    }
    if (rc < 0)
        fail_msg("get %s: %s", id, err.text);
    if (!json_equal(doc, want))
        fail_msg("%s: got %s, wanted %s", id, json_dumps(doc, 0), text);
    json_decref(doc);
    json_decref(want);
}

static void test_store_put_is_guarded_by_seq(void **state)
{
    pst_store *s = *state;
    get_is(s, "a", NULL);
    assert_true(put(s, "a", 5, "{\"v\":5}"));
    assert_false(put(s, "a", 5, "{\"v\":55}"));
    assert_false(put(s, "a", 3, "{\"v\":3}"));
    get_is(s, "a", "{\"v\":5}");
    assert_true(put(s, "a", 6, "{\"v\":6,\"w\":1}"));
    get_is(s, "a", "{\"v\":6,\"w\":1}");
    assert_true(put(s, "a", 7, "{\"v\":7}")); /* what is gone from the document is gone from the store */
    get_is(s, "a", "{\"v\":7}");
}

static void test_store_delete_keeps_older_puts_out(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    put(s, "a", 5, "{\"v\":5}");
    assert_int_equal(pst_store_delete(s, "jobs", "a", 4, &err), 0); /* an old tombstone */
    get_is(s, "a", "{\"v\":5}");
    assert_int_equal(pst_store_delete(s, "jobs", "a", 6, &err), 0);
    get_is(s, "a", NULL);
    assert_false(put(s, "a", 6, "{\"v\":6}"));
    get_is(s, "a", NULL);
    assert_true(put(s, "a", 7, "{\"v\":7}"));
    get_is(s, "a", "{\"v\":7}");
    assert_int_equal(pst_store_delete(s, "jobs", "never", 1, &err), 0);
    assert_false(put(s, "never", 1, "{}"));
}

static void test_store_documents_come_back_as_they_were(void **state)
{
    static const char doc[] =
        "{\"state\":\"QUEUED\",\"user\":\"ann\",\"submitted_at\":1700000000000001,\"text\":\"Grüße\\n\\\"q\\\" \\u0001\","
        "\"big\":9007199254740993,\"real\":0.1,\"whole\":2.0,\"yes\":true,\"no\":false,\"none\":null,"
        "\"list\":[1,[2,{\"x\":3}],\"a\"],\"empty\":{},\"details\":{\"penstock.env.A\":\"dots\",\"$where\":\"dollar\","
        "\"100%\":\"percent\",\"%2E\":\"looks encoded\",\"\":\"no name\"}}";
    pst_store *s = *state;
    put(s, "a.b/c:1", 1, doc);
    get_is(s, "a.b/c:1", doc);
    assert_string_equal(pst_store_kind(s), kind);
}

static json_t *listed(pst_store *s, pst_store_query q)
{
    pst_err err = {0};
    json_t *docs = NULL;
    if (pst_store_list(s, "jobs", &q, &docs, &err) < 0)
        fail_msg("list: %s", err.text);
    return docs;
}

/* The "n" of each document, as text. */
static void list_is(pst_store *s, pst_store_query q, const char *want)
{
    char text[200] = "";
    size_t i;
    json_t *d, *docs = listed(s, q);
    json_array_foreach(docs, i, d)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%lld ", json_integer_value(json_object_get(d, "n")));
    assert_string_equal(text, want);
    json_decref(docs);
}

static void test_store_list_newest_first_filtered_and_paged(void **state)
{
    pst_store *s = *state;
    for (int i = 1; i <= 9; i++) {
        char id[16], doc[120];
        snprintf(id, sizeof id, "j%d", i);
        snprintf(doc, sizeof doc, "{\"n\":%d,\"state\":\"%s\",\"user\":\"%s\",\"submitted_at\":%d}", i, i % 2 ? "QUEUED" : "COMPLETED",
                 i % 3 ? "ann" : "bob", i / 2 * 1000); /* pairs share a time: then by id */
        put(s, id, 1, doc);
    }
    pst_err err = {0};
    pst_store_delete(s, "jobs", "j6", 2, &err);
    list_is(s, (pst_store_query){0}, "8 9 7 4 5 2 3 1 ");
    list_is(s, (pst_store_query){.state = "QUEUED"}, "9 7 5 3 1 ");
    list_is(s, (pst_store_query){.user = "bob"}, "9 3 ");
    list_is(s, (pst_store_query){.state = "COMPLETED", .user = "ann"}, "8 4 2 ");
    list_is(s, (pst_store_query){.limit = 3}, "8 9 7 ");
    list_is(s, (pst_store_query){.limit = 3, .after = "j7", .after_time = 3000}, "4 5 2 ");
    list_is(s, (pst_store_query){.limit = 3, .after = "j2", .after_time = 1000}, "3 1 ");
    list_is(s, (pst_store_query){.after = "j1", .after_time = 0}, "");
    list_is(s, (pst_store_query){.state = "QUEUED", .after = "j4", .after_time = 2000}, "5 3 1 ");
    /* The last one of a page may be gone when the next is asked for: deleted, or never there. */
    list_is(s, (pst_store_query){.limit = 3, .after = "j6", .after_time = 3000}, "7 4 5 ");
    pst_store_delete(s, "jobs", "j7", 2, &err);
    list_is(s, (pst_store_query){.limit = 3, .after = "j7", .after_time = 3000}, "4 5 2 ");
    list_is(s, (pst_store_query){.after = "j99", .after_time = 1000}, "1 ");
}

static void test_store_positions_go_with_their_puts(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    int64_t next = -1;
    assert_int_equal(pst_store_position_get(s, "t", 0, &next, &err), PST_ENOTFOUND);
    assert_int_equal(pst_store_begin(s, &err), 0);
    put(s, "a", 1, "{\"v\":1}");
    assert_int_equal(pst_store_position_set(s, "t", 0, 7, &err), 0);
    assert_int_equal(pst_store_position_set(s, "t", 0, 8, &err), 0);
    assert_int_equal(pst_store_position_get(s, "t", 0, &next, &err), 0);
    assert_int_equal(next, 8);
    assert_int_equal(pst_store_commit(s, &err), 0);
    assert_int_equal(pst_store_position_get(s, "t", 0, &next, &err), 0);
    assert_int_equal(next, 8);

    assert_int_equal(pst_store_begin(s, &err), 0);
    put(s, "b", 1, "{\"v\":1}");
    pst_store_position_set(s, "t", 0, 9, &err);
    pst_store_rollback(s);
    assert_int_equal(pst_store_position_get(s, "t", 0, &next, &err), 0);
    assert_int_equal(next, 8);
    put(s, "b", 1, "{\"v\":1}"); /* the batch comes again */
    get_is(s, "b", "{\"v\":1}");
    assert_int_equal(pst_store_position_get(s, "t", 1, &next, &(pst_err){0}), PST_ENOTFOUND);
}

static void test_store_wipe_leaves_nothing(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    int64_t next;
    assert_int_equal(pst_store_begin(s, &err), 0);
    put(s, "a", 9, "{\"v\":1}");
    pst_store_position_set(s, "t", 2, 5, &err);
    assert_int_equal(pst_store_commit(s, &err), 0);
    assert_int_equal(pst_store_wipe(s, &err), 0);
    assert_int_equal(pst_store_wipe(s, &err), 0); /* where there is nothing */
    get_is(s, "a", NULL);
    assert_int_equal(pst_store_position_get(s, "t", 2, &next, &(pst_err){0}), PST_ENOTFOUND);
    assert_true(put(s, "a", 1, "{\"v\":2}"));
}

/* A database may hold another application's collection of jobs: that is not emptied. */
static void test_mongo_documents_of_others_are_left_alone(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    if (strcmp(kind, "mongodb") != 0)
        return;
    put(s, "theirs", 1, "{\"v\":1}"); /* no transaction of a writer stands before it */
    assert_int_equal(pst_store_wipe(s, &err), PST_ESTATE);
    assert_non_null(strstr(err.text, "no penstock filled"));
    get_is(s, "theirs", "{\"v\":1}");
}

static void test_store_dump_is_canonical(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    put(s, "b", 2, "{\"z\":1,\"a\":{\"y\":1,\"b\":2}}");
    put(s, "a", 1, "{\"n\":1}");
    put(s, "c", 1, "{}");
    pst_store_delete(s, "jobs", "c", 2, &err);
    char *dump = pst_store_dump(s, "jobs", &err);
    assert_string_equal(dump, "a 1 {\"n\":1}\nb 2 {\"a\":{\"b\":2,\"y\":1},\"z\":1}\n");
    free(dump);
}

static void test_store_bad_arguments_are_refused(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    bool applied;
    json_t *doc = json_object(), *list = json_array();
    assert_int_equal(pst_store_put(s, "Jobs; DROP", "a", 1, doc, &applied, &err), PST_EINVAL);
    assert_int_equal(pst_store_put(s, "jobs", "", 1, doc, &applied, &(pst_err){0}), PST_EINVAL);
    assert_int_equal(pst_store_put(s, "jobs", "a", 1, list, &applied, &(pst_err){0}), PST_EINVAL);
    char *big = malloc(17 << 20);
    memset(big, 'x', (17 << 20) - 1);
    big[(17 << 20) - 1] = '\0';
    json_object_set_new(doc, "big", json_string(big));
    int rc = pst_store_put(s, "jobs", "a", 1, doc, &applied, &(pst_err){0});
    assert_true(rc == PST_ELIMIT || !strcmp(kind, "memory"));
    free(big);
    json_decref(doc);
    json_decref(list);
}

enum { RACERS = 4, RACE_ROUNDS = 50 };
static void *race(void *arg)
{
    pst_store *s = open_store(url, false);
    for (int i = 0; i < RACE_ROUNDS; i++) {
        char doc[40];
        int seq = i * RACERS + (int)(intptr_t)arg + 1;
        snprintf(doc, sizeof doc, "{\"v\":%d}", seq);
        pst_err err = {0};
        json_t *j = json_loads(doc, 0, NULL);
        bool applied;
        for (int tries = 0; pst_store_put(s, "jobs", "shared", seq, j, &applied, &err) < 0 && tries < 50; tries++)
            pst_err_clear(&err); /* locked for a moment: RETRY */
        json_decref(j);
    }
    pst_store_close(s);
    return NULL;
}

static void test_store_racing_writers_leave_the_newest(void **state)
{
    if (!strcmp(kind, "memory"))
        skip(); /* memory belongs to one process and thread */
    pthread_t t[RACERS];
    for (intptr_t i = 0; i < RACERS; i++)
        pthread_create(&t[i], NULL, race, (void *)i);
    for (int i = 0; i < RACERS; i++)
        pthread_join(t[i], NULL);
    get_is(*state, "shared", "{\"v\":200}");
}

/* Replaying the same sequence of puts and tombstones, with repetitions and from any point again, gives the same store. */
static void test_store_replay_is_equal(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    char *first = NULL;
    unsigned r = 12345;
    int64_t seq[10];
    for (int pass = 0; pass < 3; pass++) {
        r = 12345;
        memset(seq, 0, sizeof seq);
        for (int i = 0; i < 120; i++) {
            r = r * 1103515245 + 12345;
            int which = (int)(r >> 16) % 10;
            char id[16], doc[60];
            snprintf(id, sizeof id, "j%d", which);
            seq[which] += 1 + (int)(r >> 8) % 3;
            snprintf(doc, sizeof doc, "{\"n\":%d,\"submitted_at\":%d}", i, which);
            if ((r >> 20) % 8 == 0)
                pst_store_delete(s, "jobs", id, seq[which], &err);
            else
                put(s, id, seq[which], doc);
        }
        char *dump = pst_store_dump(s, "jobs", &err);
        assert_non_null(dump);
        if (first)
            assert_string_equal(dump, first);
        else
            first = pst_strdup(dump);
        free(dump);
    }
    free(first);
}

/* ---- sqlite alone: its file can vanish or be damaged ------------------------------------------------------------------------- */

static void test_sqlite_deleted_file_is_made_anew(void **state)
{
    pst_store *s = *state, *reader;
    pst_err err = {0};
    if (strcmp(kind, "sqlite"))
        skip();
    put(s, "a", 5, "{\"v\":5}");
    reader = open_store(url, true);
    get_is(reader, "a", "{\"v\":5}");
    assert_false(pst_store_rebuilt(s));
    assert_int_equal(unlink(url + 7), 0);
    json_t *doc;
    assert_int_equal(pst_store_get(reader, "jobs", "a", &doc, &err), PST_ENOTFOUND);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    assert_int_equal(pst_store_begin(s, &err), 0);
    assert_true(pst_store_rebuilt(s));
    assert_false(pst_store_rebuilt(s));
    assert_true(put(s, "a", 1, "{\"v\":1}")); /* nothing of the old file is left, its write-ahead log neither */
    assert_int_equal(pst_store_commit(s, &err), 0);
    get_is(reader, "a", "{\"v\":1}");
    pst_store_close(reader);
}

static void test_sqlite_file_deleted_inside_a_transaction_is_noticed_at_the_next(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    if (strcmp(kind, "sqlite"))
        skip();
    assert_int_equal(pst_store_begin(s, &err), 0);
    put(s, "a", 5, "{\"v\":5}");
    unlink(url + 7);
    pst_store_commit(s, &err); /* into a file without a name */
    assert_int_equal(pst_store_begin(s, &(pst_err){0}), 0);
    assert_true(pst_store_rebuilt(s));
    pst_store_rollback(s);
    get_is(s, "a", NULL);
}

static void test_sqlite_damaged_file_is_put_aside(void **state)
{
    pst_store *s = *state;
    pst_err err = {0};
    if (strcmp(kind, "sqlite"))
        skip();
    put(s, "a", 5, "{\"v\":5}");
    pst_store_close(s);
    int fd = open(url + 7, O_WRONLY | O_TRUNC);
    assert_int_equal(
        pst_fs_write_all(fd, "this is no database, although it is long enough to be one ......................................", 96), 0);
    close(fd);
    *state = s = open_store(url, false);
    assert_true(pst_store_rebuilt(s));
    get_is(s, "a", NULL);
    assert_true(put(s, "a", 1, "{\"v\":1}"));
    char *folder = pst_strdup(url + 7);
    *strrchr(folder, '/') = '\0';
    DIR *d = opendir(folder);
    bool aside = false;
    for (struct dirent *e; (e = readdir(d));)
        aside = aside || strstr(e->d_name, ".damaged-");
    closedir(d);
    free(folder);
    assert_true(aside);
    (void)err;
}

static void test_sqlite_reader_waits_for_the_writer(void **state)
{
    pst_err err = {0};
    pst_store *s;
    if (strcmp(kind, "sqlite"))
        skip();
    char *other = pst_sprintf("sqlite:%s/absent/store.db", dir);
    assert_int_equal(pst_store_open(other, true, &s, &err), PST_ENOTFOUND);
    assert_int_equal(err.cls, PST_CLASS_RETRY);
    free(other);
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "memory";
    if (!strcmp(kind, "mongodb") && !getenv("PENSTOCK_TEST_MONGO")) {
        printf(
            "skipped: PENSTOCK_TEST_MONGO is not set; tests/live/mongo/run starts a server and sets it, or give the address of your own\n");
        return 77;
    }
    if (!mkdtemp(dir))
        return 1;
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_store_put_is_guarded_by_seq),
        T(test_store_delete_keeps_older_puts_out),
        T(test_store_documents_come_back_as_they_were),
        T(test_store_list_newest_first_filtered_and_paged),
        T(test_store_positions_go_with_their_puts),
        T(test_store_wipe_leaves_nothing),
        T(test_mongo_documents_of_others_are_left_alone),
        T(test_store_dump_is_canonical),
        T(test_store_bad_arguments_are_refused),
        T(test_store_racing_writers_leave_the_newest),
        T(test_store_replay_is_equal),
        T(test_sqlite_deleted_file_is_made_anew),
        T(test_sqlite_file_deleted_inside_a_transaction_is_noticed_at_the_next),
        T(test_sqlite_damaged_file_is_put_aside),
        T(test_sqlite_reader_waits_for_the_writer),
    };
    int rc = cmocka_run_group_tests_name(kind, tests, NULL, NULL);
    free(url);
    pst_fs_remove_tree(dir, NULL);
    return rc;
}
