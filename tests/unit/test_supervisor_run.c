/* test_supervisor_run.c - whole runs of real commands under the supervisor, without a broker: the sink is a list. What a learner sees, what
 * becomes of its output, how it ends and how it is ended. */
#include "common/base/clock.h"
#include "common/base/confine.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/stop.h"
#include "lcm/supervisor/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define KEPT_MAX   60000
#define POINTS_MAX 41000

typedef struct world {
    char dir[64];
    char *run_dir;
    pst_objects *objects;
    pst_rundir_spec spec;
    sup_outlet *outlet;
    /* what came out */
    pst_process_report reports[32];
    pst_log_line *lines;
    pst_metric_point points[POINTS_MAX];
    size_t n_reports, n_lines, n_points;
    void *tokens[PST_OUTLET_ITEMS_MAX + 16];
    size_t n_tokens;
    pst_decode_plan *plans[3];
} world;

static const pst_type *const types[] = {&pst_process_report_type, &pst_log_line_type, &pst_metric_point_type};

static int sink_send(void *arg, pst_outlet_kind kind, const char *key, const void *body, size_t len, void *token, pst_err *err)
{
    world *w = arg;
    void *to = kind == PST_OUTLET_REPORT ? (void *)&w->reports[w->n_reports]
               : kind == PST_OUTLET_LOG  ? (void *)&w->lines[w->n_lines]
                                         : (void *)&w->points[w->n_points];
    assert_true(w->n_reports < 31 && w->n_lines < KEPT_MAX - 1 && w->n_points < POINTS_MAX - 1);
    assert_string_equal(key, "training-unit");
    assert_int_equal(pst_decode_run(w->plans[kind], body, len, to, NULL), 0);
    (kind == PST_OUTLET_REPORT ? &w->n_reports : kind == PST_OUTLET_LOG ? &w->n_lines : &w->n_points)[0]++;
    w->tokens[w->n_tokens++] = token;
    return 0;
}

static void sink_pump(void *arg, int timeout_ms, sup_outlet_done done, void *done_arg)
{
    world *w = arg;
    for (size_t i = 0; i < w->n_tokens; i++)
        done(done_arg, w->tokens[i], 0);
    w->n_tokens = 0;
}

static void sink_reset(void *arg)
{
}

