/* Whole trainings of several ranks, each a process, from CSV files: the same weights from run to run, after SIGKILL of any rank at any time, after a halt; what
 * ranks are told of each other's end; other numbers of ranks. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/stop.h"
#include "trainer/learner/checkpoint.h"
#include "trainer/learner/learner.h"
#include "trainer/learner/random.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { WORLD_MAX = 6, STOPPED = 10, SECONDS_MAX = 240 };
static char root[64];

static int make_root(void **state)
{
    snprintf(root, sizeof root, "/tmp/learner-gang-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
    return pst_fs_remove_tree(root, NULL);
}

/* Two files; some values missing; the last rows in a range of their own, so that every rank's statistics differ. */
static void write_csv(int rows)
{
    pst_buf b[2] = {{0}};
    learn_rng r;
    learn_rng_seed(&r, 8, 8);
    for (int f = 0; f < 2; f++)
        pst_buf_adds(&b[f], "load,pressure,ratio,state,kind\n");
    for (int i = 0; i < rows; i++) {
        double x = learn_rng_normal(&r) + (i > rows - 50 ? 3 : 0), y = learn_rng_normal(&r);
        char load[32] = "";
        if (i % 17)
            snprintf(load, sizeof load, "%.6f", 50 + 10 * x);
        pst_buf_printf(&b[i > rows / 3], "%s,%.3f,%.9f,%s,kind-%d\n", load, 101325 + 30 * y, 0.001 * (x + y), x > y ? "high" : "low",
                       i % 7 + (i % 3) * 7);
    }
    for (int f = 0; f < 2; f++) {
        char *dir = pst_fs_join(root, "data"), *path = pst_sprintf("%s/%c.csv", dir, 'a' + f);
        assert_int_equal(pst_fs_mkdirs(dir, 0755, NULL), 0);
        assert_int_equal(pst_fs_write_atomic(path, b[f].data, b[f].len, 0644, NULL), 0);
        free(dir);
        free(path);
        pst_buf_done(&b[f]);
    }
}

/* ---- a gang -------------------------------------------------------------------------------------------------------------------- */

typedef struct gang {
    int world, servers, generation;
    const char *settings, *name;
    learn_place at[WORLD_MAX];
    pid_t pid[WORLD_MAX];
    int status[WORLD_MAX]; /* exit status; −signal */
} gang;

static int child(const gang *g, int rank)
{
    char *text = pst_sprintf("name: job\ndata_stores: [{id: d, type: mount, connection: {path: /data}}]\nlearners: %d\n"
                             "framework: {name: native}\npenstock:\n  model: {name: m}\n  roles: {ps: %d}\n  learner: %s\n",
                             g->world, g->servers, g->settings);
    char *data = pst_fs_join(root, "data"), *to = pst_fs_join(root, g->name), *checkpoints = pst_fs_join(to, "ckpt");
    char *log = pst_sprintf("%s/%s-%d.log", root, g->name, rank);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    pst_stop_reset();
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_err err = {0};
    learn_ring_opts o = {.rank = rank,
                         .world = g->world,
                         .servers = g->servers,
                         .at = g->at,
                         .training_id = "training-t",
                         .generation = g->generation,
                         .secret = "s"};
    learn_job job = {.manifest = &m,
                     .training_id = "training-t",
                     .generation = g->generation,
                     .data_dir = data,
                     .result_dir = to,
                     .checkpoint_dir = checkpoints,
                     .gang = g->world + g->servers > 1 ? &o : NULL};
    if (pst_manifest_parse(text, strlen(text), &m, &errors, &warnings) < 0) {
        printf("%s: %s\n", errors.at[0].field, errors.at[0].text);
        return 2;
    }
    int rc = learn_train(&job, &err);
    if (rc < 0)
        printf("%d: %s\n", rc, err.text);
    fflush(stdout);
    return rc == 0                                                     ? 0
           : rc == PST_ESTOPPED                                        ? STOPPED
           : err.cls == PST_CLASS_RETRY && !strcmp(err.origin, "ring") ? LEARN_STATUS_PEER_LOST
                                                                       : 1;
}

static void new_ports(gang *g)
{
    int fd[WORLD_MAX];
    for (int i = 0; i < g->world + g->servers; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof at;
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(bind(fd[i], (struct sockaddr *)&at, len) == 0 && getsockname(fd[i], (struct sockaddr *)&at, &len) == 0);
        snprintf(g->at[i].address, sizeof g->at[i].address, "127.0.0.1");
        g->at[i].port = ntohs(at.sin_port);
    }
    for (int i = 0; i < g->world + g->servers; i++)
        close(fd[i]);
}

