/* test_supervisor_stores.c - whole runs with a bucket: hostile keys stay where they belong, and a store that refuses or is away becomes a sentence in
 * the job's end, with the files still there. */
#include "common/base/fs.h"
#include "common/base/stop.h"

#include "lcm/supervisor/stores.h"
#include "s3_server.h"
#include "supervisor_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "sesame-sesame"

/* As a bucket of odd keys: each object is its own name. Takes what is put, refuses it, or is away. */
typedef struct bucket {
    enum { TAKES, REFUSES, AWAY } puts;
    const char *const *keys;
    size_t n;
    pst_buf put;     /* the names, a line each */
    const char *cut; /* what is refused to be given */
} bucket;

static void serve(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    bucket *b = s->arg;
    if (!strcmp(method, "PUT") && b->puts == TAKES) {
        pst_buf_printf(&b->put, "%s\n", target);
        s3_say(out, "200", "", "", 0, -1);
    } else if (!strcmp(method, "PUT")) {
        s3_say(out, b->puts == AWAY ? "503" : "403", "", "", 0, -1);
    } else if (!strcmp(method, "HEAD")) {
        s3_say(out, "404", "", "", 0, -1);
    } else if (strstr(target, "list-type")) {
        s3_say_list(out, b->keys, b->n, 4, NULL);
    } else {
        s3_say(out, b->cut && strstr(target, b->cut) ? "403" : "200", "", "data", 4, -1);
    }
}

static char *store_of(const s3_server *s, const char *more)
{
    return pst_sprintf(
        "data_stores:\n  - {id: s, type: mount_cos, training_data: {container: in_Data}, %sconnection: {auth_url: \"%s\", user_name: "
        "user-key, password: " SECRET "}}\n",
        more, s->url);
}

static void check_no_secret(const world *w)
{
    for (size_t i = 0; i < w->n_lines; i++) {
        assert_null(strstr(w->lines[i].text, SECRET));
        assert_null(strstr(w->lines[i].text, "user-key"));
    }
    for (size_t i = 0; i < w->n_reports; i++)
        assert_true(!w->reports[i].reason || !strstr(w->reports[i].reason, SECRET));
}

static void test_stores_hostile_keys_leave_no_file_outside(void **state)
{
    world *w = *state;
    static const char *const keys[] = {"good.csv",  "../../escape", "/tmp/penstock-unit-escape", "a", "a!", "a/b", "x//y", "n/../../../out",
                                       "&#10;line", "dir/"};
    bucket b = {.keys = keys, .n = sizeof keys / sizeof *keys};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "");
    world_run(w, "cd $DATA_DIR; find . | LC_ALL=C sort > $RESULT_DIR/found; find $JOB_STATE_DIR/../../.. -name '*escape*' -o -name out",
              extra, NULL);
    assert_true(world_end(w)->has_exit_code && world_end(w)->exit_code == 0);
    char *found = pst_fs_join(w->dir, "jobs/training-unit/results/found");
    pst_buf text = {0};
    assert_int_equal(pst_fs_read(found, 4096, &text, NULL), 0);
    assert_string_equal(text.data, ".\n./\n./a\n./a!\n./a/b\n./dir\n./good.csv\nline\n");
    assert_null(world_line(w, "/")); /* nothing of theirs lies about */
    assert_true(access("/tmp/penstock-unit-escape", F_OK) < 0);
    assert_non_null(world_line(w, "left out: a:"));
    char *copies = pst_fs_join(w->run_dir, "data");
    assert_false(pst_fs_exists(copies)); /* the bucket has them */
    free(copies);
    assert_non_null(world_line(w, "left out: ../../escape:"));
    check_no_secret(w);
    pst_buf_done(&text);
    free(found);
    free(extra);
    s3_server_stop(&server);
}

static void test_stores_results_have_ffdl_names_whatever_the_end(void **state)
{
    world *w = *state;
    bucket b = {.keys = (const char *[]){"x"}, .n = 1};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "training_results: {container: Out_1}, ");
    world_run(w, "echo 1 > \"$RESULT_DIR/a b+é\"; echo 2 > $CHECKPOINT_DIR/c; ln -s /etc/passwd $RESULT_DIR/link; exit 3", extra, NULL);
    const pst_process_report *x = world_end(w);
    assert_true(x->exit_code == 3 && !strcmp(x->reason_code, "C201"));
    static const char *const names[] = {"/Out_1/training-unit/a%20b%2B%C3%A9\n", "/Out_1/training-unit/_wml_checkpoints/c\n",
                                        "/Out_1/training-unit/learner-1/training-log.txt\n",
                                        "/Out_1/training-unit/learner-1/load-data.log\n"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(strstr(b.put.data, names[i]));
    assert_null(strstr(b.put.data, "link"));
    check_no_secret(w);
    pst_buf_done(&b.put);
    free(extra);
    s3_server_stop(&server);
}