static int setup(void **state)
{
    pst_log_set_level(PST_LOG_ERROR);
    world *w = pst_alloc(sizeof *w);
    w->lines = pst_alloc(KEPT_MAX * sizeof *w->lines);
    strcpy(w->dir, "/tmp/pst-supervise-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    char *url = pst_sprintf("file:%s/objects", w->dir);
    assert_int_equal(pst_objects_open(url, &w->objects, NULL), 0);
    free(url);
    w->spec = (pst_rundir_spec){.training_id = (char *)"training-unit",
                                .generation = 1,
                                .process = (char *)"learner-1",
                                .learner_id = 1,
                                .site = (char *)"local",
                                .state_dir = w->dir,
                                .name = (char *)"unit",
                                .user = (char *)"tester",
                                .learners = 1,
                                .grace_ms = 400};
    w->run_dir = pst_rundir_dir(w->dir, &(pst_process_id){"training-unit", 1, "learner-1"});
    assert_int_equal(pst_fs_mkdirs(w->run_dir, 0700, NULL), 0);
    for (int i = 0; i < 3; i++) {
        pst_schema *s = NULL;
        assert_int_equal(pst_schema_parse(pst_type_schema(types[i]), strlen(pst_type_schema(types[i])), &s, NULL), 0);
        assert_int_equal(pst_decode_plan_new(s, types[i], &w->plans[i], NULL), 0);
        pst_schema_free(s);
    }
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    for (size_t i = 0; i < w->n_reports; i++)
        pst_event_clear(&pst_process_report_type, &w->reports[i]);
    for (size_t i = 0; i < w->n_lines; i++)
        pst_event_clear(&pst_log_line_type, &w->lines[i]);
    for (size_t i = 0; i < w->n_points; i++)
        pst_event_clear(&pst_metric_point_type, &w->points[i]);
    for (int i = 0; i < 3; i++)
        pst_decode_plan_free(w->plans[i]);
    pst_objects_close(w->objects);
    pst_fs_remove_tree(w->dir, NULL);
    free(w->lines);
    free(w->run_dir);
    free(w);
    pst_stop_reset();
    return 0;
}

static sup_outlet *open_outlet(world *w)
{
    sup_outlet *o = NULL;
    assert_int_equal(sup_outlet_open(&(sup_outlet_conf){.run_dir = w->run_dir,
                                                        .training_id = "training-unit",
                                                        .process = "learner-1",
                                                        .generation = 1,
                                                        .reporter = "supervisor:unit",
                                                        .host = "unit",
                                                        .sink = {.arg = w, .send = sink_send, .pump = sink_pump, .reset = sink_reset}},
                                     &o, NULL),
                     0);
    return o;
}

/* Runs a shell command as a job; extra: further YAML. */
static void run(world *w, const char *command, const char *extra, const sup_output_limits *limits)
{
    pst_buf y = {0};
    pst_buf_printf(&y, "name: unit\nversion: \"1\"\n%sframework:\n  name: custom\n  version: \"1\"\n  command: ",
                   extra && strstr(extra, "memory:") ? "" : "cpus: 0.1\nmemory: 64MiB\n");
    pst_json_quote(&y, command, strlen(command));
    pst_buf_printf(&y, "\n%s", extra ? extra : "");
    w->spec.manifest = y.data;
    pst_err err = {0};
    sup_run r;
    if (pst_rundir_spec_write(w->run_dir, &w->spec, &err) < 0 || sup_run_open(w->run_dir, &r, &err) < 0)
        fail_msg("%s", err.text);
    r.outlet = open_outlet(w);
    r.objects = w->objects;
    if (sup_supervise(&r, limits, &err) < 0)
        fail_msg("%s", err.text);
    sup_outlet_close(r.outlet);
    sup_run_close(&r);
    pst_buf_done(&y);
    w->spec.manifest = NULL;
}

/* The same run once more, as if it had not been. */
static void again(world *w)
{
    char *old = pst_fs_join(w->run_dir, "exit.json"), *told = pst_fs_join(w->run_dir, "published");
    unlink(old);
    unlink(told);
    free(old);
    free(told);
    for (size_t i = 0; i < w->n_lines; i++)
        pst_event_clear(&pst_log_line_type, &w->lines[i]);
    w->n_lines = 0;
}

static const char *line_with(const world *w, const char *start)
{
    for (size_t i = 0; i < w->n_lines; i++)
        if (!strncmp(w->lines[i].text, start, strlen(start)))
            return w->lines[i].text;
    return NULL;
}

static void check_reports(const world *w, const int *wanted, size_t n)
{
    assert_int_equal(w->n_reports, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(w->reports[i].type, wanted[i]);
    for (size_t i = 0; i < w->n_lines; i++) /* whatever happened: numbers without a gap */
        assert_int_equal(w->lines[i].rindex, i);
    for (size_t i = 0; i < w->n_points; i++)
        assert_int_equal(w->points[i].rindex, i);
    assert_true(pst_rundir_published(w->run_dir));
}
#define REPORTS(w, ...) check_reports(w, (int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))
enum {
    STARTED = PST_REPORT_TYPE_STARTED,
    DOWNLOADING = PST_REPORT_TYPE_DOWNLOADING,
    RUNNING = PST_REPORT_TYPE_RUNNING,
    CHECKPOINT = PST_REPORT_TYPE_CHECKPOINT,
    STORING = PST_REPORT_TYPE_STORING,
    EXITED = PST_REPORT_TYPE_EXITED
};

static const pst_process_report *end_of(const world *w)
{
    assert_int_equal(w->reports[w->n_reports - 1].type, PST_REPORT_TYPE_EXITED);
    return &w->reports[w->n_reports - 1];
}

/* ---- tests -------------------------------------------------------------------------------------------------------------------- */

static void test_run_tells_steps_lines_metrics_and_success(void **state)
{
    world *w = *state;
    run(w, "echo hello; echo trouble >&2; echo '{\"penstock\":\"metrics\",\"step\":1,\"loss\":0.5}'; printf 'no newline'", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, STORING, EXITED);
    const pst_process_report *x = end_of(w);
    assert_true(x->has_exit_code && x->exit_code == 0 && !x->has_signal && !x->reason_code);
    assert_string_equal(x->reporter, "supervisor:unit");
    assert_non_null(line_with(w, "hello"));
    assert_non_null(line_with(w, "trouble"));
    assert_non_null(line_with(w, "no newline"));
    assert_null(line_with(w, "{"));
    assert_int_equal(w->n_points, 1);
    assert_true(w->points[0].has_step && w->points[0].step == 1 && w->points[0].values[0].value == 0.5);
    char *kept = pst_fs_join(w->dir, "jobs/training-unit/results/learner-1/training-log.txt");
    pst_buf b = {0};
    assert_int_equal(pst_fs_read(kept, 1000, &b, NULL), 0);
    assert_non_null(strstr(b.data, "hello\n"));
    pst_buf_done(&b);
    free(kept);
}

static void test_run_checkpoints_are_reported_the_last_of_many(void **state)
{
    world *w = *state;
    run(w, "for i in 1 2 3 4 5; do echo \"{\\\"penstock\\\":\\\"checkpoint\\\",\\\"epoch\\\":$i,\\\"file\\\":\\\"c$i.pt\\\"}\"; done", NULL,
        NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, CHECKPOINT, CHECKPOINT, STORING, EXITED); /* the first at once, then one a second */
    assert_string_equal(w->reports[3].reason, "checkpoint of epoch 1");
    const pst_process_report *last = &w->reports[4];
    assert_string_equal(last->reason, "checkpoint of epoch 5");
    assert_string_equal(last->process, "learner-1");
    assert_string_equal(pst_str_map_get(last->details, last->n_details, "file"), "c5.pt");
    assert_true(last->time >= w->reports[3].time);
    assert_null(line_with(w, "checkpoint"));
}

static void test_run_learner_sees_ffdls_environment_and_no_secret(void **state)
{
    world *w = *state;
    setenv("PENSTOCK_X_SASL_PASSWORD", "secret", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("PENSTOCK_BOOTSTRAP_SERVERS", "broker", 1);
    run(w,
        "env | sort; for d in MODEL_DIR DATA_DIR RESULT_DIR CHECKPOINT_DIR LOG_DIR JOB_STATE_DIR; do eval p=\\$$d; test -d $p && test -w "
        "$p || exit 7; "
        "done; test $(pwd) = $MODEL_DIR || exit 8; ls /proc/self/fd | wc -l | sed 's/^ */fds /'; read x && exit 9; exit 0",
        "penstock:\n  env: {COLOUR: blue, TRAINING_ID: stolen, PENSTOCK_RUN: stolen}\n", NULL);
    assert_int_equal(end_of(w)->exit_code, 0);
    static const char *const wanted[] = {"LEARNER_ID=1",
                                         "NUM_LEARNERS=1",
                                         "GPU_COUNT=0.000000",
                                         "TRAINING_ID=training-unit",
                                         "TRAINING_JOB=unit",
                                         "PENSTOCK_GENERATION=1",
                                         "PENSTOCK_RUN=training-unit/1/learner-1",
                                         "COLOUR=blue",
                                         "PYTHONPATH=/",
                                         "PATH=",
                                         "LEARNER_NAME_PREFIX=learner-unit",
                                         "CUDA_VISIBLE_DEVICES=",
                                         "fds 4",
                                         "TRAINING_COMMAND=env | sort;"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!line_with(w, wanted[i]))
            fail_msg("the learner does not see %s", wanted[i]);
    for (size_t i = 0; i < w->n_lines; i++)
        assert_null(strstr(w->lines[i].text, "secret"));
    assert_null(line_with(w, "PENSTOCK_BOOTSTRAP"));
    unsetenv("PENSTOCK_X_SASL_PASSWORD");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("PENSTOCK_BOOTSTRAP_SERVERS");
}

static void test_run_failure_says_status_and_last_error_line(void **state)
{
    world *w = *state;
    run(w, "echo one >&2; echo 'ValueError: shapes' >&2; exit 3", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, EXITED);
    const pst_process_report *x = end_of(w);
    assert_int_equal(x->exit_code, 3);
    assert_string_equal(x->reason_code, "C201");
    assert_string_equal(x->reason, "the command exited with status 3: ValueError: shapes");
}

static void test_run_death_by_signal_is_told_as_such(void **state)
{
    world *w = *state;
    run(w, "kill -SEGV $$", NULL, NULL);
    const pst_process_report *x = end_of(w);
    assert_true(x->has_signal && x->signal == SIGSEGV && !x->has_exit_code);
    assert_string_equal(x->reason_code, "C201");
}

static void test_run_command_that_does_not_exist_fails_like_in_a_shell(void **state)
{
    world *w = *state;
    run(w, "no-such-program-here", NULL, NULL);
    assert_int_equal(end_of(w)->exit_code, 127);
    assert_non_null(strstr(end_of(w)->reason, "not found"));
}

/* The wish comes by the file alone here, as after a restart of the LCM; only a learner that is not isolated reaches it. */
#define REACHES_OUT "penstock: {isolation: none}\n"
#define HALT_ME     "echo '{\"wish\":\"halt\"}' > $PENSTOCK_RUN_DIR/wish.json; "

static bool gone(const char *pid_text)
{
    return !pst_proc_start_time(atoi(pid_text + strcspn(pid_text, "0123456789")));
}

static void test_run_halt_gives_the_learner_time_and_empties_the_group(void **state)
{
    world *w = *state;
    w->spec.grace_ms = 120000;
    int64_t start = pst_mono_us();
    run(w, "trap 'echo saved > $CHECKPOINT_DIR/state; echo bye; exit 0' TERM; sleep 1000 & echo child $!; sleep 0.3; " HALT_ME "wait",
        REACHES_OUT, NULL);
    assert_true(pst_mono_us() - start < 100000000); /* it did not need its grace time */
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, EXITED);
    const pst_process_report *x = end_of(w);
    assert_int_equal(x->exit_code, 0);
    assert_null(x->reason_code);
    assert_int_equal(x->n_details, 1);
    assert_string_equal(x->details[0].value, "halt");
    assert_non_null(line_with(w, "bye"));
    assert_true(gone(line_with(w, "child")));
    char *state_file = pst_fs_join(w->dir, "jobs/training-unit/checkpoints/state");
    assert_true(pst_fs_exists(state_file));
    free(state_file);
}

static void test_run_halt_uses_force_after_the_grace_time(void **state)
{
    world *w = *state;
    run(w, "trap '' TERM; sleep 1000 & echo child $!; " HALT_ME "while :; do sleep 0.1; done", REACHES_OUT, NULL);
    const pst_process_report *x = end_of(w);
    assert_true(x->has_signal && x->signal == SIGKILL);
    assert_non_null(strstr(x->reason, "after the grace time"));
    assert_true(gone(line_with(w, "child")));
}

static void test_run_processes_that_left_the_group_are_ended_too(void **state)
{
    world *w = *state;
    run(w, "setsid sh -c 'echo escaped $$; exec sleep 1000' & sleep 0.3; exit 0", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, STORING, EXITED);
    assert_int_equal(end_of(w)->exit_code, 0);
    assert_non_null(line_with(w, "escaped"));
    assert_true(gone(line_with(w, "escaped")));
    assert_non_null(line_with(w, "the command ended, but processes of it live on"));
}

static void test_run_background_work_that_ends_in_time_is_waited_for(void **state)
{
    world *w = *state;
    w->spec.grace_ms = 5000;
    run(w, "(sleep 0.5; echo late) & exit 0", NULL, NULL);
    assert_non_null(line_with(w, "late"));
    assert_null(line_with(w, "the command ended, but"));
}

static void test_run_flood_is_bounded_and_the_gap_told(void **state)
{
    world *w = *state;
    run(w, "i=0; while [ $i -lt 200000 ]; do echo $i; i=$((i+1)); done; sleep 0.3; echo end", NULL,
        &(sup_output_limits){.lines_per_s = 5000});
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, STORING, EXITED);
    int64_t told = 0, lost = 0;
    for (size_t i = 0; i < w->n_lines; i++)
        if (w->lines[i].gap)
            lost += w->lines[i].gap->lines;
        else if (w->lines[i].stream == PST_LOG_STREAM_STDOUT)
            told++;
    assert_true(lost > 0);
    assert_int_equal(told + lost, 200001);
}

/* Points and checkpoints are no plain lines: however many come at once, they all arrive; and the last line is always told. */
static void test_run_flood_loses_no_metric_no_checkpoint_and_not_the_end(void **state)
{
    world *w = *state;
    run(w,
        "seq 40000 | sed 's/.*/{\"penstock\":\"metrics\",\"step\":&,\"loss\":0.5}/'; seq 30000; "
        "echo '{\"penstock\":\"checkpoint\",\"step\":40000}'; seq 30000; echo last-line",
        NULL, &(sup_output_limits){.lines_per_s = 1000});
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, CHECKPOINT, STORING, EXITED);
    assert_int_equal(w->n_points, 40000);
    for (size_t i = 0; i < w->n_points; i++)
        assert_int_equal(w->points[i].step, i + 1);
    int64_t told = 0, lost = 0;
    for (size_t i = 0; i < w->n_lines; i++)
        if (w->lines[i].gap)
            lost += w->lines[i].gap->lines;
        else if (w->lines[i].stream == PST_LOG_STREAM_STDOUT)
            told++;
    assert_true(lost > 0);
    assert_int_equal(told + lost, 60001);
    assert_string_equal(w->lines[w->n_lines - 1].text, "last-line");
    assert_string_equal(w->lines[w->n_lines - 2].text, "30000");
}