static void begin(gang *g)
{
    g->generation++;
    new_ports(g);
    for (int k = 0; k < g->world + g->servers; k++) {
        g->pid[k] = fork();
        assert_true(g->pid[k] >= 0);
        if (!g->pid[k])
            _exit(child(g, k));
        g->status[k] = -1000;
    }
}

static void signal_all(gang *g, int sig)
{
    for (int k = 0; k < g->world + g->servers; k++)
        if (g->status[k] == -1000)
            kill(g->pid[k], sig);
}

/* Waits for those that have not ended; false: somebody never does. */
static bool end(gang *g)
{
    int64_t until = pst_mono_us() + SECONDS_MAX * INT64_C(1000000);
    for (bool all = false; !all && pst_mono_us() < until;) {
        all = true;
        for (int k = 0; k < g->world + g->servers; k++) {
            int status;
            if (g->status[k] == -1000 && waitpid(g->pid[k], &status, WNOHANG) == g->pid[k])
                g->status[k] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            all &= g->status[k] != -1000;
        }
        if (!all)
            pst_sleep_ms(5);
        else
            return true;
    }
    signal_all(g, SIGKILL);
    return false;
}

static char *log_of(const gang *g, int rank)
{
    char *path = pst_sprintf("%s/%s-%d.log", root, g->name, rank);
    pst_buf b = {0};
    pst_fs_read(path, 1 << 20, &b, NULL);
    free(path);
    return pst_buf_steal(&b);
}

/* Until rank 0 has said it so many times. */
static void wait_for(const gang *g, const char *text, int times)
{
    for (int64_t until = pst_mono_us() + SECONDS_MAX * INT64_C(1000000); pst_mono_us() < until; pst_sleep_ms(5)) {
        char *said = log_of(g, 0);
        int n = 0;
        for (const char *at = said; (at = strstr(at, text)); at++)
            n++;
        free(said);
        if (n >= times)
            return;
    }
    fail_msg("%s: rank 0 never says \"%s\" %d times:\n%s", g->name, text, times, log_of(g, 0));
}

static void must_be(gang *g, int status)
{
    bool over = end(g);
    for (int k = 0; k < g->world + g->servers; k++)
        if (!over || g->status[k] != status)
            fail_msg("%s: rank %d of generation %d ended with %d, not %d:\n%s", g->name, k, g->generation, g->status[k], status,
                     log_of(g, k));
}

/* What it comes to: parameters and both moments, byte for byte. */
static void read_weights(const gang *g, learn_checkpoint *ret)
{
    char *to = pst_fs_join(root, g->name), *dir = pst_fs_join(to, "ckpt");
    assert_int_equal(learn_checkpoint_read_last(dir, ret, NULL, NULL), 1);
    assert_true(ret->progress.finished);
    free(dir);
    free(to);
}

static void must_be_same(const gang *a, const gang *b)
{
    learn_checkpoint x, y;
    read_weights(a, &x);
    read_weights(b, &y);
    assert_int_equal(x.n_params, y.n_params);
    assert_int_equal(x.steps, y.steps);
    assert_memory_equal(x.values, y.values, x.n_params * sizeof *x.values);
    assert_memory_equal(x.m, y.m, x.n_params * sizeof *x.m);
    assert_memory_equal(x.v, y.v, x.n_params * sizeof *x.v);
    assert_memory_equal(&x.progress.validation_loss, &y.progress.validation_loss, sizeof(double));
    learn_checkpoint_done(&x);
    learn_checkpoint_done(&y);
}

static const char classes[] =
    "{target: state, classes: [low, high], hidden: [24, 24], epochs: 30, batch: 8, learning_rate: 0.005, seed: 5, validation: 0.2}";