static void test_stores_results_that_cannot_be_put_stay_and_are_named(void **state)
{
    world *w = *state;
    static const int how[] = {REFUSES, AWAY};
    for (int i = 0; i < 2; i++) {
        bucket b = {.keys = (const char *[]){"x"}, .n = 1, .puts = how[i]};
        s3_server server;
        s3_server_start(&server, serve, &b);
        char *extra = store_of(&server, "training_results: {container: Out_1}, ");
        w->store_patience_ms = 1500;
        while (w->n_reports)
            pst_event_clear(&pst_process_report_type, &w->reports[--w->n_reports]);
        world_run(w, "echo 1 > $RESULT_DIR/kept", extra, NULL);
        const pst_process_report *x = world_end(w);
        assert_false(x->has_exit_code);
        assert_string_equal(x->reason_code, "S303");
        assert_non_null(strstr(x->reason, "Out_1"));
        assert_non_null(strstr(x->reason, i ? "503" : "403"));
        char *kept = pst_fs_join(w->dir, "jobs/training-unit/results/kept"), *place = pst_fs_join(w->dir, "jobs/training-unit/results");
        assert_non_null(strstr(x->reason, place));
        assert_true(pst_fs_exists(kept));
        check_no_secret(w);
        free(place);
        free(kept);
        free(extra);
        s3_server_stop(&server);
        world_again(w);
    }
}

/* A folder that is too deep is no reason to store less of the rest, and none to call it a success. */
static void test_stores_results_that_are_not_all_stored_are_no_success(void **state)
{
    world *w = *state;
    bucket b = {.keys = (const char *[]){"x"}, .n = 1};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "training_results: {container: Out_1}, ");
    world_run(w, "cd $RESULT_DIR; d=.; for i in $(seq 45); do d=$d/d; done; mkdir -p $d; echo 1 > zz; echo 1 > d/d/zz", extra, NULL);
    const pst_process_report *x = world_end(w);
    assert_false(x->has_exit_code);
    assert_string_equal(x->reason_code, "S303");
    assert_non_null(strstr(b.put.data, "/Out_1/training-unit/zz\n"));
    assert_non_null(strstr(b.put.data, "/Out_1/training-unit/d/d/zz\n"));
    assert_non_null(world_line(w, "not stored: d/d/"));
    pst_buf_done(&b.put);
    free(extra);
    s3_server_stop(&server);
}

/* The command may have put a FIFO where a step's log goes: nobody waits for its other end. */
static void test_stores_a_fifo_in_a_logs_place_holds_nobody_up(void **state)
{
    world *w = *state;
    bucket b = {.keys = (const char *[]){"x"}, .n = 1};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "training_results: {container: Out_1}, ");
    alarm(60); /* it hung here */
    world_run(w, "mkfifo $LOG_DIR/store-results.log; mkfifo $LOG_DIR/learner-1/store-results.log; touch \"$RESULT_DIR/$(printf 'a\\377')\"",
              extra, NULL);
    alarm(0);
    assert_non_null(world_line(w, "left out: "));
    assert_true(world_end(w)->has_exit_code && world_end(w)->exit_code == 0);
    pst_buf_done(&b.put);
    free(extra);
    s3_server_stop(&server);
}

