/* test_collect.c - evaluation_metrics of type regex_extractor: what a manifest may say, what is found in lines, files that are cut, renamed and late. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/regex.h"
#include "lcm/supervisor/extract.h"
#include "lcm/supervisor/follow.h"
#include "schemas/manifest.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "name: a\nframework: {name: custom, version: 1, command: x}\nevaluation_metrics:\n  type: regex_extractor\n"

/* ---- the manifest ------------------------------------------------------------------------------------------------------------- */

static void test_collect_mistakes_are_told_with_path_and_line(void **state)
{
    static const struct {
        const char *yaml, *field, *text;
        int line;
    } cases[] = {
        {"  groups: {t: {regex: 'a(b', scalars: {x: {type: INT, value: 1}}}}\n", "groups.t.regex", "does not compile", 5},
        {"  groups:\n    t:\n      regex: '%{FLOT:x}'\n      scalars: {x: {type: FLOAT, value: $x}}\n", "groups.t.regex", "FLOAT", 7},
        {"  groups:\n    t:\n      regex: '(?P<x>\\d+)'\n      scalars:\n        acc:\n          value: $y\n", "groups.t.scalars.acc.value",
         "$y", 10},
        {"  groups: {t: {regex: x}}\n", "groups.t.scalars", "missing", 0},
        {"  groups: {t: {regex: '%{INT:x}', scalars: {x: {type: FLOTE, value: $x}}}}\n", "groups.t.scalars.x.type", "FLOAT", 5},
        {"  groups: {t: {regex: '%{INT:x}', meta: {time: $when}, scalars: {x: {value: $x}}}}\n", "groups.t.meta.time", "$when", 5},
        {"  groups: {t: 7}\n", "groups.t", "regex", 5},
        {"", "groups", "missing", 0},
        {"  in: /etc/passwd\n  groups: {t: {regex: '%{INT:x}', scalars: {x: $x}}}\n", "in", "/etc/passwd", 5},
        {"  in: $LOG_DIR/../../x\n  groups: {t: {regex: '%{INT:x}', scalars: {x: $x}}}\n", "in", "..", 5},
        {"  line_lookahead: 1000000\n  groups: {t: {regex: '%{INT:x}', scalars: {x: $x}}}\n", "line_lookahead", "64", 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char yaml[1000], field[100];
        snprintf(yaml, sizeof yaml, HEAD "%s", cases[i].yaml);
        snprintf(field, sizeof field, "evaluation_metrics.%s", cases[i].field);
        pst_manifest m;
        pst_complaints errors = {0}, warnings = {0};
        assert_true(pst_manifest_parse(yaml, strlen(yaml), &m, &errors, &warnings) < 0);
        if (errors.n != 1 || strcmp(errors.at[0].field, field) || !strstr(errors.at[0].text, cases[i].text) ||
            (cases[i].line && errors.at[0].line != cases[i].line))
            fail_msg("%zu: %zu errors, %s line %d: %s", i, errors.n, errors.n ? errors.at[0].field : "", errors.n ? errors.at[0].line : 0,
                     errors.n ? errors.at[0].text : "");
        pst_manifest_done(&m);
        pst_complaints_done(&errors);
        pst_complaints_done(&warnings);
    }
}

static void test_collect_a_right_manifest_warns_of_nothing(void **state)
{
    static const char yaml[] =
        HEAD "  in: $JOB_STATE_DIR/logs/training-log.txt\n  line_lookahead: 2\n  groups:\n    train:\n"
             "      regex: 'Iteration %{INT:it}, loss = %{FLOAT:loss}'\n      meta: {time: ''}\n"
             "      etimes: {iteration: {type: INT, value: $it}}\n      scalars: {loss: {type: FLOAT, value: $loss}}\n";
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    assert_int_equal(pst_manifest_parse(yaml, strlen(yaml), &m, &errors, &warnings), 0);
    assert_int_equal(errors.n + warnings.n, 0);
    pst_manifest_done(&m);
}

/* ---- lines -------------------------------------------------------------------------------------------------------------------- */

typedef struct seen {
    struct {
        char group[20];
        int64_t step, time;
        double epoch;
        char name[4][20];
        double value[4];
        size_t n;
    } points[200];
    size_t n, said;
    char last[400];
} seen;

static void see_point(void *arg, const pst_metric_point *p)
{
    seen *s = arg;
    assert_true(s->n < 200);
    snprintf(s->points[s->n].group, 20, "%s", p->group);
    s->points[s->n].step = p->has_step ? p->step : -1;
    s->points[s->n].epoch = p->has_epoch ? p->epoch : -1;
    s->points[s->n].time = p->time;
    s->points[s->n].n = p->n_values;
    for (size_t i = 0; i < p->n_values && i < 4; i++) {
        snprintf(s->points[s->n].name[i], 20, "%s", p->values[i].key);
        s->points[s->n].value[i] = p->values[i].value;
    }
    s->n++;
}

static void see_words(void *arg, const char *text)
{
    seen *s = arg;
    s->said++;
    snprintf(s->last, sizeof s->last, "%s", text);
}

/* The lines of a log (each ended by a newline) by the groups of a JSON text. */
static void extract(const char *json, const char *log, seen *ret)
{
    json_t *v = json_loads(json, 0, NULL);
    assert_non_null(v);
    json_object_set_new(v, "type", json_string("regex_extractor"));
    pst_collect c;
    sup_rules *rules;
    memset(ret, 0, sizeof *ret);
    pst_collect_read(v, &c, NULL, NULL);
    assert_int_equal(sup_rules_new(&c, &(sup_extract_to){see_point, see_words, ret}, &rules, NULL), 0);
    sup_extract *x = sup_extract_new(rules);
    for (const char *end; (end = strchr(log, '\n')); log = end + 1)
        sup_extract_line(x, log, (size_t)(end - log));
    sup_extract_end(x);
    sup_extract_free(x);
    sup_rules_free(rules);
    pst_collect_done(&c);
    json_decref(v);
}

/* Caffe's log: the test's values stand one a line, below the line with the iteration. */
static void test_extract_caffes_log_gives_test_and_train_points(void **state)
{
    seen s;
    extract(
        "{\"groups\":{"
        "\"test\":{\"regex\":\"%{GLOG_STAMP:stamp}[^\\\\n]*Iteration %{INT:it}, Testing net.*?accuracy = %{FLOAT:acc}.*?loss = "
        "%{FLOAT:loss}\","
        "\"meta\":{\"time\":\"$stamp\"},\"etimes\":{\"iteration\":{\"type\":\"INT\",\"value\":\"$it\"}},"
        "\"scalars\":{\"accuracy\":{\"type\":\"FLOAT\",\"value\":\"$acc\"},\"loss\":{\"type\":\"FLOAT\",\"value\":\"$loss\"}}},"
        "\"train\":{\"regex\":\"%{GLOG_STAMP}[^\\\\n]*Iteration (?P<it>\\\\d+)[^\\\\n]*, loss = %{FLOAT:loss}\","
        "\"etimes\":{\"iteration\":{\"type\":\"INT\",\"value\":\"$it\"}},\"scalars\":{\"loss\":{\"type\":\"FLOAT\",\"value\":\"${loss}\"}}}"
        "}}",
        "I0315 10:22:32.000001  42 net.cpp:1] Network initialization done.\n"
        "I0315 10:22:33.123456  42 solver.cpp:330] Iteration 0, Testing net (#0)\n"
        "I0315 10:22:34.000001  42 solver.cpp:397]     Test net output #0: accuracy = 0.1135\n"
        "I0315 10:22:34.000002  42 solver.cpp:397]     Test net output #1: loss = 2.37 (* 1 = 2.37 loss)\n"
        "I0315 10:22:35.000001  42 solver.cpp:218] Iteration 0 (0 iter/s, 0.08s/100 iters), loss = 2.4\n"
        "I0315 10:22:36.000001  42 solver.cpp:218] Iteration 100 (9 iter/s, 0.08s/100 iters), loss = 2.1e-1\n"
        "I0315 10:22:37.000001  42 solver.cpp:218] Iteration 200 (9 iter/s, 0.08s/100 iters), loss = nan\n",
        &s);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.said, 0);
    assert_string_equal(s.points[0].group, "test");
    assert_true(s.points[0].step == 0 && s.points[0].n == 2 && s.points[0].value[0] == 0.1135 && s.points[0].value[1] == 2.37);
    assert_true(s.points[0].time % 1000000 == 123456 && s.points[0].time <= pst_now_us() + 86400ll * 1000000);
    assert_string_equal(s.points[1].group, "train"); /* the three that follow at once are lost by nobody */
    assert_true(s.points[1].step == 0 && s.points[2].step == 100 && s.points[2].value[0] == 0.21 && isnan(s.points[3].value[0]));
}

