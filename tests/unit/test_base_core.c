/* test_base_core.c - errors, buffers, maps, digests, clocks, files. */
#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/test.h"

static void test_err_first_writer_wins(void **state)
{
    pst_err e = {0};
    assert_int_equal(pst_err_set(&e, PST_EPARSE, PST_CLASS_DATA, "avro", 7, "bad %d", 1), PST_EPARSE);
    assert_int_equal(pst_err_set(&e, PST_EIO, PST_CLASS_FATAL, "sys", 0, "later"), PST_EIO);
    assert_string_equal(e.text, "bad 1");
    assert_int_equal(e.cls, PST_CLASS_DATA);
    pst_err_prefix(&e, "file %s", "x");
    assert_string_equal(e.text, "file x: bad 1");
    assert_int_equal(pst_err_exit(&e), 1);
    pst_err_clear(&e);
    pst_err_sys(&e, ENOENT, "cannot open %s", "y");
    assert_int_equal(e.code, PST_ENOTFOUND);
    assert_non_null(strstr(e.text, "No such file"));
    assert_int_equal(pst_err_set(NULL, PST_EIO, PST_CLASS_NONE, "", 0, "no place"), PST_EIO);
}

static void test_err_exit_statuses_follow_the_contract(void **state)
{
    const struct {
        int code, status;
    } rows[] = {{0, 0},         {PST_EINVAL, 2},    {PST_ENOTFOUND, 4},   {PST_EUNREACH, 5},
                {PST_EAUTH, 6}, {PST_EINCOMPAT, 7}, {PST_ETIMEDOUT, 124}, {PST_ESTOPPED, 130},
                {PST_EIO, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_err e = {.code = rows[i].code};
        assert_int_equal(pst_err_exit(&e), rows[i].status);
    }
}

static void test_buf_grows_and_stays_terminated(void **state)
{
    pst_buf b = {0};
    for (int i = 0; i < 1000; i++)
        pst_buf_printf(&b, "%d,", i);
    assert_int_equal(b.data[b.len], 0);
    assert_int_equal(strlen(b.data), b.len);
    pst_buf_clear(&b);
    pst_buf_add(&b, "a\0b", 3);
    assert_int_equal(b.len, 3);
    char *text = pst_buf_steal(&b);
    assert_memory_equal(text, "a\0b", 4);
    assert_null(b.data);
    free(text);
    text = pst_buf_steal(&b);
    assert_string_equal(text, "");
    free(text);
}

static void test_arrays_double_or_grow_by_one(void **state)
{
    int *a = NULL, *one = NULL;
    size_t cap = 0, grown = 0;
    for (size_t n = 0; n < 1000; n++) {
        size_t was = cap;
        a = pst_array_room(a, n, &cap, sizeof *a);
        one = pst_array_one_more(one, n, sizeof *one);
        assert_true(cap > n);
        grown += cap != was;
        a[n] = one[n] = (int)n;
    }
    assert_int_equal(grown, 9); /* 4, 8 … 1024 */
    for (int i = 0; i < 1000; i++)
        assert_true(a[i] == i && one[i] == i);
    free(a);
    free(one);
}

static void test_map_keeps_order_through_growth_and_removal(void **state)
{
    pst_map m = {0};
    char key[16];
    for (intptr_t i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "k%d", (int)i);
        assert_null(pst_map_put(&m, key, (void *)(i + 1)));
    }
    for (intptr_t i = 0; i < 5000; i += 2) {
        snprintf(key, sizeof key, "k%d", (int)i);
        assert_ptr_equal(pst_map_take(&m, key), (void *)(i + 1));
        assert_null(pst_map_take(&m, key));
    }
    for (intptr_t i = 0; i < 3000; i++) { /* over the holes */
        snprintf(key, sizeof key, "n%d", (int)i);
        pst_map_put(&m, key, (void *)(i + 1));
    }
    assert_int_equal(m.live, 2500 + 3000);
    for (intptr_t i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "k%d", (int)i);
        assert_ptr_equal(pst_map_get(&m, key), i % 2 ? (void *)(i + 1) : NULL);
    }
    intptr_t last = 0;
    for (size_t i = 0; i < m.n; i++)
        if (m.at[i].key && m.at[i].key[0] == 'k') {
            assert_true((intptr_t)m.at[i].value > last);
            last = (intptr_t)m.at[i].value;
        }
    assert_ptr_equal(pst_map_put(&m, "n0", (void *)99), (void *)1);
    pst_map_done(&m, NULL);
    assert_null(pst_map_get(&m, "n0"));
}