static void test_the_same_weights_from_run_to_run(void **state)
{
    gang a = {.world = 3, .settings = classes, .name = "a"}, b = a, one = {.world = 1, .settings = classes, .name = "one"};
    b.name = "b";
    write_csv(700);
    begin(&a);
    must_be(&a, 0);
    begin(&b);
    must_be(&b, 0);
    must_be_same(&a, &b);
    begin(&one);
    must_be(&one, 0);
    learn_checkpoint x, y;
    read_weights(&a, &x);
    read_weights(&one, &y);
    assert_int_equal(x.world, 3);
    assert_int_equal(x.data_rows, 700);
    assert_int_equal(x.data_rows, y.data_rows);
    assert_true(fabs(x.progress.validation_loss - y.progress.validation_loss) < 0.1); /* it learns as well, not the same */
    assert_true(x.progress.validation_accuracy > 0.9 && y.progress.validation_accuracy > 0.9);
    for (int i = 0; i < x.stats.columns; i++) /* of all records but the held-out, which differ */
        assert_true(fabsf(x.stats.mean[i] - y.stats.mean[i]) < 0.2f * y.stats.std[i] && fabsf(x.stats.std[i] / y.stats.std[i] - 1) < 0.2f);
    char *model = pst_sprintf("%s/a/model/model.onnx", root), *said = log_of(&a, 1);
    assert_int_equal(access(model, R_OK), 0);
    assert_null(strstr(said, "\"penstock\":\"metrics\"")); /* rank 0 alone speaks for all */
    free(said);
    said = log_of(&a, 0);
    const char *table = strstr(said, "\"group\":\"confusion\"");
    assert_non_null(table);
    int n[4], sum = 0;
    static const char *const keys[] = {"\"low/low\":", "\"low/high\":", "\"high/low\":", "\"high/high\":"};
    for (int i = 0; i < 4; i++) {
        const char *at = strstr(table, keys[i]);
        assert_non_null(at);
        n[i] = atoi(at + strlen(keys[i]));
        sum += n[i];
    }
    assert_int_equal(sum, 141);                                                       /* a fifth of 234, 233 and 233, each rounded */
    assert_true(fabs((n[0] + n[3]) / 141.0 - x.progress.validation_accuracy) < 1e-9); /* the table is of what the accuracy is of */
    assert_true(x.progress.validation_auc > 0.95 && x.progress.validation_auc <= 1);
    free(said);
    free(model);
    learn_checkpoint_done(&x);
    learn_checkpoint_done(&y);
}

/* Each rank sees words that no other has (rows go to ranks by their number): all take the same ones, those that one learner alone takes. */
static void test_words_are_learnt_by_all_ranks_together(void **state)
{
    static const char settings[] =
        "{features: [load, {field: kind, one_hot: learn, words_max: 9}], target: state, classes: [low, high], epochs: 2}";
    gang three = {.world = 3, .settings = settings, .name = "three"}, one = {.world = 1, .settings = settings, .name = "alone"};
    learn_checkpoint x, y;
    write_csv(700);
    begin(&three);
    must_be(&three, 0);
    begin(&one);
    must_be(&one, 0);
    read_weights(&three, &x);
    read_weights(&one, &y);
    assert_int_equal(x.stats.columns, 10);
    assert_int_equal(x.words[1].n, 9);
    assert_true(x.words[1].learnt && !x.words[0].n);
    for (int i = 0; i < 9; i++)
        assert_string_equal(x.words[1].at[i], y.words[1].at[i]);
    learn_checkpoint_done(&x);
    learn_checkpoint_done(&y);
}

static bool all_done(const gang *g)
{
    bool all = true;
    for (int k = 0; k < g->world + g->servers; k++)
        all = all && g->status[k] == 0;
    return all;
}

static void kill_any(int world, int servers)
{
    gang whole = {.world = world, .servers = servers, .settings = classes, .name = "whole"}, cut = whole;
    unsigned seed = (unsigned)pst_now_us();
    int kills = 0, n = world + servers;
    cut.name = "cut";
    write_csv(700);
    begin(&whole);
    int64_t began = pst_mono_us();
    must_be(&whole, 0);
    int64_t took_ms = (pst_mono_us() - began) / 1000;
    print_message("seed %u\n", seed);
    for (bool over = false; !over && cut.generation < 40;) {
        begin(&cut);
        int victim = (int)(rand_r(&seed) % (unsigned)n);
        if (cut.generation == 1)
            wait_for(&cut, "all are there", 1);
        else
            pst_sleep_ms(
                (int)((int64_t)(rand_r(&seed) % 100) * took_ms / 120)); /* while they meet, read, train; also after the end, now and then */
        kill(cut.pid[victim], SIGKILL);
        pst_sleep_ms(50);
        signal_all(&cut, SIGTERM); /* as the platform does, when one has failed */
        assert_true(end(&cut));
        kills += cut.status[victim] == -SIGKILL;
        over = all_done(&cut);
        for (int k = 0; k < n; k++)
            if (k != victim && cut.status[k] != 0 && cut.status[k] != STOPPED)
                fail_msg("rank %d, when %d was killed, ended with %d:\n%s", k, victim, cut.status[k], log_of(&cut, k));
        if (!over && cut.generation >= 5) { /* enough of that */
            begin(&cut);
            must_be(&cut, 0);
            over = true;
        }
    }
    assert_true(kills > 0);
    must_be_same(&whole, &cut);
}

