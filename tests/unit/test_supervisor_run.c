/* test_supervisor_run.c - whole runs of real commands under the supervisor, without a broker: the sink is a list. What a learner sees, what
 * becomes of its output, how it ends and how it is ended. */
#include "common/base/clock.h"
#include "common/base/confine.h"
#include "common/base/confine.h"
#include "common/base/fs.h"
#include "common/base/program.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/stop.h"

#include "supervisor_world.h"
#include <pthread.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- tests -------------------------------------------------------------------------------------------------------------------- */

static void test_run_tells_steps_lines_metrics_and_success(void **state)
{
    world *w = *state;
    world_run(w, "echo hello; echo trouble >&2; echo '{\"penstock\":\"metrics\",\"step\":1,\"loss\":0.5}'; printf 'no newline'", NULL,
              NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, STORING, EXITED);
    const pst_process_report *x = world_end(w);
    assert_true(x->has_exit_code && x->exit_code == 0 && !x->has_signal && !x->reason_code);
    assert_string_equal(x->reporter, "supervisor:unit");
    assert_non_null(world_line(w, "hello"));
    assert_non_null(world_line(w, "trouble"));
    assert_non_null(world_line(w, "no newline"));
    assert_null(world_line(w, "{"));
    assert_int_equal(world_own_points(w), 1);
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
    world_run(w, "for i in 1 2 3 4 5; do echo \"{\\\"penstock\\\":\\\"checkpoint\\\",\\\"epoch\\\":$i,\\\"file\\\":\\\"c$i.pt\\\"}\"; done",
              NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, CHECKPOINT, CHECKPOINT, STORING, EXITED); /* the first at once, then one a second */
    assert_string_equal(w->reports[3].reason, "checkpoint of epoch 1");
    const pst_process_report *last = &w->reports[4];
    assert_string_equal(last->reason, "checkpoint of epoch 5");
    assert_string_equal(last->process, "learner-1");
    assert_string_equal(pst_str_map_get(last->details, last->n_details, "file"), "c5.pt");
    assert_true(last->time >= w->reports[3].time);
    assert_null(world_line(w, "checkpoint"));
}

/* The Trainer takes an older report of a process for a repetition. */
static void test_run_a_checkpoint_from_the_future_hides_no_later_one(void **state)
{
    world *w = *state;
    world_run(
        w,
        "echo '{\"penstock\":\"checkpoint\",\"step\":1,\"time\":4000000000}'; sleep 0.1; echo '{\"penstock\":\"checkpoint\",\"step\":2}'",
        NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, CHECKPOINT, CHECKPOINT, STORING, EXITED);
    assert_true(w->reports[3].time > INT64_C(3000000000000000));
    assert_string_equal(w->reports[4].reason, "checkpoint of step 2");
    assert_true(w->reports[4].time > w->reports[3].time);
}