static void test_digests_match_published_vectors(void **state)
{
    char hex[65], b32[64];
    pst_sha256_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    pst_base32((const uint8_t *)"foobar", 6, b32); /* RFC 4648, lower case without padding */
    assert_string_equal(b32, "mzxw6ytboi");
    pst_base32((const uint8_t *)"f", 1, b32);
    assert_string_equal(b32, "my");
    assert_int_equal(pst_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(pst_crc32c(pst_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 167 + (i >> 3));
    for (size_t from = 0; from < 9; from++) /* the processor's instruction against the table, at every length and alignment */
        for (size_t n = 0; from + n <= sizeof bytes; n++)
            assert_int_equal(pst_crc32c((uint32_t)n, bytes + from, n), pst_crc32c_plain((uint32_t)n, bytes + from, n));
    assert_int_equal(pst_murmur2("21", 2), (uint32_t)-973932308); /* vectors of Kafka's UtilsTest */
    assert_int_equal(pst_murmur2("foobar", 6), (uint32_t)-790332482);
    assert_int_equal(pst_murmur2("a-little-bit-long-string", 24), (uint32_t)-985981536);
    char *text = pst_base64("hello\0x", 7);
    size_t len = 0;
    char *back = pst_base64_decode(text, &len);
    assert_int_equal(len, 7);
    assert_memory_equal(back, "hello\0x", 7);
    free(text);
    free(back);
    assert_null(pst_base64_decode("abc", &len));
    static const char *const not [] = {"a*==", "a===", "====", "ab=c", "ab==abcd", " abc", "abc\n", "ab-_"};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        assert_null(pst_base64_decode(not [i], &len));
    back = pst_base64_decode("", &len);
    assert_int_equal(len, 0);
    free(back);
    char u1[37], u2[37];
    pst_uuid7(u1);
    pst_uuid7(u2);
    assert_int_equal(strlen(u1), 36);
    assert_int_equal(u1[14], '7');
    assert_string_not_equal(u1, u2);
}

static void test_times_and_sizes_parse(void **state)
{
    int64_t v;
    char text[32];
    assert_int_equal(pst_time_parse("2026-11-21T01:26:48.5Z", &v), 0);
    assert_string_equal(pst_time_text(v, text), "2026-11-21T01:26:48.500000Z");
    assert_int_equal(pst_time_parse("2026-11-21T02:26:48+01:00", &v), 0);
    assert_string_equal(pst_time_text(v, text), "2026-11-21T01:26:48.000000Z");
    assert_int_equal(pst_time_parse("1700000000", &v), 0);
    assert_int_equal(v, 1700000000000000);
    assert_int_equal(pst_time_parse("1700000000000", &v), 0);
    assert_int_equal(v, 1700000000000000);
    assert_int_equal(pst_time_parse("soon", &v), PST_EPARSE);
    assert_string_equal(pst_time_text(-500000, text), "1969-12-31T23:59:59.500000Z");
    assert_int_equal(pst_bytes_parse("1MiB", &v), 0);
    assert_int_equal(v, 1048576);
    assert_int_equal(pst_bytes_parse("512 MB", &v), 0);
    assert_int_equal(v, 512000000);
    assert_int_equal(pst_bytes_parse("3 parsecs", &v), PST_EPARSE);
    assert_int_equal(pst_bytes_parse("-1", &v), PST_EPARSE);
    assert_int_equal(pst_span_parse("5ms", &v), 0);
    assert_int_equal(v, 5000);
    assert_int_equal(pst_span_parse("2", &v), 0);
    assert_int_equal(v, 2000000);
    assert_int_equal(pst_span_parse("1 fortnight", &v), PST_EPARSE);
}

static void test_nearest_suggests_only_what_is_near(void **state)
{
    static const char *const words[] = {"guarantee", "output", "input", "features"};
    assert_string_equal(pst_nearest("garantee", words, 4), "guarantee");
    assert_string_equal(pst_nearest("ouptut", words, 4), "output");
    assert_null(pst_nearest("zzz", words, 4));
}

static char *scratch(void)
{
    char template[] = "/tmp/penstock-unit-XXXXXX";
    return pst_strdup(mkdtemp(template));
}

static void test_fs_writes_atomically_and_reads_bounded(void **state)
{
    char *dir = scratch(), *deep = pst_fs_join(dir, "a/b/c"), *file = pst_fs_join(deep, "f");
    pst_err e = {0};
    pst_buf b = {0};
    assert_int_equal(pst_fs_mkdirs(deep, 0755, &e), 0);
    assert_int_equal(pst_fs_mkdirs(deep, 0755, &e), 0);
    assert_int_equal(pst_fs_write_atomic(file, "first", 5, 0600, &e), 0);
    assert_int_equal(pst_fs_write_atomic(file, "second!", 7, 0600, &e), 0);
    assert_int_equal(pst_fs_read(file, 7, &b, &e), 0);
    assert_string_equal(b.data, "second!");
    pst_buf_done(&b);
    assert_int_equal(pst_fs_replace(file, "thirdly", 7, 0600, &e), 0); /* whole or not at all, too; only not yet on the disk */
    assert_int_equal(pst_fs_read(file, 7, &b, &e), 0);
    assert_string_equal(b.data, "thirdly");
    pst_buf_done(&b);
    assert_int_equal(rmdir(deep), -1);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(deep), 0); /* neither left anything beside it */
    assert_int_equal(pst_fs_mkdirs(deep, 0755, &e), 0);
    assert_int_equal(pst_fs_replace(file, "second!", 7, 0600, &e), 0);
    assert_int_equal(pst_fs_read(file, 6, &b, &e), PST_ELIMIT);
    pst_err_clear(&e);
    assert_true(pst_fs_mkdirs(file, 0755, NULL) < 0); /* a file stands there */
    const char *const odd[] = {"/dev/zero", deep}; /* what would never end, or is none; a FIFO without a writer would hold us up for ever */
    for (size_t i = 0; i < 2; i++) {
        pst_err_clear(&e);
        assert_int_equal(pst_fs_read(odd[i], 100, &b, &e), PST_EINVAL);
        assert_non_null(strstr(e.text, "not a regular file"));
    }
    char *fifo = pst_fs_join(deep, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pst_err_clear(&e);
    alarm(10);
    assert_int_equal(pst_fs_read(fifo, 100, &b, &e), PST_EINVAL);
    alarm(0);
    assert_non_null(strstr(e.text, "is a named pipe"));
    free(fifo);
    int given[2];
    char name[32];
    assert_int_equal(pipe(given), 0);
    assert_int_equal(write(given[1], "by a shell", 10), 10);
    close(given[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", given[0]);
    pst_err_clear(&e);
    assert_int_equal(pst_fs_read(name, 100, &b, &e), 0); /* <(…) goes on working */
    assert_string_equal(b.data, "by a shell");
    pst_buf_done(&b);
    close(given[0]);
    char *link = pst_fs_join(deep, "out");
    assert_int_equal(symlink("/etc", link), 0);
    int fd = open(deep, O_RDONLY | O_DIRECTORY);
    assert_true(pst_fs_open_beneath(fd, "f", O_RDONLY, 0) >= 0);
    assert_int_equal(pst_fs_open_beneath(fd, "../../x", O_RDONLY, 0), -1);
    assert_int_equal(pst_fs_open_beneath(fd, "out/passwd", O_RDONLY, 0), -1);
    assert_int_equal(pst_fs_open_beneath(fd, "/etc/passwd", O_RDONLY, 0), -1);
    close(fd);
    pst_err_clear(&e);
    assert_int_equal(pst_fs_remove_tree(dir, &e), 0);
    assert_false(pst_fs_exists(dir));
    assert_true(pst_fs_exists("/etc/passwd")); /* the link was removed, not followed */
    free(dir);
    free(deep);
    free(file);
    free(link);
}

static void *crc_thread(void *arg)
{
    return (void *)(intptr_t)pst_crc32c(0, "123456789", 9);
}

static void test_crc_table_is_safe_to_build_in_two_threads(void **state)
{
    pthread_t t[4];
    void *got;
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, crc_thread, NULL);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &got);
        assert_int_equal((uint32_t)(intptr_t)got, 0xe3069283);
    }
}

/* A condition of the wall clock takes a moment of this one for one long ago, and does not wait at all. */
static void test_conditions_wait_by_the_monotonic_clock(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    pst_cond_init(&never);
    int64_t until_us = pst_mono_us() + 20000;
    struct timespec until = pst_mono_at(until_us);
    pthread_mutex_lock(&lock);
    int rc = 0;
    while (rc == 0)
        rc = pthread_cond_timedwait(&never, &lock, &until);
    pthread_mutex_unlock(&lock);
    assert_int_equal(rc, ETIMEDOUT);
    assert_true(pst_mono_us() >= until_us);
    pthread_cond_destroy(&never);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc_table_is_safe_to_build_in_two_threads),
        cmocka_unit_test(test_conditions_wait_by_the_monotonic_clock),
        cmocka_unit_test(test_err_first_writer_wins),
        cmocka_unit_test(test_err_exit_statuses_follow_the_contract),
        cmocka_unit_test(test_buf_grows_and_stays_terminated),
        cmocka_unit_test(test_arrays_double_or_grow_by_one),
        cmocka_unit_test(test_map_keeps_order_through_growth_and_removal),
        cmocka_unit_test(test_digests_match_published_vectors),
        cmocka_unit_test(test_times_and_sizes_parse),
        cmocka_unit_test(test_nearest_suggests_only_what_is_near),
        cmocka_unit_test(test_fs_writes_atomically_and_reads_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