/* The supervisor was killed when the end was on disk, and the next cannot go on: that is no success either. */
static void test_stores_an_end_whose_results_nobody_can_put_is_no_success(void **state)
{
    world *w = *state;
    pst_err why = {0}, err = {0};
    pst_rundir_exit x = {.has_exit_code = true};
    char *dir = pst_fs_join(w->dir, "missed");
    pst_rundir_spec spec = {
        .manifest = (char *)"name: n\nframework: {name: custom, version: 1, command: x}\ndata_stores: [{id: s, type: s3_datastore, "
                            "training_data: {container: b}, training_results: {container: o}, connection: {auth_url: \"http://h\", "
                            "user_name: u, password: p}}]\n"};
    pst_err_set(&why, PST_EIO, PST_CLASS_RETRY, "objects", 0, "no room in /x");
    assert_int_equal(pst_fs_mkdirs(dir, 0700, &err), 0);
    assert_int_equal(pst_rundir_exit_write(dir, &x, &err), 0);
    assert_int_equal(sup_results_missed(dir, &spec, &why, &err), 0);
    assert_int_equal(pst_rundir_exit_read(dir, &x, &err), 0);
    assert_string_equal(x.reason_code, "S303");
    assert_false(x.has_exit_code);
    assert_non_null(strstr(x.reason, "no room in /x"));
    x = (pst_rundir_exit){.has_exit_code = true};
    spec.manifest = (char *)"name: n\nframework: {name: custom, version: 1, command: x}\n"; /* nothing was to be put */
    assert_int_equal(pst_rundir_exit_write(dir, &x, &err), 0);
    assert_int_equal(sup_results_missed(dir, &spec, &why, &err), 0);
    assert_int_equal(pst_rundir_exit_read(dir, &x, &err), 0);
    assert_true(x.has_exit_code && !*x.reason_code);
    free(dir);
}

/* The operator's list is asked before the server is. */
static void test_stores_a_server_that_the_node_does_not_allow_is_not_asked(void **state)
{
    world *w = *state;
    bucket b = {.n = 0};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "training_results: {container: Out_1}, ");
    w->spec.stores = (char *)"*.example.org,127.0.0.2";
    world_run(w, "echo ran", extra, NULL);
    assert_string_equal(world_end(w)->reason_code, "C103");
    assert_non_null(strstr(world_end(w)->reason, "--stores"));
    assert_null(world_line(w, "ran"));
    assert_int_equal(server.requests, 0);
    w->spec.stores = NULL;
    free(extra);
    s3_server_stop(&server);
}

static void test_stores_data_that_are_refused_end_the_run_with_ffdl_code(void **state)
{
    world *w = *state;
    bucket b = {.n = 0};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "");
    s3_server_stop(&server); /* nobody listens */
    w->store_patience_ms = 500;
    world_run(w, "echo ran", extra, NULL);
    assert_string_equal(world_end(w)->reason_code, "S302");
    assert_null(world_line(w, "ran"));
    check_no_secret(w);
    free(extra);
}