static void test_any_rank_killed_at_any_time(void **state)
{
    kill_any(3, 0);
}

static void test_any_worker_or_server_killed_at_any_time(void **state)
{
    kill_any(3, 2);
}

static void test_parameter_servers_give_the_same_weights_from_run_to_run(void **state)
{
    gang a = {.world = 3, .servers = 2, .settings = classes, .name = "a"}, b = a, ring = {.world = 3, .settings = classes, .name = "ring"};
    b.name = "b";
    write_csv(700);
    begin(&a);
    must_be(&a, 0);
    begin(&b);
    must_be(&b, 0);
    must_be_same(&a, &b);
    begin(&ring);
    must_be(&ring, 0);
    learn_checkpoint x, y;
    read_weights(&a, &x);
    read_weights(&ring, &y);
    assert_int_equal(x.steps, y.steps);
    for (size_t i = 0; i < x.n_params; i++) /* the same sums in another order */
        assert_true(fabsf(x.values[i] - y.values[i]) < 0.02f);
    learn_checkpoint_done(&x);
    learn_checkpoint_done(&y);
    gang one = {.world = 1, .servers = 1, .settings = classes, .name = "one"}, alone = {.world = 1, .settings = classes, .name = "alone"};
    begin(&one);
    must_be(&one, 0);
    begin(&alone);
    must_be(&alone, 0);
}

/* The best epoch's values are the model, also where servers hold those of the last. */
static void test_patience_with_servers(void **state)
{
    gang g = {.world = 2,
              .servers = 1,
              .name = "best",
              .settings = "{target: state, classes: [low, high], hidden: [24], epochs: 400, batch: 8, learning_rate: 0.05, patience: 4, "
                          "validation: 0.3}"};
    write_csv(300);
    begin(&g);
    must_be(&g, 0);
    learn_checkpoint c;
    read_weights(&g, &c);
    assert_non_null(c.best);
    assert_true(c.progress.epoch > c.progress.best_epoch);
    assert_memory_equal(c.values, c.best, c.n_params * sizeof *c.values);
    learn_checkpoint_done(&c);
}

static void test_staleness(void **state)
{
    gang g = {.world = 3,
              .servers = 2,
              .name = "stale",
              .settings = "{target: state, classes: [low, high], hidden: [24, 24], epochs: 30, batch: 8, learning_rate: 0.005, seed: 5, "
                          "validation: 0.2, staleness: 3}"};
    write_csv(700);
    begin(&g);
    wait_for(&g, "epoch 2/", 1);
    signal_all(&g, SIGTERM); /* all stop after the same minibatch, though they are at different ones; then rank 0 ends the servers */
    assert_true(end(&g));
    for (int k = 0; k < 5; k++)
        assert_int_equal(g.status[k], k < 3 ? STOPPED : 0);
    begin(&g);
    must_be(&g, 0);
    learn_checkpoint c;
    read_weights(&g, &c);
    assert_true(c.progress.validation_accuracy > 0.9);
    assert_true(c.progress.epoch == 30 && c.progress.train_accuracy > 0.9 && c.progress.train_accuracy <= 1);
    learn_checkpoint_done(&c);
}

static void test_a_server_that_is_gone(void **state)
{
    gang g = {.world = 2, .servers = 2, .settings = "{target: state, classes: [low, high], epochs: 100000}", .name = "gone"};
    write_csv(700);
    begin(&g);
    wait_for(&g, "epoch 3/", 1);
    kill(g.pid[3], SIGKILL);
    assert_true(end(&g));
    assert_int_equal(g.status[3], -SIGKILL);
    for (int k = 0; k < 3; k++)
        assert_int_equal(g.status[k], LEARN_STATUS_PEER_LOST);
    char *said = log_of(&g, 1);
    assert_non_null(strstr(said, "parameter server 1 (127.0.0.1 port "));
    free(said);
}

static void test_a_worker_that_is_silent_is_named_by_the_servers(void **state)
{
    gang g = {
        .world = 2, .servers = 1, .settings = "{target: state, classes: [low, high], epochs: 100000, peer_timeout: 5}", .name = "silent"};
    write_csv(700);
    begin(&g);
    wait_for(&g, "epoch 3/", 1);
    kill(g.pid[1], SIGSTOP);
    pst_sleep_ms(7000);
    char *said = log_of(&g, 2);
    kill(g.pid[1], SIGKILL);
    assert_true(end(&g));
    assert_non_null(strstr(said, "rank 1 (127.0.0.1 port "));
    free(said);
    assert_int_equal(g.status[0], LEARN_STATUS_PEER_LOST);
    assert_int_equal(g.status[2], LEARN_STATUS_PEER_LOST);
}