/* What the platform keeps beside a learner's folders, and the supervisor's own process, are nothing to it; its folders are. */
static void test_run_learner_is_kept_from_the_platforms_files_and_processes(void **state)
{
    world *w = *state;
    unsigned can = pst_confine_probe();
    char *secret = pst_fs_join(w->dir, "token"), *outside = pst_sprintf("%s.out", w->dir);
    assert_int_equal(pst_fs_write_atomic(secret, "canary", 6, 0600, NULL), 0);
    pst_proc_private();
    char *command = pst_sprintf(
        "cat %s 2>/dev/null && echo read-secret; echo x > $PENSTOCK_RUN_DIR/wish.json && echo wrote-wish; cat $PENSTOCK_RUN_DIR/spec.json "
        "2>/dev/null && echo read-spec; cat /proc/$PPID/environ >/dev/null 2>&1 && echo read-parent; kill -0 $PPID 2>/dev/null && echo "
        "may-signal; grep NoNewPrivs /proc/self/status; for d in $CHECKPOINT_DIR $RESULT_DIR $MODEL_DIR $LOG_DIR $JOB_STATE_DIR; do echo x "
        "> "
        "$d/probe || echo lost $d; done; echo y > %s && echo outside; sleep 30 & kill $! && echo own-signal; exit 0",
        secret, outside);
    run(w, command, NULL, NULL);
    assert_int_equal(end_of(w)->exit_code, 0);
    assert_null(line_with(w, "lost"));
    assert_non_null(line_with(w, "outside")); /* the operator's own folders are what local jobs are made of */
    assert_non_null(line_with(w, "own-signal"));
    if (can & PST_CAN_NO_NEW_PRIVS)
        assert_non_null(line_with(w, "NoNewPrivs:\t1"));
    if (can & PST_CAN_MOUNTS) {
        assert_null(line_with(w, "read-secret"));
        assert_null(line_with(w, "wrote-wish"));
        assert_null(line_with(w, "read-spec"));
    }
    if (can & (PST_CAN_LANDLOCK | PST_CAN_NO_NEW_PRIVS))
        assert_null(line_with(w, "read-parent"));
    if (can & PST_CAN_SCOPE_SIGNALS)
        assert_null(line_with(w, "may-signal"));
    unlink(outside);
    free(command);
    free(outside);
    free(secret);
    prctl(PR_SET_DUMPABLE, 1);
}