static void test_run_learner_sees_ffdls_environment_and_no_secret(void **state)
{
    world *w = *state;
    setenv("PENSTOCK_X_SASL_PASSWORD", "secret", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("PENSTOCK_BOOTSTRAP_SERVERS", "broker", 1);
    world_run(
        w,
        "env | sort; for d in MODEL_DIR DATA_DIR RESULT_DIR CHECKPOINT_DIR LOG_DIR JOB_STATE_DIR; do eval p=\\$$d; test -d $p && test -w "
        "$p || exit 7; "
        "done; test $(pwd) = $MODEL_DIR || exit 8; ls /proc/self/fd | wc -l | sed 's/^ */fds /'; read x && exit 9; exit 0",
        "penstock:\n  env: {COLOUR: blue, TRAINING_ID: stolen, PENSTOCK_RUN: stolen}\n", NULL);
    assert_int_equal(world_end(w)->exit_code, 0);
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
        if (!world_line(w, wanted[i]))
            fail_msg("the learner does not see %s", wanted[i]);
    for (size_t i = 0; i < w->n_lines; i++)
        assert_null(strstr(w->lines[i].text, "secret"));
    assert_null(world_line(w, "PENSTOCK_BOOTSTRAP"));
    unsetenv("PENSTOCK_X_SASL_PASSWORD");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("PENSTOCK_BOOTSTRAP_SERVERS");
}

static void test_run_failure_says_status_and_last_error_line(void **state)
{
    world *w = *state;
    world_run(w, "echo one >&2; echo 'ValueError: shapes' >&2; exit 3", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, EXITED);
    const pst_process_report *x = world_end(w);
    assert_int_equal(x->exit_code, 3);
    assert_string_equal(x->reason_code, "C201");
    assert_string_equal(x->reason, "the command exited with status 3: ValueError: shapes");
}

static void test_run_death_by_signal_is_told_as_such(void **state)
{
    world *w = *state;
    world_run(w, "kill -SEGV $$", NULL, NULL);
    const pst_process_report *x = world_end(w);
    assert_true(x->has_signal && x->signal == SIGSEGV && !x->has_exit_code);
    assert_string_equal(x->reason_code, "C201");
}

static void test_run_command_that_does_not_exist_fails_like_in_a_shell(void **state)
{
    world *w = *state;
    world_run(w, "no-such-program-here", NULL, NULL);
    assert_int_equal(world_end(w)->exit_code, 127);
    assert_non_null(strstr(world_end(w)->reason, "not found"));
}

#define REACHES_OUT "penstock: {isolation: none}\n"

/* FfDL's learner shell, at each level of isolation. */
static void test_run_command_is_for_bash_where_there_is_one(void **state)
{
    world *w = *state;
    if (access("/bin/bash", X_OK) < 0 && access("/usr/bin/bash", X_OK) < 0)
        skip();
    static const char *const levels[] = {REACHES_OUT, "penstock: {isolation: user}\n", "penstock: {isolation: sandbox}\n"};
    for (int i = 0; i < (pst_confine_probe() & PST_CAN_SANDBOX ? 3 : 2); i++) {
        char *command = pst_sprintf("a=(one two); [[ ${a[1]} == t* ]] && echo \"%d ${a[1]^^} ${BASH_VERSION:+bash}\"", i);
        char *want = pst_sprintf("%d TWO bash", i), *old = pst_fs_join(w->run_dir, "exit.json"),
             *told = pst_fs_join(w->run_dir, "published");
        world_run(w, command, levels[i], NULL);
        assert_int_equal(world_end(w)->exit_code, 0);
        if (!world_line(w, want))
            fail_msg("%s: %s", levels[i], w->n_lines ? w->lines[w->n_lines - 1].text : "says nothing");
        assert_null(world_line(w, "this host has no bash"));
        unlink(old);
        unlink(told);
        free(old);
        free(told);
        free(want);
        free(command);
    }
}

static void put_program(const char *root, const char *path)
{
    pst_err err = {0};
    char *at = pst_sprintf("%s%s", root, path);
    *strrchr(at, '/') = 0;
    assert_int_equal(pst_fs_mkdirs(at, 0700, &err), 0);
    at[strlen(at)] = '/';
    int fd = open(at, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    close(fd);
    free(at);
}

static void test_program_shell_is_bash_wherever_systems_have_it(void **state)
{
    world *w = *state;
    char *root = pst_sprintf("%s/root", w->dir);
    put_program(root, "/bin/sh");
    assert_string_equal(pst_program_shell(root), "/bin/sh");
    put_program(root, "/usr/local/bin/bash");
    assert_string_equal(pst_program_shell(root), "/usr/local/bin/bash");
    put_program(root, "/usr/bin/bash");
    assert_string_equal(pst_program_shell(root), "/usr/bin/bash");
    put_program(root, "/bin/bash");
    assert_string_equal(pst_program_shell(root), "/bin/bash");
    free(root);
}

/* The stop comes by the file alone here, as after a restart of the LCM; only a learner that is not isolated reaches it. */
#define HALT_ME "echo '{\"stop_reason\":\"halt\"}' > $PENSTOCK_RUN_DIR/stop.json; "

static void test_run_halt_gives_the_learner_time_and_empties_the_group(void **state)
{
    world *w = *state;
    w->spec.grace_ms = 120000;
    int64_t start = pst_mono_us();
    world_run(w, "trap 'echo saved > $CHECKPOINT_DIR/state; echo bye; exit 0' TERM; sleep 1000 & echo child $!; sleep 0.3; " HALT_ME "wait",
              REACHES_OUT, NULL);
    assert_true(pst_mono_us() - start < 100000000); /* it did not need its grace time */
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, EXITED);
    const pst_process_report *x = world_end(w);
    assert_int_equal(x->exit_code, 0);
    assert_null(x->reason_code);
    assert_int_equal(x->n_details, 1);
    assert_string_equal(x->details[0].value, "halt");
    assert_non_null(world_line(w, "bye"));
    assert_true(world_gone(world_line(w, "child")));
    char *state_file = pst_fs_join(w->dir, "jobs/training-unit/checkpoints/state");
    assert_true(pst_fs_exists(state_file));
    free(state_file);
}

static void test_run_halt_uses_force_after_the_grace_time(void **state)
{
    world *w = *state;
    world_run(w, "trap '' TERM; sleep 1000 & echo child $!; " HALT_ME "while :; do sleep 0.1; done", REACHES_OUT, NULL);
    const pst_process_report *x = world_end(w);
    assert_true(x->has_signal && x->signal == SIGKILL);
    assert_non_null(strstr(x->reason, "after the grace time"));
    assert_true(world_gone(world_line(w, "child")));
}

static void test_run_processes_that_left_the_group_are_ended_too(void **state)
{
    world *w = *state;
    world_run(w, "setsid sh -c 'echo escaped $$; exec sleep 1000' & sleep 0.3; exit 0", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, STORING, EXITED);
    assert_int_equal(world_end(w)->exit_code, 0);
    assert_non_null(world_line(w, "escaped"));
    assert_true(world_gone(world_line(w, "escaped")));
    assert_non_null(world_line(w, "the command ended, but processes of it live on"));
}

static void test_run_background_work_that_ends_in_time_is_waited_for(void **state)
{
    world *w = *state;
    w->spec.grace_ms = 5000;
    world_run(w, "(sleep 0.5; echo late) & exit 0", NULL, NULL);
    assert_non_null(world_line(w, "late"));
    assert_null(world_line(w, "the command ended, but"));
}

static void test_run_flood_is_bounded_and_the_gap_told(void **state)
{
    world *w = *state;
    /* by seq: a loop of the shell writes as fast as the computer lets it, which may be no flood */
    world_run(w, "seq 200000; sleep 0.3; echo end", NULL, &(sup_output_limits){.lines_per_s = 5000});
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
    world_run(w,
              "seq 40000 | sed 's/.*/{\"penstock\":\"metrics\",\"step\":&,\"loss\":0.5}/'; seq 30000; "
              "echo '{\"penstock\":\"checkpoint\",\"step\":40000}'; seq 30000; echo last-line",
              NULL, &(sup_output_limits){.lines_per_s = 1000});
    REPORTS(w, STARTED, DOWNLOADING, RUNNING, CHECKPOINT, STORING, EXITED);
    assert_int_equal(world_own_points(w), 40000);
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
    world_run(w, "sh train.sh", NULL, NULL);
    assert_non_null(world_line(w, "from train.sh in code"));
    assert_non_null(world_line(w, "payload"));
    drop_code(w);
}

static void test_run_missing_code_and_damaged_code_have_their_codes(void **state)
{
    world *w = *state;
    put_code(w, (const char *[][2]){{"a", "b"}}, 1);
    assert_int_equal(pst_objects_put(w->objects, "code/x.zip", "replaced", 8, NULL, NULL), 0);
    world_run(w, "echo never", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, EXITED);
    assert_string_equal(world_end(w)->reason_code, "S301");
    assert_non_null(strstr(world_end(w)->reason, "sha256"));
    assert_false(world_end(w)->has_exit_code);
    drop_code(w);
}

static void test_run_hostile_archive_is_the_users_fault(void **state)
{
    world *w = *state;
    assert_int_equal(pst_objects_put(w->objects, "code/bad", "PK\3\4 no zip at all", 18, &w->spec.code_uri, NULL), 0);
    world_run(w, "echo never", NULL, NULL);
    assert_string_equal(world_end(w)->reason_code, "C102");
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
        {"true", asked, "there is nothing"},
        {"true", NULL, NULL},
        {"echo x > model.pkl", asked, "there is model.pkl"},
        {"echo x > model.pkl", NULL, NULL},
        {"touch a b c d e f g", asked, "and more"},
        {"echo x > \"$(printf 'm\\033[2J')\"", asked, "m^[[2J"},
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
        assert_int_equal(world_setup(&fresh), 0);
        world *w = fresh;
        char *command = pst_sprintf("rm -rf $RESULT_DIR/model $RESULT_DIR/best.bin; mkdir -p $RESULT_DIR/model; cd $RESULT_DIR/model; %s",
                                    cases[i].leaves);
        alarm(60);
        world_run(w, command, cases[i].manifest, NULL);
        alarm(0);
        const pst_process_report *end = world_end(w);
        if (!cases[i].why ? end->reason_code != NULL
                          : !end->reason_code || strcmp(end->reason_code, "S303") || !strstr(end->reason, cases[i].why))
            fail_msg("%s: %s %s", cases[i].leaves, end->reason_code ? end->reason_code : "no code",
                     end->reason ? end->reason : "no reason");
        free(command);
        world_teardown(&fresh);
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
    world_run(w, "cat $DATA_DIR/in.csv; echo result > $RESULT_DIR/out", extra, NULL);
    assert_int_equal(world_end(w)->exit_code, 0);
    assert_non_null(world_line(w, "1,2"));
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
    world_run(w, "echo never",
              "data_stores:\n  - id: d\n    type: mount\n    training_data: {container: x}\n    connection: {path: /nonexistent-here}\n",
              NULL);
    assert_string_equal(world_end(w)->reason_code, "C103");
    assert_non_null(strstr(world_end(w)->reason, "/nonexistent-here/x"));
    assert_false(pst_fs_exists("/nonexistent-here"));
}

static void test_run_files_are_linked_under_their_names(void **state)
{
    world *w = *state;
    world_run(w, "head -c 4 $DATA_DIR/hostname >/dev/null && echo linked",
              "data_stores:\n  - id: f\n    type: files\n    training_data: {container: x}\n    connection: {paths: [/etc/hostname]}\n",
              NULL);
    assert_non_null(world_line(w, "linked"));
}

static void test_run_evaluation_metrics_file_becomes_points(void **state)
{
    world *w = *state;
    world_run(
        w,
        "for i in 1 2 3; do echo "
        "'{\"grouplabel\":\"test\",\"etimes\":{\"iteration\":{\"value\":'$i'}},\"values\":{\"acc\":{\"type\":2,\"value\":\"0.'$i'\"}}}' "
        ">> $JOB_STATE_DIR/logs/evaluation-metrics.txt; sleep 0.1; done",
        NULL, NULL);
    assert_int_equal(world_own_points(w), 3);
    assert_string_equal(w->points[2].group, "test");
    assert_true(w->points[2].step == 3 && w->points[2].values[0].value == 0.3);
    char *kept = pst_fs_join(w->dir, "jobs/training-unit/results/learner-1/evaluation-metrics.txt");
    assert_true(pst_fs_exists(kept));
    free(kept);
}

/* Lines of both streams, a file of `in` that is renamed while it is written, and the last words without a newline. */
static void test_run_regex_extractor_reads_output_and_files(void **state)
{
    world *w = *state;
    world_run(w,
              "echo 'step 1 loss 0.5'; echo 'step 2 loss nan' >&2; cd $LOG_DIR; echo 'step 3 loss 3' > own.log; sleep 0.8; "
              "echo 'step 4 loss 4' >> own.log; mv own.log own.log.1; echo 'step 5 loss 5' > own.log; echo 'step 6 loss 6' > user_log.txt; "
              "printf 'step 7 loss 7' >> own.log",
              "evaluation_metrics:\n  type: regex_extractor\n  in: [$LOG_DIR/own.log, $JOB_STATE_DIR/logs/training-log.txt]\n  groups:\n   "
              " mine:\n"
              "      regex: 'step %{INT:s} loss %{FLOAT:l}'\n      etimes: {iteration: {type: INT, value: $s}}\n"
              "      scalars: {loss: {type: FLOAT, value: $l}}\n",
              NULL);
    assert_int_equal(world_end(w)->exit_code, 0);
    assert_int_equal(world_own_points(w), 7);
    int seen = 0;
    for (size_t i = 0; i < 7; i++) {
        const pst_metric_point *p = &w->points[i];
        assert_string_equal(p->group, "mine");
        assert_true(p->has_step && p->n_values == 1);
        assert_true(p->step <= 2 || p->values[0].value == (double)p->step);
        seen |= 1 << p->step;
    }
    assert_int_equal(seen, 0xfe);
    assert_non_null(world_line(w, "step 1 loss 0.5")); /* a line stays a line */
}

/* One record of TensorBoard's (loss 0.5 at step 3), as its writer leaves it, whole and cut. */
static void test_run_tensorboard_scalars_become_points(void **state)
{
    world *w = *state;
    world_run(w,
              "mkdir -p $LOG_DIR/tb/val; printf "
              "'\\032\\000\\000\\000\\000\\000\\000\\000\\022\\233\\330\\055\\011\\000\\000\\040\\100\\374\\124\\331\\101\\020\\003\\052\\0"
              "15\\012\\013\\012\\004\\154\\157\\163\\163\\025\\000\\000\\000\\077\\214\\377\\157\\344' > "
              "$LOG_DIR/tb/val/events.out.tfevents.1; cd $LOG_DIR/tb/val; cat *.1 *.1 > events.out.tfevents.2; "
              "printf xy >> events.out.tfevents.2",
              "evaluation_metrics: {type: tensorboard, in: \"$JOB_STATE_DIR/logs/tb\"}\n", NULL);
    assert_int_equal(world_end(w)->exit_code, 0);
    assert_int_equal(world_own_points(w), 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(w->points[i].group, "val");
        assert_true(w->points[i].step == 3 && w->points[i].values[0].value == 0.5 && w->points[i].time == 1700000000500000);
    }
    assert_non_null(world_line(w, "evaluation_metrics: tb/val/events.out.tfevents.2 ends in the middle"));
}

static double system_value(const world *w, size_t at, const char *name)
{
    const pst_metric_point *p = &w->points[at];
    for (size_t i = 0; i < p->n_values; i++)
        if (!strcmp(p->values[i].key, name))
            return p->values[i].value;
    fail_msg("no %s", name);
    return 0;
}

/* A process that works, one that sleeps, and something written; points only as often as the manifest says, none with 0. */
static void test_run_system_metrics_are_of_the_whole_tree(void **state)
{
    world *w = *state;
    world_run(w, "head -c 3000000 /dev/zero > big; sync -d big; sleep 2.5 & timeout 2.5 sh -c 'while :; do :; done'; wait",
              "penstock: {system_metrics: 1s}\n", NULL);
    assert_true(w->n_points >= 1 && w->n_points <= 3);
    for (size_t i = 0; i < w->n_points; i++) {
        assert_string_equal(w->points[i].group, "system");
        assert_true(system_value(w, i, "processes") >= 2 && system_value(w, i, "threads") >= system_value(w, i, "processes"));
        assert_true(system_value(w, i, "rss_bytes") > 0 && system_value(w, i, "read_bytes") >= 0 && system_value(w, i, "write_bytes") >= 0);
        assert_true(system_value(w, i, "cpu_share") > 0 && system_value(w, i, "cpu_share") < 4);
        assert_true(!i || system_value(w, i, "cpu_seconds") > system_value(w, i - 1, "cpu_seconds"));
    }
}

static void test_run_system_metrics_can_be_switched_off(void **state)
{
    world *w = *state;
    world_run(w, "sleep 1.3", "penstock: {system_metrics: 0}\n", NULL);
    assert_int_equal(w->n_points, 0);
}

static void test_run_stop_that_is_there_already_prevents_the_start(void **state)
{
    world *w = *state;
    assert_int_equal(pst_rundir_stop_reason_write(w->run_dir, PST_STOP_REASON_PLATFORM_DOWN, NULL), 0);
    world_run(w, "echo never", NULL, NULL);
    REPORTS(w, STARTED, DOWNLOADING, EXITED);
    assert_string_equal(world_end(w)->reason_code, "PLATFORM_DOWN");
    assert_null(world_line(w, "never"));
}

static void test_run_end_on_disk_is_told_by_the_next_supervisor(void **state)
{
    world *w = *state;
    pst_rundir_exit x = {.has_exit_code = true, .exit_code = 5, .reason_code = "C201", .reason = "as before", .time_us = 77};
    assert_int_equal(pst_rundir_exit_write(w->run_dir, &x, NULL), 0);
    sup_outlet *o = world_outlet(w);
    assert_int_equal(sup_publish(w->run_dir, o, NULL), 0);
    assert_int_equal(sup_publish(w->run_dir, o, NULL), 0); /* once */
    sup_outlet_close(o);
    assert_int_equal(w->n_reports, 1);
    assert_true(world_end(w)->exit_code == 5 && world_end(w)->time == 77);
    assert_string_equal(world_end(w)->reason, "as before");
}

static void test_run_sigterm_without_a_reason_never_looks_like_success(void **state)
{
    world *w = *state;
    pthread_t t;
    w->spec.grace_ms = 5000;
    pst_stop_install();
    pthread_create(&t, NULL, world_stop_soon, NULL);
    world_run(w, "trap 'exit 0' TERM; while :; do sleep 0.05; done", NULL, NULL);
    pthread_join(t, NULL);
    assert_int_equal(world_end(w)->exit_code, 0);
    assert_string_equal(world_end(w)->reason_code, "PLATFORM_DOWN");
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

#define RUN(t) cmocka_unit_test_setup_teardown(t, world_setup, world_teardown)

int main(void)
{
    umask(077); /* as main.c does */
    const struct CMUnitTest tests[] = {
        RUN(test_run_tells_steps_lines_metrics_and_success),
        RUN(test_run_checkpoints_are_reported_the_last_of_many),
        RUN(test_run_a_checkpoint_from_the_future_hides_no_later_one),
        RUN(test_run_learner_sees_ffdls_environment_and_no_secret),
        RUN(test_run_failure_says_status_and_last_error_line),
        RUN(test_run_death_by_signal_is_told_as_such),
        RUN(test_run_command_that_does_not_exist_fails_like_in_a_shell),
        RUN(test_run_command_is_for_bash_where_there_is_one),
        RUN(test_program_shell_is_bash_wherever_systems_have_it),
        RUN(test_run_halt_gives_the_learner_time_and_empties_the_group),
        RUN(test_run_halt_uses_force_after_the_grace_time),
        RUN(test_run_processes_that_left_the_group_are_ended_too),
        RUN(test_run_background_work_that_ends_in_time_is_waited_for),
        RUN(test_run_flood_is_bounded_and_the_gap_told),
        RUN(test_run_flood_loses_no_metric_no_checkpoint_and_not_the_end),
        RUN(test_run_code_is_fetched_checked_and_the_working_folder),
        RUN(test_run_missing_code_and_damaged_code_have_their_codes),
        RUN(test_run_hostile_archive_is_the_users_fault),
        cmocka_unit_test(test_run_model_is_found_or_the_reason_said),
        RUN(test_run_data_stores_mount_files_and_the_unsupported),
        RUN(test_run_missing_mount_says_which_and_what_to_do),
        RUN(test_run_files_are_linked_under_their_names),
        RUN(test_run_evaluation_metrics_file_becomes_points),
        RUN(test_run_regex_extractor_reads_output_and_files),
        RUN(test_run_tensorboard_scalars_become_points),
        RUN(test_run_system_metrics_are_of_the_whole_tree),
        RUN(test_run_system_metrics_can_be_switched_off),
        RUN(test_run_stop_that_is_there_already_prevents_the_start),
        RUN(test_run_end_on_disk_is_told_by_the_next_supervisor),
        RUN(test_run_sigterm_without_a_reason_never_looks_like_success),
        cmocka_unit_test(test_command_text_joins_only_breaks_before_options),
    };
    setvbuf(stdout, NULL, _IONBF, 0);
    cmocka_set_test_filter(getenv("PENSTOCK_TEST")); /* the name of one */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