/* A match is looked for as soon as its lines are there; one that no further line can complete does not wait. */
static void test_extract_neighbouring_lines_each_give_a_point(void **state)
{
    seen s;
    extract("{\"groups\":{\"t\":{\"regex\":\"step=%{INT:s} "
            ".+loss=%{FLOAT:l}\",\"etimes\":{\"step\":{\"value\":\"$s\"},\"epoch\":{\"value\":3}},"
            "\"values\":{\"loss\":\"$l\",\"fixed\":7}}}}",
            "step=1 a loss=0.5\nstep=2 a loss=0.25\nstep=3\n step=4 a\nloss=0.125\n", &s);
    assert_int_equal(s.n, 2); /* the line of step 4 does not begin with it */
    assert_true(s.points[0].step == 1 && s.points[1].step == 2 && s.points[1].value[0] == 0.25 && s.points[1].value[1] == 7);
    assert_true(s.points[0].epoch == 3);
}

static void test_extract_window_is_as_long_as_the_lookahead(void **state)
{
    for (int lookahead = 1; lookahead <= 5; lookahead++) {
        char json[200];
        seen s;
        snprintf(json, sizeof json,
                 "{\"line_lookahead\":%d,\"groups\":{\"t\":{\"regex\":\"begin.*end %%{INT:n}\",\"scalars\":{\"n\":\"$n\"}}}}", lookahead);
        extract(json, "begin\na\nb\nend 5\n", &s);
        assert_int_equal(s.n, lookahead >= 4);
        extract(json, "begin\nbegin\na\nb\nend 5\n", &s);
        assert_int_equal(s.n, lookahead >= 4);
    }
}