/* Links in a learner's folders do not make the supervisor, which sees everything, read or write for it. */
static void test_run_links_do_not_lend_the_supervisors_sight(void **state)
{
    world *w = *state;
    char *secret = pst_fs_join(w->dir, "token.txt"), *written = pst_fs_join(w->dir, "planted.txt");
    char *got = pst_fs_join(w->dir, "jobs/training-unit/results/learner-1/token.txt");
    assert_int_equal(pst_fs_write_atomic(secret, "canary", 6, 0600, NULL), 0);
    char *command = pst_sprintf("mv $LOG_DIR/learner-1 $LOG_DIR/old; ln -s %s $LOG_DIR/learner-1; echo x > $LOG_DIR/planted.txt; %s",
                                w->dir, "[ \"$LINK_RESULTS\" ] && ln -s $OUT $RESULT_DIR/learner-1; exit 0");
    run(w, command, NULL, NULL);
    assert_false(pst_fs_exists(got));
    char *old = pst_fs_join(w->run_dir, "exit.json"), *told = pst_fs_join(w->run_dir, "published");
    char *results = pst_fs_join(w->dir, "jobs/training-unit/results/learner-1"),
         *extra = pst_sprintf("penstock: {env: {LINK_RESULTS: 1, OUT: %s}}\n", w->dir);
    unlink(old);
    unlink(told);
    assert_int_equal(pst_fs_remove_tree(results, NULL), 0);
    run(w, command, extra, NULL);
    assert_false(pst_fs_exists(written));
    assert_non_null(line_with(w, "the logs are not kept with the results"));
    free(extra);
    free(results);
    free(old);
    free(told);
    free(command);
    free(got);
    free(written);
    free(secret);
}