static void test_a_rank_that_is_gone_ends_the_others_with_a_status_to_retry(void **state)
{
    gang g = {.world = 3, .settings = "{target: state, classes: [low, high], epochs: 100000}", .name = "gone"};
    write_csv(700);
    begin(&g);
    wait_for(&g, "epoch 3/", 1);
    kill(g.pid[1], SIGKILL);
    assert_true(end(&g));
    assert_int_equal(g.status[1], -SIGKILL);
    assert_int_equal(g.status[0], LEARN_STATUS_PEER_LOST);
    assert_int_equal(g.status[2], LEARN_STATUS_PEER_LOST);
    char *said = log_of(&g, 2);
    assert_non_null(strstr(said, "rank 1 (127.0.0.1 port "));
    free(said);
}

static void test_halted_and_resumed_also_by_other_numbers(void **state)
{
    static const char long_one[] = "{hidden: [8, 4, 8], epochs: 60, batch: 4, features: [load, pressure, ratio], activation: elu}";
    gang whole = {.world = 2, .settings = long_one, .name = "whole2"}, parts = {.world = 2, .settings = long_one, .name = "parts"};
    int stops = 0;
    write_csv(900);
    begin(&whole);
    int64_t began = pst_mono_us();
    must_be(&whole, 0);
    int took_ms = (int)((pst_mono_us() - began) / 1000);
    for (int i = 0; i < 3; i++) {
        begin(&parts);
        wait_for(&parts, "all are there", i + 1);
        pst_sleep_ms(i * took_ms / 10);
        signal_all(&parts, SIGTERM);
        assert_true(end(&parts));
        assert_int_equal(parts.status[0], parts.status[1]); /* they stop after the same step */
        assert_true(parts.status[0] == STOPPED || parts.status[0] == 0);
        stops += parts.status[0] == STOPPED;
    }
    begin(&parts);
    must_be(&parts, 0);
    assert_true(stops > 0);
    must_be_same(&whole, &parts);

    gang mixed = {.world = 2, .settings = long_one, .name = "mixed"};
    begin(&mixed);
    wait_for(&mixed, "epoch 3/", 1);
    signal_all(&mixed, SIGTERM);
    must_be(&mixed, STOPPED);
    mixed.world = 3;
    begin(&mixed);
    wait_for(&mixed, "anew among 3", 1);
    signal_all(&mixed, SIGTERM);
    must_be(&mixed, STOPPED);
    char *said = log_of(&mixed, 0);
    assert_non_null(strstr(said, "were shared out among 2, and are shared out anew among 3"));
    free(said);
    mixed.world = 1;
    begin(&mixed);
    must_be(&mixed, 0);
    learn_checkpoint c;
    read_weights(&mixed, &c);
    assert_int_equal(c.progress.epoch, 60);
    assert_int_equal(c.world, 1);
    learn_checkpoint_done(&c);
}

static void test_minibatches_smaller_than_the_gang(void **state)
{
    gang g = {.world = 4, .settings = "{hidden: [3], epochs: 3, batch: 1, features: [load, pressure]}", .name = "small"};
    write_csv(90);
    begin(&g);
    must_be(&g, 0);
}

static void test_too_few_records_are_said(void **state)
{
    gang g = {.world = 4, .settings = classes, .name = "few"};
    write_csv(7);
    begin(&g);
    pst_sleep_ms(500);
    assert_true(end(&g));
    char *said = log_of(&g, 3);
    if (g.status[3] != 1 || !strstr(said, "as the share of rank 3 of 4"))
        fail_msg("%d: %s", g.status[3], said);
    free(said);
}

int main(void)
{
    pst_stop_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_same_weights_from_run_to_run, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_words_are_learnt_by_all_ranks_together, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_any_rank_killed_at_any_time, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_any_worker_or_server_killed_at_any_time, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_parameter_servers_give_the_same_weights_from_run_to_run, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_patience_with_servers, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_staleness, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_a_server_that_is_gone, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_a_worker_that_is_silent_is_named_by_the_servers, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_a_rank_that_is_gone_ends_the_others_with_a_status_to_retry, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_halted_and_resumed_also_by_other_numbers, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_minibatches_smaller_than_the_gang, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_too_few_records_are_said, make_root, drop_root),
    };
    if (getenv("ONLY"))
        cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