/* Repeats in repeats: bounded a line, switched off after twenty, and told. */
static void test_extract_catastrophic_pattern_ends_and_is_told(void **state)
{
    pst_buf log = {0};
    for (int i = 0; i < 2000; i++)
        pst_buf_adds(&log, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n");
    pst_buf_adds(&log, "n 1\n");
    seen s;
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    extract("{\"groups\":{\"bad\":{\"regex\":\"(a+)+$%{INT:n}\",\"scalars\":{\"n\":\"$n\"}},\"good\":{\"regex\":\"n "
            "%{INT:n}\",\"scalars\":{\"n\":\"$n\"}}}}",
            log.data, &s);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_true(after.tv_sec - before.tv_sec < 20); /* unbounded it takes longer than the world lasts */
    assert_int_equal(s.n, 1);
    assert_string_equal(s.points[0].group, "good");
    assert_int_equal(s.said, 1);
    assert_non_null(strstr(s.last, "bad"));
    pst_buf_done(&log);
}

static void test_extract_long_lines_text_and_empty_matches(void **state)
{
    char *log = malloc(70000);
    memset(log, 'x', 65000);
    strcpy(log + 65000, "\nword\nn 1\n\n");
    seen s;
    extract("{\"groups\":{\"e\":{\"regex\":\"z*\",\"scalars\":{\"one\":1}},\"t\":{\"regex\":\"n (?P<n>1)|(?P<w>word)\","
            "\"scalars\":{\"n\":\"$n\",\"w\":\"$w\"}}}}",
            log, &s);
    assert_int_equal(s.n, 1); /* the first group matches nothing at every line: no match; an alternative that took no part is left out */
    assert_true(s.points[0].n == 1 && s.points[0].value[0] == 1 && s.said == 2); /* cut, and a word that is no number */
    free(log);
}

/* ---- files -------------------------------------------------------------------------------------------------------------------- */

typedef struct files {
    char dir[64];
    int fd;
    pst_buf got; /* "|" = a new file begins */
} files;

static void take(void *arg, const char *data, size_t len)
{
    pst_buf_add(&((files *)arg)->got, data, len);
}

static void bar(void *arg)
{
    pst_buf_addc(&((files *)arg)->got, '|');
}

static int setup(void **state)
{
    files *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/penstock-follow-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->fd = open(f->dir, O_RDONLY | O_DIRECTORY);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    files *f = *state;
    close(f->fd);
    pst_fs_remove_tree(f->dir, NULL);
    pst_buf_done(&f->got);
    free(f);
    return 0;
}

static void put(const files *f, const char *text, int flags)
{
    int fd = openat(f->fd, "log", O_WRONLY | O_CREAT | flags, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void test_follow_late_renamed_and_cut_files_are_read_once(void **state)
{
    files *f = *state;
    sup_follow *w = sup_follow_new(f->fd, "log", true, true, &(sup_follow_to){take, bar, f});
    sup_follow_poll(w); /* not there yet */
    put(f, "one\n", O_APPEND);
    sup_follow_poll(w);
    sup_follow_poll(w);
    put(f, "two\n", O_APPEND); /* not read before the rename */
    renameat(f->fd, "log", f->fd, "log.1");
    sup_follow_poll(w);
    put(f, "three\n", O_APPEND);
    sup_follow_poll(w);
    assert_string_equal(f->got.data, "one\ntwo\n|three\n");
    put(f, "4\n", O_TRUNC); /* shorter */
    sup_follow_poll(w);
    put(f, "five and longer\n", O_TRUNC); /* longer than what was read */
    sup_follow_poll(w);
    assert_string_equal(f->got.data, "one\ntwo\n|three\n|4\n|five and longer\n");
    unlinkat(f->fd, "log", 0);
    sup_follow_poll(w);
    put(f, "six\n", O_APPEND);
    sup_follow_poll(w);
    sup_follow_free(w);
    assert_string_equal(f->got.data, "one\ntwo\n|three\n|4\n|five and longer\n|six\n");
}

static void test_follow_what_was_there_before_is_passed_over(void **state)
{
    files *f = *state;
    put(f, "old\n", O_APPEND);
    sup_follow *w = sup_follow_new(f->fd, "log", true, true, &(sup_follow_to){take, bar, f});
    put(f, "new\n", O_APPEND);
    sup_follow_poll(w);
    sup_follow_free(w);
    assert_string_equal(f->got.data, "new\n");
}

static void test_follow_links_fifos_and_folders_are_not_read(void **state)
{
    files *f = *state;
    sup_follow *w = sup_follow_new(f->fd, "log", true, true, &(sup_follow_to){take, bar, f});
    assert_int_equal(symlinkat("/etc/passwd", f->fd, "log"), 0);
    assert_false(sup_follow_poll(w));
    unlinkat(f->fd, "log", 0);
    assert_int_equal(mkfifoat(f->fd, "log", 0600), 0);
    assert_false(sup_follow_poll(w)); /* and does not wait for a writer */
    unlinkat(f->fd, "log", 0);
    assert_int_equal(mkdirat(f->fd, "log", 0700), 0);
    assert_false(sup_follow_poll(w));
    sup_follow_free(w);
    assert_int_equal(symlinkat("/etc", f->fd, "etc"), 0);
    w = sup_follow_new(f->fd, "etc/passwd", false, true, &(sup_follow_to){take, bar, f});
    assert_false(sup_follow_poll(w));
    sup_follow_free(w);
    assert_int_equal(f->got.len, 0);
}

#define FILES(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_collect_mistakes_are_told_with_path_and_line),
                                       cmocka_unit_test(test_collect_a_right_manifest_warns_of_nothing),
                                       cmocka_unit_test(test_extract_caffes_log_gives_test_and_train_points),
                                       cmocka_unit_test(test_extract_neighbouring_lines_each_give_a_point),
                                       cmocka_unit_test(test_extract_window_is_as_long_as_the_lookahead),
                                       cmocka_unit_test(test_extract_catastrophic_pattern_ends_and_is_told),
                                       cmocka_unit_test(test_extract_long_lines_text_and_empty_matches),
                                       FILES(test_follow_late_renamed_and_cut_files_are_read_once),
                                       FILES(test_follow_what_was_there_before_is_passed_over),
                                       FILES(test_follow_links_fifos_and_folders_are_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