static void test_run_memory_limit_is_kept_and_named(void **state)
{
    world *w = *state;
    run(w, "head -c 400000000 /dev/zero | tail", NULL, NULL); /* memory: 64MiB */
    const pst_process_report *x = end_of(w);
    assert_true(x->has_signal || x->exit_code);
    assert_string_equal(x->reason_code, "C201");
    if (!strstr(x->reason, "memory limit of 64.0 MiB"))
        fail_msg("%s", x->reason);
}

static void test_run_storage_limit_is_kept_and_named(void **state)
{
    world *w = *state;
    static const char *const commands[] = {"head -c 40000000 /dev/zero > $RESULT_DIR/big; exit $?",
                                           "for i in 1 2 3 4 5 6 7 8; do head -c 2000000 /dev/zero > $RESULT_DIR/$i; done; sleep 30"};
    for (size_t i = 0; i < 2; i++) {
        run(w, commands[i], "storage: 10MiB\n", NULL);
        const pst_process_report *x = end_of(w);
        assert_true(x->has_signal || x->exit_code);
        if (!strstr(x->reason, "10.0 MiB of the manifest's storage"))
            fail_msg("%s", x->reason);
        char *old = pst_fs_join(w->run_dir, "exit.json"), *told = pst_fs_join(w->run_dir, "published");
        unlink(old);
        unlink(told);
        free(old);
        free(told);
    }
}

static void test_run_fork_bomb_is_ended_soon_and_named(void **state)
{
    world *w = *state;
    int64_t begin = pst_mono_us();
    run(w, "f() { f | f & }; f; sleep 1000", "memory: 2GiB\ncpus: 0.5\n", NULL);
    assert_true(pst_mono_us() - begin < 500000000); /* seconds, but on a loaded machine */
    assert_non_null(strstr(end_of(w)->reason, "limit of 4096 processes"));
}

/* What root might read and write by its user id alone is not there for a job: disks, devices elsewhere, the system's folders. */
static void test_run_devices_and_the_system_are_out_of_reach(void **state)
{
    world *w = *state;
    unsigned can = pst_confine_probe();
    if (!(can & PST_CAN_MOUNTS))
        return;
    char *node = pst_sprintf("%s.node", w->dir);
    bool made = mknod(node, S_IFBLK | 0666, makedev(7, 0)) == 0; /* loop0, which need not have a file */
    char *command =
        pst_sprintf("for f in /dev/* /dev/*/*; do [ -b $f ] && echo block $f; done; ls -l %s && head -c 1 < %s && echo opened; "
                    "for f in kmsg mem sda vda tty0 loop-control watchdog; do [ -e /dev/$f ] && echo there $f; done; "
                    "echo x > /dev/null && echo null; head -c 4 /dev/urandom | wc -c; echo err > /dev/stderr; echo out > /dev/stdout; "
                    "touch /dev/shm/pst-probe && rm /dev/shm/pst-probe && echo shm; "
                    "for d in /usr /etc /opt /home /root /srv /var/lib /var/log /run; do touch $d/pst-probe && echo wrote-$d; done; "
                    "touch /var/tmp/pst-probe && rm /var/tmp/pst-probe && echo temporary; ls -d /dev/pts/* | head -3; "
                    "echo x > /job/probe; [ -s $JOB_STATE_DIR/probe ] && echo job; touch /pst-probe && echo wrote-root; [ -d /proc/self ] "
                    "&& echo proc; pwd; exit 0",
                    node, node);
    for (int sandbox = 0; sandbox < 2; sandbox++) {
        if (sandbox && !(can & PST_CAN_SANDBOX))
            break;
        run(w, command, sandbox ? "penstock: {isolation: sandbox}\n" : NULL, NULL);
        assert_null(line_with(w, "opened"));
        if (line_with(w, "wrote-"))
            fail_msg("%s: %s", sandbox ? "sandbox" : "user", line_with(w, "wrote-"));
        assert_non_null(line_with(w, "temporary"));
        assert_non_null(line_with(w, "null"));
        assert_non_null(line_with(w, "4"));
        assert_non_null(line_with(w, "out"));
        assert_non_null(line_with(w, "shm"));
        assert_non_null(line_with(w, "proc"));
        if (can & PST_CAN_DEVICES) {
            assert_null(line_with(w, "block"));
            assert_null(line_with(w, "there"));
        }
        if (can & PST_CAN_ROOT)
            assert_non_null(line_with(w, "job"));
        again(w);
    }
    if (made)
        unlink(node);
    free(command);
    free(node);
}

static void *stop_soon(void *arg)
{
    pst_sleep_ms(500);
    kill(getpid(), SIGTERM);
    return NULL;
}

static void test_run_isolation_that_cannot_be_had_is_an_error(void **state)
{
    world *w = *state;
    if (pst_confine_probe() & PST_CAN_SANDBOX)
        return;
    run(w, "echo never", "penstock: {isolation: sandbox}\n", NULL);
    assert_null(line_with(w, "never"));
    assert_non_null(strstr(end_of(w)->reason, "penstock.isolation: sandbox"));
    assert_string_equal(end_of(w)->reason_code, "S101");
}