/* A store of the same id has put a link to a folder of the host there: its mode is none of ours to change. */
static void test_stores_of_one_id_open_no_folder_of_the_host(void **state)
{
    world *w = *state;
    bucket b = {.keys = (const char *const[]){"good.csv"}, .n = 1};
    s3_server server;
    struct stat st;
    s3_server_start(&server, serve, &b);
    char *closed = pst_fs_join(w->dir, "closed");
    assert_int_equal(mkdir(closed, 0700), 0);
    char *extra =
        pst_sprintf("%s  - {id: s, type: mount, connection: {path: %s}, training_data: {container: .}}\n"
                    "  - {id: s, type: mount_cos, training_data: {container: in_Data}, connection: {auth_url: \"%s\", user_name: u, "
                    "password: " SECRET "}}\n",
                    "data_stores:\n", closed, server.url);
    world_run(w, "true", extra, NULL);
    assert_non_null(strstr(world_end(w)->reason, "an id of its own"));
    assert_int_equal(stat(closed, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    s3_server_stop(&server);
    pst_buf_done(&b.put);
    free(extra);

    free(closed);
}

/* JOB_DIR is shared: a neighbour of the gang may have put a link where this process's logs go, before this one runs. */
static void test_stores_logs_are_not_written_through_a_neighbours_link(void **state)
{
    world *w = *state;
    char *gen = pst_rundir_gen_dir(w->dir, "training-unit", 1), *logs = pst_fs_join(gen, "job/logs"), *own = pst_fs_join(logs, "learner-1");
    char *outside = pst_fs_join(w->dir, "outside"), *tee = pst_fs_join(outside, "training-log.txt");
    assert_int_equal(pst_fs_mkdirs(logs, 0700, NULL), 0);
    assert_int_equal(mkdir(outside, 0700), 0);
    assert_int_equal(symlink(outside, own), 0);
    world_run(w, "echo hello", "", NULL);
    assert_true(world_end(w)->has_exit_code && world_end(w)->exit_code == 0);
    assert_non_null(world_line(w, "hello"));
    assert_false(pst_fs_exists(tee));
    free(tee);
    free(outside);
    free(own);
    free(logs);
    free(gen);
}

/* A fetch of checkpoints that broke off leaves a part of them: it is neither put over the whole, nor taken for it by the next generation. */
static void test_stores_a_part_of_the_checkpoints_is_not_put_over_the_whole(void **state)
{
    world *w = *state;
    static const char *const keys[] = {"training-unit/_wml_checkpoints/a", "training-unit/_wml_checkpoints/b"};
    bucket b = {.keys = keys, .n = 2, .cut = "/_wml_checkpoints/b"};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "training_results: {container: Out_1}, ");
    char *dir = pst_sprintf("%s/jobs/training-unit/checkpoints", w->dir), *mark = pst_fs_join(dir, ".penstock-fetching");
    w->spec.generation = 2;
    world_run(w, "true", extra, NULL);
    assert_non_null(strstr(world_end(w)->reason, "cannot load the checkpoints"));
    assert_true(pst_fs_exists(mark));
    assert_null(strstr(b.put.data ? b.put.data : "", "_wml_checkpoints"));
    assert_non_null(world_line(w, "checkpoints are not stored"));
    world_again(w);
    b.cut = NULL; /* the next one throws the part away and fetches all */
    world_run(w, "cd $CHECKPOINT_DIR; for f in *; do echo have $f; done", extra, NULL);
    assert_true(world_end(w)->has_exit_code && world_end(w)->exit_code == 0);
    assert_non_null(world_line(w, "have a"));
    assert_non_null(world_line(w, "have b"));
    assert_false(pst_fs_exists(mark));
    s3_server_stop(&server);
    pst_buf_done(&b.put);
    free(mark);
    free(dir);
    free(extra);
}

/* Over several nodes each has a copy of the checkpoints that the first process writes on another: put last it would undo them. */
static void test_stores_a_copy_is_not_put_over_what_another_node_writes(void **state)
{
    world *w = *state;
    bucket b = {0};
    s3_server server;
    s3_server_start(&server, serve, &b);
    char *extra = store_of(&server, "training_results: {container: Out_1}, ");
    char *dir = pst_sprintf("%s/jobs/training-unit/checkpoints", w->dir), *copy = pst_fs_join(dir, "copy");
    assert_int_equal(pst_fs_mkdirs(dir, 0700, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(copy, "5", 1, 0600, NULL), 0);
    w->spec.address = (char *)"127.0.0.1";
    w->spec.n_sets = 1;
    w->spec.sets[0] = (pst_process_set){.prefix = "learner", .first = 1, .count = 1, .rank = 1}; /* rank 0 is elsewhere */
    world_run(w, "echo 6 >$CHECKPOINT_DIR/own", extra, NULL);
    assert_true(world_end(w)->has_exit_code && world_end(w)->exit_code == 0);
    assert_non_null(strstr(b.put.data, "_wml_checkpoints/own"));
    assert_null(strstr(b.put.data, "_wml_checkpoints/copy"));
    world_again(w);
    w->spec.sets[0].rank = 0;
    world_run(w, "true", extra, NULL);
    assert_non_null(strstr(b.put.data, "_wml_checkpoints/copy"));
    w->spec.address = NULL;
    s3_server_stop(&server);
    pst_buf_done(&b.put);
    free(copy);
    free(dir);
    free(extra);
}

int main(void)
{
    pst_stop_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stores_hostile_keys_leave_no_file_outside, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_results_have_ffdl_names_whatever_the_end, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_results_that_cannot_be_put_stay_and_are_named, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_results_that_are_not_all_stored_are_no_success, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_a_fifo_in_a_logs_place_holds_nobody_up, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_an_end_whose_results_nobody_can_put_is_no_success, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_a_server_that_the_node_does_not_allow_is_not_asked, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_data_that_are_refused_end_the_run_with_ffdl_code, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_of_one_id_open_no_folder_of_the_host, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_logs_are_not_written_through_a_neighbours_link, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_a_part_of_the_checkpoints_is_not_put_over_the_whole, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_stores_a_copy_is_not_put_over_what_another_node_writes, world_setup, world_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
