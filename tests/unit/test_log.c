/* test_log.c - a log that rotates itself loses no line and cuts none; a kind of line that others can cause is said a few times, then counted. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/log_file.h"
#include "common/base/thread.h"
#include "tests/unit/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FULL = 64 << 10, THREADS = 4, LINES = 500 };

static char dir[64], path[96];

static int open_folder(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/penstock-log-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a.log", dir);
    return 0;
}

static int drop_folder(void **state)
{
    return pst_fs_remove_tree(dir, NULL);
}

static void write_to(const char *file)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2);
    close(fd);
}

/* Runs in a process of its own, whose stderr is the log; true = it ended well. */
static bool in_child(void (*work)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        write_to(path);
        work();
        exit(0); /* the sums are told at exit */
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && !WEXITSTATUS(status);
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < LINES; i++)
        pst_log(PST_LOG_WARN, "test", "event=line thread=%d number=%d text=%0100d", *(int *)arg, i, 0);
    return NULL;
}

static void write_from_threads(void)
{
    char value[160], *pair = pst_log_file_variable(path, FULL);
    snprintf(value, sizeof value, "%s", strchr(pair, '=') + 1);
    free(pair);
    setenv("PENSTOCK_LOG_FILE", value, 1);
    pst_log_file_take();
    if (getenv("PENSTOCK_LOG_FILE"))
        _exit(3);
    pthread_t t[THREADS];
    int number[THREADS];
    for (int i = 0; i < THREADS; i++) {
        number[i] = i;
        pthread_create(&t[i], NULL, write_lines, &number[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

static void read_file(const char *name, pst_buf *ret_text)
{
    *ret_text = (pst_buf){0};
    assert_int_equal(pst_fs_read(name, 64 << 20, ret_text, NULL), 0);
}

static size_t count(const pst_buf *text, const char *word)
{
    size_t n = 0;
    for (const char *p = text->data; p && (p = strstr(p, word)); p++)
        n++;
    return n;
}

/* Two processes write the same file at once: a service that is ending and its successor. */
static void test_log_file_is_rotated_and_no_line_is_lost(void **state)
{
    fflush(stdout);
    pid_t other = fork();
    if (!other) {
        write_to(path);
        write_from_threads();
        _exit(0);
    }
    assert_true(in_child(write_from_threads));
    int status = -1;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    /* 2 x 4 x 500 lines of about 190 bytes are 760 kB: more than eleven files of 64 KiB, of which five are there */
    size_t files = 0, lines = 0;
    for (int i = 0; i <= PST_LOG_FILES_KEPT + 1; i++) {
        char name[128];
        struct stat st;
        snprintf(name, sizeof name, i ? "%s.%d" : "%s", path, i);
        if (stat(name, &st) < 0)
            continue;
        files++;
        assert_true(st.st_size < FULL + 2 * THREADS * 256);
        assert_int_equal(st.st_mode & 0777, 0600);
        pst_buf text;
        read_file(name, &text);
        size_t ends = count(&text, "\n");
        assert_int_equal(count(&text, " WARN test event=line thread="), ends);
        assert_int_equal(count(&text, "000000\n"), ends); /* each is whole */
        lines += ends;
        pst_buf_done(&text);
    }
    assert_int_equal(files, PST_LOG_FILES_KEPT + 1);
    assert_true(lines * 190 > 4 * FULL - 4 * 256 * THREADS);
}

static void write_four_files(void)
{
    pst_log_file_watch(path, FULL);
    for (int i = 0; i < 1600; i++) /* 4.5 files */
        pst_log(PST_LOG_WARN, "test", "event=line number=%05d text=%0120d", i, 0);
}

static void test_log_file_keeps_the_order_of_lines_over_its_files(void **state)
{
    assert_true(in_child(write_four_files));
    int next = 0;
    for (int i = PST_LOG_FILES_KEPT; i >= 0; i--) {
        char name[128];
        snprintf(name, sizeof name, i ? "%s.%d" : "%s", path, i);
        pst_buf text;
        read_file(name, &text);
        for (const char *p = text.data; (p = strstr(p, "number=")); p++)
            assert_int_equal(atoi(p + 7), next++);
        pst_buf_done(&text);
    }
    assert_int_equal(next, 1600);
}

static void write_though_it_cannot_rotate(void)
{
    char other[128];
    snprintf(other, sizeof other, "%s.new", path);
    if (mkdir(other, 0700) < 0)
        _exit(3);
    write_four_files();
}

static void test_log_file_that_cannot_be_rotated_is_written_on(void **state)
{
    assert_true(in_child(write_though_it_cannot_rotate));
    pst_buf text;
    read_file(path, &text);
    assert_int_equal(count(&text, "event=line"), 1600);
    pst_buf_done(&text);
}

static void watch_another(void)
{
    char other[128];
    snprintf(other, sizeof other, "%s.other", path);
    int fd = open(other, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 2 * FULL) < 0)
        _exit(3);
    pst_log_file_watch(other, FULL); /* it is not what stderr writes to */
    for (int i = 0; i < 1600; i++)
        pst_log(PST_LOG_WARN, "test", "event=line number=%05d text=%0120d", i, 0);
}

static void test_log_file_of_others_is_left_alone(void **state)
{
    assert_true(in_child(watch_another));
    char name[128];
    struct stat st;
    snprintf(name, sizeof name, "%s.other", path);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_size, 2 * FULL);
    snprintf(name, sizeof name, "%s.1", path);
    assert_int_equal(stat(name, &st), -1);
}

static void flood(void)
{
    for (int i = 0; i < 12345; i++)
        pst_log_limited(PST_LOG_WARN, "test", "record_ignored", "event=record_ignored offset=%d", i);
    pst_log_limited(PST_LOG_WARN, "test", "another", "event=another");
    pst_err err = {0};
    pst_err_set(&err, PST_EPARSE, PST_CLASS_DATA, "test", 0, "a command that cannot be read");
    for (int i = 0; i < 5000; i++)
        pst_log_err("test", &err);
    pst_err_clear(&err);
    pst_err_set(&err, PST_EIO, PST_CLASS_FATAL, "test", 0, "the end of a program");
    pst_log_err("test", &err);
}

static void test_log_of_bad_records_is_limited_and_tells_how_many(void **state)
{
    assert_true(in_child(flood));
    pst_buf text;
    read_file(path, &text);
    assert_int_equal(count(&text, "event=record_ignored offset="), PST_LOG_KIND_MAX);
    assert_int_equal(count(&text, "event=record_ignored note="), 1);
    assert_int_equal(count(&text, "event=record_ignored more=12335 "), 1);
    assert_int_equal(count(&text, "event=another\n"), 1); /* other kinds are not hidden with it */
    assert_int_equal(count(&text, "a command that cannot be read"), PST_LOG_KIND_MAX);
    char sum[80];
    snprintf(sum, sizeof sum, "event=error code=%s more=4990 ", pst_code_name(PST_EPARSE));
    assert_int_equal(count(&text, sum), 1);
    assert_int_equal(count(&text, "the end of a program"), 1);
    pst_buf_done(&text);
}

static void test_log_quota_begins_anew_each_minute(void **state)
{
    pst_log_quota q = {0};
    uint64_t more, said = 0, told = 0, all = 0;
    for (int64_t now = 1; now < 10LL * PST_LOG_KIND_US; now += 100000, all++) { /* ten a second for ten minutes */
        said += pst_log_quota_take(&q, now, &more);
        told += more;
    }
    assert_int_equal(said, 10 * PST_LOG_KIND_MAX);
    assert_int_equal(told + said, all - (600 - PST_LOG_KIND_MAX)); /* the last minute's sum is still to come */
    for (int64_t now = 20LL * PST_LOG_KIND_US, i = 0; i < 100; i++, now += PST_LOG_KIND_US / 5)
        assert_true(pst_log_quota_take(&q, now, &more)); /* a few now and then are all said */
}

/* ---- the job that a line is about, and debug by component ---- */

static void write_about_jobs(void)
{
    const char *before = pst_log_job("training-a");
    pst_log(PST_LOG_INFO, "test", "event=first");
    pst_log(PST_LOG_INFO, "test", "event=second training_id=%s", "training-own");
    pst_log(PST_LOG_INFO, "test", "event=third reason=\"%s\"", "training_id= is said by a stranger");
    const char *inner = pst_log_job("training-b");
    for (int i = 0; i < PST_LOG_KIND_MAX + 2; i++)
        pst_log_limited(PST_LOG_WARN, "test", "many", "event=many number=%d", i);
    pst_log_job(inner);
    pst_log(PST_LOG_INFO, "test", "event=long text=%03000d", 1);
    pst_log_job(before);
    pst_log(PST_LOG_INFO, "test", "event=none");
    pst_log_job_always("training-p");
    pst_log(PST_LOG_INFO, "test", "event=process");
}

static void test_log_lines_say_which_job_they_are_about(void **state)
{
    pst_buf text;
    assert_true(in_child(write_about_jobs));
    read_file(path, &text);
    assert_non_null(strstr(text.data, "test event=first training_id=training-a\n"));
    assert_non_null(strstr(text.data, "event=second training_id=training-own\n"));
    assert_non_null(strstr(text.data, "by a stranger\" training_id=training-a\n"));
    assert_non_null(strstr(text.data, "event=many number=0 training_id=training-b\n"));
    assert_non_null(strstr(text.data, "counted, not logged, for a minute\"\n")); /* of all jobs */
    assert_non_null(strstr(text.data, "0000 training_id=training-a\n"));         /* cut, but it is there */
    assert_non_null(strstr(text.data, "event=none\n"));
    assert_non_null(strstr(text.data, "event=process training_id=training-p\n"));
    pst_buf_done(&text);
    unlink(path);
}

static void write_debug(void)
{
    pst_err err = {0};
    pst_log(PST_LOG_DEBUG, "bus", "event=before");
    if (pst_log_set_debug("bus,lcm", &err) < 0)
        _exit(3);
    pst_log(PST_LOG_DEBUG, "bus", "event=asked");
    pst_log(PST_LOG_DEBUG, "busy", "event=other");
    pst_log(PST_LOG_DEBUG, "score", "event=other");
    pst_log(PST_LOG_INFO, "score", "event=told");
    if (pst_log_set_debug("bus,nobody", &err) != PST_EINVAL || !strstr(err.text, "\"nobody\"") || !strstr(err.text, "trainer"))
        _exit(4);
    pst_log(PST_LOG_DEBUG, "lcm", "event=still");
    if (pst_log_set_debug("all", &err) < 0)
        _exit(5);
    pst_log(PST_LOG_DEBUG, "score", "event=everybody");
    if (pst_log_set_debug("", &err) < 0)
        _exit(6);
    pst_log(PST_LOG_DEBUG, "bus", "event=after");
}

static void test_log_debug_is_said_of_the_components_that_were_named(void **state)
{
    pst_buf text;
    assert_true(in_child(write_debug));
    read_file(path, &text);
    assert_int_equal(count(&text, "event="), 4);
    assert_non_null(strstr(text.data, "DEBUG bus event=asked\n"));
    assert_non_null(strstr(text.data, "event=told\n"));
    assert_non_null(strstr(text.data, "event=still\n"));
    assert_non_null(strstr(text.data, "event=everybody\n"));
    pst_buf_done(&text);
    unlink(path);
}

static void *tell_name(void *arg)
{
    pthread_getname_np(pthread_self(), arg, PST_THREAD_NAME_MAX + 1);
    return NULL;
}

static void test_threads_have_their_names_from_the_start(void **state)
{
    char name[PST_THREAD_NAME_MAX + 1] = "";
    pthread_t t;
    assert_int_equal(pst_thread_start(&t, "fifteen-letters", tell_name, name), 0);
    pthread_join(t, NULL);
    assert_string_equal(name, "fifteen-letters");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_log_file_is_rotated_and_no_line_is_lost, open_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_log_file_keeps_the_order_of_lines_over_its_files, open_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_log_file_that_cannot_be_rotated_is_written_on, open_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_log_file_of_others_is_left_alone, open_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_log_of_bad_records_is_limited_and_tells_how_many, open_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_log_lines_say_which_job_they_are_about, open_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_log_debug_is_said_of_the_components_that_were_named, open_folder, drop_folder),
        cmocka_unit_test(test_threads_have_their_names_from_the_start),
        cmocka_unit_test(test_log_quota_begins_anew_each_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