/* Its own processes, user and folders, nothing else writable; its end and its output come through as ever. */
static void test_run_sandbox_has_processes_users_and_folders_of_its_own(void **state)
{
    world *w = *state;
    if (!(pst_confine_probe() & PST_CAN_SANDBOX))
        return;
    char *outside = pst_sprintf("%s.out", w->dir), *bystander = pst_sprintf("%s.seen", w->dir);
    assert_int_equal(pst_fs_write_atomic(bystander, "x", 1, 0644, NULL), 0);
    w->spec.grace_ms = 300;
    char *command = pst_sprintf(
        "echo pid $$; echo user $(id -u); ls /proc | grep -c '^[0-9]'; for d in $CHECKPOINT_DIR $RESULT_DIR $MODEL_DIR $LOG_DIR "
        "$JOB_STATE_DIR "
        "/tmp; do echo x > $d/probe || echo lost $d; done; echo y > %s; cat %s && echo sees-tmp; touch /usr/probe && echo wrote-usr; "
        "(setsid env -i $(command -v sleep) 300 &); echo m > $CHECKPOINT_DIR/mine; kill -9 1; exit 5",
        outside, bystander);
    int64_t begin = pst_mono_us();
    run(w, command, "penstock: {isolation: sandbox}\n", NULL);
    assert_int_equal(end_of(w)->exit_code, 5);
    assert_true(pst_mono_us() - begin < 200000000);
    assert_non_null(line_with(w, "pid 2"));
    assert_null(line_with(w, "user 0"));
    assert_null(line_with(w, "lost"));
    assert_null(line_with(w, "sees-tmp"));
    assert_null(line_with(w, "wrote-usr"));
    assert_false(pst_fs_exists(outside));
    char *mine = pst_fs_join(w->dir, "jobs/training-unit/checkpoints/mine");
    assert_true(pst_fs_exists(mine));
    unlink(bystander);
    free(mine);
    free(command);
    free(bystander);
    free(outside);
}

static void test_run_sandbox_ends_by_signal_and_on_halt(void **state)
{
    world *w = *state;
    if (!(pst_confine_probe() & PST_CAN_SANDBOX))
        return;
    run(w, "kill -SEGV $$", "penstock: {isolation: sandbox}\n", NULL);
    assert_true(end_of(w)->has_signal && end_of(w)->signal == SIGSEGV);
    char *old = pst_fs_join(w->run_dir, "exit.json"), *told = pst_fs_join(w->run_dir, "published");
    unlink(old);
    unlink(told);
    free(old);
    free(told);
    pthread_t t;
    w->spec.grace_ms = 20000;
    pst_stop_install();
    pthread_create(&t, NULL, stop_soon, NULL);
    run(w, "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done", "penstock: {isolation: sandbox}\n", NULL);
    pthread_join(t, NULL);
    assert_non_null(line_with(w, "bye"));
    assert_int_equal(end_of(w)->exit_code, 3);
}

