/* test_sink_dir.c - a sink's folder: files and places move together. A writer that is killed at any step leaves what the next one cuts back or puts in place;
 * what a note says about files outside the folder is not believed. */
#include "common/base/fs.h"
#include "consumers/sink/sink_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int setup(void **state)
{
    char *dir = pst_strdup("/tmp/pst-sink-XXXXXX");
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    pst_fs_remove_tree(*state, NULL);
    free(*state);
    return 0;
}

static sink_dir *begin(const char *dir)
{
    sink_dir *d = NULL;
    pst_err err = {0};
    int rc = sink_dir_open(dir, "test", &d, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return d;
}

static void put(const char *dir, const char *file, const char *text)
{
    char *path = pst_fs_join(dir, file);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
    free(path);
}

static void assert_file(const char *dir, const char *file, const char *text)
{
    char *path = pst_fs_join(dir, file);
    pst_buf b = {0};
    if (text) {
        assert_int_equal(pst_fs_read(path, 1 << 20, &b, NULL), 0);
        assert_int_equal(b.len, strlen(text));
        assert_memory_equal(b.data, text, b.len);
    } else {
        assert_false(pst_fs_exists(path));
    }
    pst_buf_done(&b);
    free(path);
}

static void test_places_and_files_move_together(void **state)
{
    sink_dir *d = begin(*state);
    pst_err err = {0};
    assert_int_equal(sink_dir_place(d, "t", 0), -1);
    for (int round = 0; round < 3; round++) {
        sink_dir_append(d, "t/a.jsonl", "#\n", 2, "1\n", 2);
        sink_dir_append(d, "t/a.jsonl", "#\n", 2, "2\n", 2);
        sink_dir_set_place(d, "t", 0, 2 * (round + 1));
        assert_int_equal(sink_dir_pending(d), 4);
        assert_int_equal(sink_dir_settle(d, &err), 0);
        assert_int_equal(sink_dir_pending(d), 0);
    }
    sink_dir_append(d, "t/a.jsonl", NULL, 0, "lost\n", 5); /* not settled: forgotten with its place */
    sink_dir_set_place(d, "t", 0, 7);
    sink_dir_close(d);
    assert_file(*state, "t/a.jsonl", "#\n1\n2\n1\n2\n1\n2\n");
    d = begin(*state);
    assert_int_equal(sink_dir_place(d, "t", 0), 6);
    assert_int_equal(sink_dir_place(d, "t", 1), -1);
    sink_dir_close(d);
}

static void test_a_file_that_was_growing_is_cut_back(void **state)
{
    sink_dir *d = begin(*state);
    sink_dir_append(d, "a", NULL, 0, "12345", 5);
    sink_dir_set_place(d, "t", 3, 5);
    assert_int_equal(sink_dir_settle(d, NULL), 0);
    sink_dir_close(d);
    put(*state, ".penstock-sink.json",
        "{\"sink\":\"test\",\"places\":{\"t\":{\"3\":5}},\"number\":4,\"growing\":{\"a\":5,\"new\":0,\"absent\":9},\"put\":[]}");
    put(*state, "a", "12345and what was not settled");
    put(*state, "new", "all of it");
    d = begin(*state);
    assert_int_equal(sink_dir_place(d, "t", 3), 5);
    assert_int_equal(sink_dir_number(d), 5);
    assert_file(*state, "a", "12345");
    assert_file(*state, "new", "");
    sink_dir_append(d, "new", "head ", 5, "x", 1); /* empty again: its head comes first */
    assert_int_equal(sink_dir_settle(d, NULL), 0);
    assert_file(*state, "new", "head x");
    sink_dir_close(d);
}

static void test_complete_files_are_put_in_place(void **state)
{
    sink_dir *d = begin(*state);
    put(*state, ".tmp-1.avro", "one");
    assert_int_equal(sink_dir_place_file(d, ".tmp-1.avro", "t/one.avro", NULL), 0);
    sink_dir_set_place(d, "t", 0, 1);
    assert_int_equal(sink_dir_settle(d, NULL), 0);
    assert_file(*state, "t/one.avro", "one");
    sink_dir_close(d);
    /* Killed after the note and before the renaming, beside a file that was not complete. */
    put(*state, ".penstock-sink.json",
        "{\"sink\":\"test\",\"places\":{\"t\":{\"0\":2}},\"number\":3,\"growing\":{},\"put\":[[\".tmp-2.avro\",\"t/two.avro\"]]}");
    put(*state, ".tmp-2.avro", "two");
    put(*state, ".tmp-3.avro", "half");
    d = begin(*state);
    assert_file(*state, "t/two.avro", "two");
    assert_file(*state, ".tmp-2.avro", NULL);
    assert_file(*state, ".tmp-3.avro", NULL);
    sink_dir_close(d);
}

/* Whoever may write the note may write the folder, but nothing beside it by our hand. */
static void test_names_outside_the_folder_are_not_believed(void **state)
{
    char *outside = pst_sprintf("%s.outside", (char *)*state), *name = pst_sprintf("../%s", strrchr(outside, '/') + 1), note[900];
    assert_int_equal(pst_fs_write_atomic(outside, "precious", 8, 0600, NULL), 0);
    snprintf(note, sizeof note,
             "{\"sink\":\"test\",\"places\":7,\"growing\":{\"%s\":0,\"%s\":0,\"\":0,\"a//b\":0,\".\":0,\"x\":\"0\"},"
             "\"put\":[[\".tmp-1\",\"%s\"],[\"%s\",\"mine\"],[\".tmp-1\"],7,[null,\"x\"]]}",
             name, outside, name, name);
    put(*state, ".penstock-sink.json", note);
    put(*state, ".tmp-1", "x");
    sink_dir_close(begin(*state));
    assert_file("/", outside + 1, "precious");
    assert_file(*state, "mine", NULL);
    unlink(outside);
    free(outside);
    free(name);
}

static void test_what_cannot_be_written_is_said(void **state)
{
    pst_err err = {0};
    sink_dir *d = begin(*state), *second = NULL;
    assert_int_equal(sink_dir_open(*state, "test", &second, &err), PST_EEXIST);
    assert_non_null(strstr(err.text, "another sink writes into"));
    char *link = pst_fs_join(*state, "link");
    assert_int_equal(symlink("/tmp", link), 0);
    free(link);
    sink_dir_append(d, "link", NULL, 0, "x", 1); /* somebody's link: not followed */
    err = (pst_err){0};
    assert_true(sink_dir_settle(d, &err) < 0);
    assert_non_null(strstr(err.text, "no regular file"));
    sink_dir_append(d, "fine", NULL, 0, "x", 1); /* after a failure nothing settles any more, or it would be there twice */
    err = (pst_err){0};
    assert_int_equal(sink_dir_settle(d, &err), PST_ESTATE);
    assert_file(*state, "fine", NULL);
    sink_dir_close(d);
    err = (pst_err){0};
    assert_true(sink_dir_open(*state, "other", &second, &err) == 0 || strstr(err.text, "take another folder"));
    if (second)
        sink_dir_close(second);
    put(*state, ".penstock-sink.json", "{\"sink\":");
    err = (pst_err){0};
    second = NULL;
    assert_true(sink_dir_open(*state, "test", &second, &err) < 0); /* broken: nobody guesses where it was */
    assert_null(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_places_and_files_move_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_was_growing_is_cut_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_complete_files_are_put_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_outside_the_folder_are_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_written_is_said, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
