/* test_objects.c - the object store in a folder: atomic, bounded, checked, and closed to paths outside of it. */
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/objects/objects.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct place {
    char dir[64];
    char *url;
    pst_objects *o;
} place;

static int setup(void **state)
{
    place *p = pst_alloc(sizeof *p);
    strcpy(p->dir, "/tmp/pst-objects-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->url = pst_sprintf("file:%s/store", p->dir);
    pst_err err = {0};
    assert_int_equal(pst_objects_open(p->url, &p->o, &err), 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;
    pst_objects_close(p->o);
    pst_fs_remove_tree(p->dir, NULL);
    free(p->url);
    free(p);
    return 0;
}

static void test_objects_round_trip_by_uri_and_key(void **state)
{
    place *p = *state;
    pst_err err = {0};
    char *uri = NULL;
    assert_int_equal(pst_objects_put(p->o, "models/m/a.onnx", "hello", 5, &uri, &err), 0);
    char *wanted = pst_sprintf("file:%s/store/models/m/a.onnx", p->dir);
    assert_string_equal(uri, wanted);
    char hex[65];
    pst_sha256_hex("hello", 5, hex);
    pst_buf b = {0};
    assert_int_equal(pst_objects_get(p->o, uri, hex, 100, &b, &err), 0);
    assert_int_equal(b.len, 5);
    assert_memory_equal(b.data, "hello", 5);
    pst_buf_done(&b);
    assert_int_equal(pst_objects_get(p->o, "models/m/a.onnx", NULL, 5, &b, &err), 0);
    pst_buf_done(&b);
    assert_int_equal(pst_objects_get(p->o, uri, NULL, 4, &b, &err), PST_ELIMIT);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    assert_int_equal(pst_objects_delete(p->o, uri, NULL), 0);
    pst_err_clear(&err);
    assert_int_equal(pst_objects_get(p->o, uri, NULL, 100, &b, &err), PST_ENOTFOUND);
    assert_int_equal(pst_objects_delete(p->o, uri, NULL), 0); /* absent is fine */
    free(uri);
    free(wanted);
}

static void test_objects_wrong_digest_is_data_error_and_leaves_nothing(void **state)
{
    place *p = *state;
    pst_err err = {0};
    assert_int_equal(pst_objects_put(p->o, "k", "abc", 3, NULL, &err), 0);
    char bad[65];
    memset(bad, '0', 64);
    bad[64] = 0;
    pst_buf b = {0};
    assert_int_equal(pst_objects_get(p->o, "k", bad, 100, &b, &err), PST_EPARSE);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    assert_null(b.data);
    char *to = pst_fs_join(p->dir, "out");
    assert_int_equal(pst_objects_get_file(p->o, "k", bad, to, NULL), PST_EPARSE);
    assert_false(pst_fs_exists(to));
    assert_int_equal(pst_objects_get_file(p->o, "k", NULL, to, NULL), 0);
    assert_true(pst_fs_exists(to));
    free(to);
}

static void test_objects_file_goes_in_with_its_digest(void **state)
{
    place *p = *state;
    pst_err err = {0};
    char *path = pst_fs_join(p->dir, "in");
    size_t len = 700000;
    char *data = pst_alloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(i * 7);
    assert_int_equal(pst_fs_write_atomic(path, data, len, 0600, &err), 0);
    char hex[65], wanted[65];
    int64_t bytes = 0;
    char *uri = NULL;
    assert_int_equal(pst_objects_put_file(p->o, "big/file", path, hex, &bytes, &uri, &err), 0);
    pst_sha256_hex(data, len, wanted);
    assert_string_equal(hex, wanted);
    assert_int_equal(bytes, len);
    pst_buf b = {0};
    assert_int_equal(pst_objects_get(p->o, uri, wanted, len, &b, &err), 0);
    assert_int_equal(b.len, len);
    pst_buf_done(&b);
    assert_int_equal(pst_objects_put_file(p->o, "x", p->dir, NULL, NULL, NULL, NULL), PST_EINVAL);
    free(uri);
    free(data);
    free(path);
}

static void test_objects_refuses_names_outside_the_store(void **state)
{
    place *p = *state;
    static const char *const bad[] = {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", ".tmp/x", "a/.hidden", "a b", "a\nb", "a/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pst_err err = {0};
        assert_int_equal(pst_objects_put(p->o, bad[i], "x", 1, NULL, &err), PST_EINVAL);
        assert_int_equal(err.cls, PST_CLASS_DATA);
    }
    pst_buf b = {0};
    assert_int_equal(pst_objects_get(p->o, "file:/etc/passwd", NULL, 1000000, &b, NULL), PST_EINVAL);
    assert_int_equal(pst_objects_get(p->o, "file:///etc/passwd", NULL, 1000000, &b, NULL), PST_EINVAL);
    assert_int_equal(pst_objects_get(p->o, "http://host/x", NULL, 1000000, &b, NULL), PST_EINVAL);
    char *sneaky = pst_sprintf("file:%s/store/../secret", p->dir);
    assert_int_equal(pst_objects_get(p->o, sneaky, NULL, 1000000, &b, NULL), PST_EINVAL);
    free(sneaky);
    /* A link planted inside the store leads nowhere. */
    char *link = pst_sprintf("%s/store/link", p->dir);
    assert_int_equal(symlink("/etc", link), 0);
    assert_true(pst_objects_get(p->o, "link/passwd", NULL, 1000000, &b, NULL) < 0);
    assert_true(pst_objects_put(p->o, "link/new", "x", 1, NULL, NULL) < 0);
    free(link);
}

static void test_objects_unknown_stores_say_what_to_do(void **state)
{
    pst_objects *o = NULL;
    pst_err err = {0};
    assert_int_equal(pst_objects_open("s3:/bucket", &o, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "s3://BUCKET/PREFIX"));
    pst_err_clear(&err);
    assert_int_equal(pst_objects_open("ftp:x", &o, &err), PST_EINVAL);
    assert_null(o);
}

static void test_objects_put_twice_keeps_the_last_and_no_rest(void **state)
{
    place *p = *state;
    assert_int_equal(pst_objects_put(p->o, "a/b", "one", 3, NULL, NULL), 0);
    assert_int_equal(pst_objects_put(p->o, "a/b", "second", 6, NULL, NULL), 0);
    pst_buf b = {0};
    assert_int_equal(pst_objects_get(p->o, "a/b", NULL, 100, &b, NULL), 0);
    assert_string_equal(b.data, "second");
    pst_buf_done(&b);
    char *tmp = pst_sprintf("%s/store/.tmp", p->dir);
    assert_int_equal(rmdir(tmp), 0); /* empty */
    free(tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_objects_round_trip_by_uri_and_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_objects_wrong_digest_is_data_error_and_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_objects_file_goes_in_with_its_digest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_objects_refuses_names_outside_the_store, setup, teardown),
        cmocka_unit_test_setup_teardown(test_objects_unknown_stores_say_what_to_do, setup, teardown),
        cmocka_unit_test_setup_teardown(test_objects_put_twice_keeps_the_last_and_no_rest, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