static void put_code(world *w, const char *files[][2], size_t n)
{
    char *dir = pst_fs_join(w->dir, "src");
    assert_int_equal(pst_fs_mkdirs(dir, 0700, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        char *path = pst_fs_join(dir, files[i][0]);
        assert_int_equal(pst_fs_write_atomic(path, files[i][1], strlen(files[i][1]), 0700, NULL), 0);
        free(path);
    }
    pst_buf zip = {0};
    char type[32];
    assert_int_equal(pst_archive_pack(dir, 1 << 20, &zip, type, NULL), 0);
    char hex[65];
    pst_sha256_hex(zip.data, zip.len, hex);
    w->spec.code_sha256 = pst_strdup(hex);
    assert_int_equal(pst_objects_put(w->objects, "code/x.zip", zip.data, zip.len, &w->spec.code_uri, NULL), 0);
    w->spec.code_media_type = (char *)"application/zip";
    pst_buf_done(&zip);
    free(dir);
}

static void drop_code(world *w)
{
    free(w->spec.code_uri);
    free(w->spec.code_sha256);
    w->spec.code_uri = w->spec.code_sha256 = NULL;
}

static void test_run_code_is_fetched_checked_and_the_working_folder(void **state)
{
    world *w = *state;
    put_code(
        w, (const char *[][2]){{"train.sh", "echo from $(basename $0) in $(basename $(pwd)); cat data.txt"}, {"data.txt", "payload\n"}}, 2);
    run(w, "sh train.sh", NULL, NULL);
    assert_non_null(line_with(w, "from train.sh in code"));
    assert_non_null(line_with(w, "payload"));
    drop_code(w);
}

static void test_run_missing_code_and_damaged_code_have_their_codes(void **state)
{
    world *w = *state;
    put_code(w, (const char *[][2]){{"a", "b"}}, 1);
    assert_int_equal(pst_objects_put(w->objects, "code/x.zip", "replaced", 8, NULL, NULL), 0);
    run(w, "echo never", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, EXITED);
    assert_string_equal(end_of(w)->reason_code, "S301");
    assert_non_null(strstr(end_of(w)->reason, "sha256"));
    assert_false(end_of(w)->has_exit_code);
    drop_code(w);
}

static void test_run_hostile_archive_is_the_users_fault(void **state)
{
    world *w = *state;
    assert_int_equal(pst_objects_put(w->objects, "code/bad", "PK\3\4 no zip at all", 18, &w->spec.code_uri, NULL), 0);
    run(w, "echo never", NULL, NULL);
    assert_string_equal(end_of(w)->reason_code, "C102");
    drop_code(w);
}

/* What a learner leaves where its model should be: found by its usual names, or the reason why the job fails; never a hang. */
static void test_run_model_is_found_or_the_reason_said(void **state)
{
    static const char asked[] = "penstock: {model: {name: m}}\n", other[] = "penstock: {model: {name: m, file: best.bin}}\n";
    static const struct {
        const char *leaves, *manifest, *why; /* NULL = all is well */
    } cases[] = {
        {"true", asked, "no model.onnx, model.ubj"},
        {"true", NULL, NULL},
        {"echo x > model.onnx", asked, NULL},
        {"echo x > model.ubj", asked, NULL},
        {"echo tree > model.txt", asked, NULL},
        {"echo '{\"learner\": {}}' > model.json", asked, NULL},
        {"echo x > model.ubj; echo '{\"metrics\": {}}' > model.json", asked, NULL},
        {"echo x > model.ubj; echo '{\"learner\": {}}' > model.json", asked, "several models in $RESULT_DIR/model: model.ubj, model.json"},
        {"echo x > model.ubj; echo x > model.onnx", asked, "model.onnx, model.ubj"},
        {"echo x > model.txt", NULL, NULL},
        {"mkfifo model.onnx", asked, "model.onnx is a named pipe"},
        {"mkfifo model.txt", asked, "model.txt is a named pipe"},
        {"mkfifo model.json; echo x > model.onnx", asked, "model.json is a named pipe"},
        {"ln -s /dev/zero model.onnx", asked, "model.onnx is a link"},
        {"ln -s /etc/passwd model.ubj", asked, "model.ubj is a link"},
        {"mkdir model.onnx", asked, "model.onnx is a folder"},
        {": > model.onnx", asked, "model.onnx is empty"},
        {"truncate -s 513M model.onnx", asked, "more than the"},
        {"cd ..; rmdir model; ln -s /tmp model", asked, "a link"},
        {"echo x > model.onnx", other, "asks for best.bin"},
        {"echo x > best.bin; echo x > model.onnx", other, NULL},
        {"echo x > ../best.bin", other, NULL},
        {"mkfifo best.bin", other, "best.bin is a named pipe"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *fresh = NULL;
        assert_int_equal(setup(&fresh), 0);
        world *w = fresh;
        char *command = pst_sprintf("rm -rf $RESULT_DIR/model $RESULT_DIR/best.bin; mkdir -p $RESULT_DIR/model; cd $RESULT_DIR/model; %s",
                                    cases[i].leaves);
        alarm(60);
        run(w, command, cases[i].manifest, NULL);
        alarm(0);
        const pst_process_report *end = end_of(w);
        if (!cases[i].why ? end->reason_code != NULL
                          : !end->reason_code || strcmp(end->reason_code, "S303") || !strstr(end->reason, cases[i].why))
            fail_msg("%s: %s %s", cases[i].leaves, end->reason_code ? end->reason_code : "no code",
                     end->reason ? end->reason : "no reason");
        free(command);
        teardown(&fresh);
    }
}

static void test_run_data_stores_mount_files_and_the_unsupported(void **state)
{
    world *w = *state;
    char *data = pst_fs_join(w->dir, "bucket"), *file = pst_fs_join(data, "in.csv");
    assert_int_equal(pst_fs_mkdirs(data, 0700, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(file, "1,2\n", 4, 0600, NULL), 0);
    char *extra = pst_sprintf(
        "data_stores:\n  - id: d\n    type: mount_volume\n    training_data: {container: bucket}\n    training_results: {container: "
        "bucket}\n    connection: {type: host_mount, path: %s}\n",
        w->dir);
    run(w, "cat $DATA_DIR/in.csv; echo result > $RESULT_DIR/out", extra, NULL);
    assert_int_equal(end_of(w)->exit_code, 0);
    assert_non_null(line_with(w, "1,2"));
    char *out = pst_fs_join(data, "training-unit/out");
    assert_true(pst_fs_exists(out));
    free(out);
    free(extra);
    free(file);
    free(data);
}

static void test_run_missing_mount_says_which_and_what_to_do(void **state)
{
    world *w = *state;
    run(w, "echo never",
        "data_stores:\n  - id: d\n    type: mount\n    training_data: {container: x}\n    connection: {path: /nonexistent-here}\n", NULL);
    assert_string_equal(end_of(w)->reason_code, "C103");
    assert_non_null(strstr(end_of(w)->reason, "/nonexistent-here/x"));
    assert_false(pst_fs_exists("/nonexistent-here"));
}

static void test_run_files_are_linked_under_their_names(void **state)
{
    world *w = *state;
    run(w, "head -c 4 $DATA_DIR/hostname >/dev/null && echo linked",
        "data_stores:\n  - id: f\n    type: files\n    training_data: {container: x}\n    connection: {paths: [/etc/hostname]}\n", NULL);
    assert_non_null(line_with(w, "linked"));
}

static void test_run_evaluation_metrics_file_becomes_points(void **state)
{
    world *w = *state;
    run(w,
        "for i in 1 2 3; do echo "
        "'{\"grouplabel\":\"test\",\"etimes\":{\"iteration\":{\"value\":'$i'}},\"values\":{\"acc\":{\"type\":2,\"value\":\"0.'$i'\"}}}' "
        ">> $JOB_STATE_DIR/logs/evaluation-metrics.txt; sleep 0.1; done",
        NULL, NULL);
    assert_int_equal(w->n_points, 3);
    assert_string_equal(w->points[2].group, "test");
    assert_true(w->points[2].step == 3 && w->points[2].values[0].value == 0.3);
    char *kept = pst_fs_join(w->dir, "jobs/training-unit/results/learner-1/evaluation-metrics.txt");
    assert_true(pst_fs_exists(kept));
    free(kept);
}

static void test_run_wish_that_is_there_already_prevents_the_start(void **state)
{
    world *w = *state;
    assert_int_equal(pst_rundir_wish_write(w->run_dir, PST_WISH_PLATFORM_DOWN, NULL), 0);
    run(w, "echo never", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, EXITED);
    assert_string_equal(end_of(w)->reason_code, "PLATFORM_DOWN");
    assert_null(line_with(w, "never"));
}

static void test_run_end_on_disk_is_told_by_the_next_supervisor(void **state)
{
    world *w = *state;
    pst_rundir_exit x = {.has_exit_code = true, .exit_code = 5, .reason_code = "C201", .reason = "as before", .time_us = 77};
    assert_int_equal(pst_rundir_exit_write(w->run_dir, &x, NULL), 0);
    sup_outlet *o = open_outlet(w);
    assert_int_equal(sup_publish(w->run_dir, o, NULL), 0);
    assert_int_equal(sup_publish(w->run_dir, o, NULL), 0); /* once */
    sup_outlet_close(o);
    assert_int_equal(w->n_reports, 1);
    assert_true(end_of(w)->exit_code == 5 && end_of(w)->time == 77);
    assert_string_equal(end_of(w)->reason, "as before");
}

static void test_run_sigterm_without_a_wish_never_looks_like_success(void **state)
{
    world *w = *state;
    pthread_t t;
    w->spec.grace_ms = 5000;
    pst_stop_install();
    pthread_create(&t, NULL, stop_soon, NULL);
    run(w, "trap 'exit 0' TERM; while :; do sleep 0.05; done", NULL, NULL);
    pthread_join(t, NULL);
    assert_int_equal(end_of(w)->exit_code, 0);
    assert_string_equal(end_of(w)->reason_code, "PLATFORM_DOWN");
}

static void test_command_text_joins_only_breaks_before_options(void **state)
{
    static const char *const cases[][2] = {{"python x.py\n  --lr 1\n  --n 2\n", "python x.py --lr 1 --n 2\n"},
                                           {"cd a\nls\n", "cd a\nls\n"},
                                           {"a \\\n b", "a \\\n b"},
                                           {"for i in 1; do\r\n  echo $i\r\ndone", "for i in 1; do\n  echo $i\ndone"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = sup_run_command_text(cases[i][0]);
        assert_string_equal(got, cases[i][1]);
        free(got);
    }
}

#define RUN(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    umask(077); /* as main.c does */
    const struct CMUnitTest tests[] = {
        RUN(test_run_tells_steps_lines_metrics_and_success),
        RUN(test_run_checkpoints_are_reported_the_last_of_many),
        RUN(test_run_learner_sees_ffdls_environment_and_no_secret),
        RUN(test_run_failure_says_status_and_last_error_line),
        RUN(test_run_death_by_signal_is_told_as_such),
        RUN(test_run_command_that_does_not_exist_fails_like_in_a_shell),
        RUN(test_run_halt_gives_the_learner_time_and_empties_the_group),
        RUN(test_run_halt_uses_force_after_the_grace_time),
        RUN(test_run_processes_that_left_the_group_are_ended_too),
        RUN(test_run_background_work_that_ends_in_time_is_waited_for),
        RUN(test_run_flood_is_bounded_and_the_gap_told),
        RUN(test_run_flood_loses_no_metric_no_checkpoint_and_not_the_end),
        RUN(test_run_learner_is_kept_from_the_platforms_files_and_processes),
        RUN(test_run_links_do_not_lend_the_supervisors_sight),
        RUN(test_run_memory_limit_is_kept_and_named),
        RUN(test_run_storage_limit_is_kept_and_named),
        RUN(test_run_fork_bomb_is_ended_soon_and_named),
        RUN(test_run_devices_and_the_system_are_out_of_reach),
        RUN(test_run_isolation_that_cannot_be_had_is_an_error),
        RUN(test_run_sandbox_has_processes_users_and_folders_of_its_own),
        RUN(test_run_sandbox_ends_by_signal_and_on_halt),
        RUN(test_run_code_is_fetched_checked_and_the_working_folder),
        RUN(test_run_missing_code_and_damaged_code_have_their_codes),
        RUN(test_run_hostile_archive_is_the_users_fault),
        cmocka_unit_test(test_run_model_is_found_or_the_reason_said),
        RUN(test_run_data_stores_mount_files_and_the_unsupported),
        RUN(test_run_missing_mount_says_which_and_what_to_do),
        RUN(test_run_files_are_linked_under_their_names),
        RUN(test_run_evaluation_metrics_file_becomes_points),
        RUN(test_run_wish_that_is_there_already_prevents_the_start),
        RUN(test_run_end_on_disk_is_told_by_the_next_supervisor),
        RUN(test_run_sigterm_without_a_wish_never_looks_like_success),
        cmocka_unit_test(test_command_text_joins_only_breaks_before_options),
    };
    setvbuf(stdout, NULL, _IONBF, 0);
    cmocka_set_test_filter(getenv("PENSTOCK_TEST")); /* the name of one */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
