/* test_supervisor_status.c - what a supervisor tells about itself: in every phase, while its learner runs, while the broker is away, and at SIGUSR1
 * although its main thread does not come by. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "lcm/supervisor/status.h"

#include "supervisor_world.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static json_t *told(sup_status *s)
{
    json_t *j = json_object();
    sup_status_fill(s, j);
    return j;
}

static sup_status *opened(world *w)
{
    sup_status *s = NULL;
    pst_err err = {0};
    w->spec.node = (char *)"node-1";
    if (sup_status_open(&w->spec, w->run_dir, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void test_status_names_the_run_its_phase_and_what_it_waits_for(void **state)
{
    world *w = *state;
    static const char *const phases[] = {"STARTING", "DOWNLOADING", "MEETING", "RUNNING", "STORING", "PUBLISHING"};
    static const char *const waits[] = {"settings", "code and data", "the addresses", "the command to be started", "the model", "results"};
    sup_status *s = opened(w);
    for (int phase = 0; phase < 6; phase++) {
        if (phase)
            sup_status_phase(s, (sup_phase)phase);
        json_t *j = told(s);
        assert_string_equal(pst_json_str(j, "training_id", ""), "training-unit");
        assert_int_equal(pst_json_int(j, "generation", 0), 1);
        assert_string_equal(pst_json_str(j, "process", ""), "learner-1");
        assert_string_equal(pst_json_str(j, "node", ""), "node-1");
        assert_string_equal(pst_json_str(j, "run_dir", ""), w->run_dir);
        assert_string_equal(pst_json_str(j, "phase", ""), phases[phase]);
        assert_true(pst_json_num(j, "phase_seconds", -1) >= 0);
        assert_memory_equal(pst_json_str(j, "waits_for", ""), waits[phase], strlen(waits[phase]));
        assert_null(json_object_get(j, "trouble")); /* the last phase's is over */
        json_decref(j);
        pst_err why = {0};
        pst_err_set(&why, PST_EAGAIN, PST_CLASS_RETRY, "http", 0, "nobody at home");
        sup_status_trouble(s, &why);
        j = told(s);
        assert_string_equal(pst_json_str(j, "trouble", ""), "nobody at home");
        assert_true(pst_json_num(j, "trouble_seconds_ago", -1) >= 0);
        json_decref(j);
    }
    sup_status_close(s);
}

static atomic_bool away;

static int refusing(void *arg, pst_outlet_kind kind, const char *key, const void *body, size_t len, void *token, pst_err *err)
{
    if (away)
        return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "kafka", 0, "the broker is away");
    *(void **)arg = token;
    return 0;
}

static void taking(void *arg, int timeout_ms, sup_outlet_done done, void *done_arg)
{
    void **token = arg;
    if (*token)
        done(done_arg, *token, 0);
    *token = NULL;
}

static void forgets(void *arg)
{
}

/* What is queued, and why it stays there; once the broker is back there is no trouble any more. */
static void test_status_tells_what_is_queued_and_the_brokers_trouble(void **state)
{
    world *w = *state;
    sup_status *s = opened(w);
    void *token = NULL;
    away = true;
    sup_outlet *o = world_outlet_to(w, (sup_sink){.arg = &token, .send = refusing, .pump = taking, .reset = forgets});
    sup_status_outlet(s, o);
    sup_outlet_begin(o);
    sup_outlet_log(o, PST_LOG_STREAM_STDOUT, 1, "one", 3);
    json_t *j, *out;
    for (;; json_decref(j), pst_sleep_ms(5)) {
        j = told(s);
        out = json_object_get(j, "outlet");
        if (json_object_get(out, "trouble"))
            break;
    }
    assert_string_equal(pst_json_str(out, "trouble", ""), "the broker is away");
    assert_true(pst_json_num(out, "trouble_seconds_ago", -1) >= 0);
    assert_int_equal(pst_json_int(out, "waiting", -1) + pst_json_int(out, "in_flight", -1), 1);
    assert_true(pst_json_int(out, "waiting_bytes", -1) + pst_json_int(out, "in_flight_bytes", -1) > 3);
    assert_int_equal(pst_json_int(out, "acknowledged", -1), 0);
    assert_null(json_object_get(out, "acknowledged_seconds_ago"));
    json_decref(j);
    away = false;
    assert_int_equal(sup_outlet_flush(o, NULL, NULL), 0);
    j = told(s);
    out = json_object_get(j, "outlet");
    assert_null(json_object_get(out, "trouble"));
    assert_int_equal(pst_json_int(out, "acknowledged", -1), 1);
    assert_int_equal(pst_json_int(out, "waiting", -1) + pst_json_int(out, "in_flight", -1), 0);
    assert_true(pst_json_num(out, "acknowledged_seconds_ago", -1) >= 0);
    json_decref(j);
    sup_status_outlet(s, NULL);
    sup_outlet_close(o);
    j = told(s);
    assert_null(json_object_get(j, "outlet"));
    json_decref(j);
    sup_status_close(s);
}

typedef struct looker {
    world *w;
    char *go; /* the learner ends once this is there */
    json_t *seen;
} looker;

static void *look(void *arg)
{
    looker *k = arg;
    for (;; json_decref(k->seen), pst_sleep_ms(5)) {
        k->seen = told(k->w->status);
        if (pst_json_int(json_object_get(k->seen, "learner"), "lines", 0) >= 3)
            break;
    }
    fclose(fopen(k->go, "w"));
    return NULL;
}

static void test_status_of_a_run_counts_what_the_learner_says(void **state)
{
    world *w = *state;
    looker k = {.w = w, .go = pst_fs_join(w->dir, "jobs/training-unit/checkpoints/go")};
    pthread_t t;
    w->status = opened(w);
    assert_int_equal(pthread_create(&t, NULL, look, &k), 0);
    world_run(w,
              "echo hello; echo trouble >&2; echo '{\"penstock\":\"metrics\",\"step\":1,\"loss\":0.5}'; "
              "until test -e $CHECKPOINT_DIR/go; do sleep 0.02; done",
              NULL, NULL);
    pthread_join(t, NULL);
    json_t *l = json_object_get(k.seen, "learner");
    assert_string_equal(pst_json_str(k.seen, "phase", ""), "RUNNING");
    assert_string_equal(pst_json_str(k.seen, "waits_for", ""), "the command to end, or to be stopped");
    assert_true(pst_json_int(l, "pid", 0) > 1 && pst_json_int(l, "pid", 0) != getpid());
    assert_int_equal(pst_json_int(l, "lines", 0), 3);
    assert_int_equal(pst_json_int(l, "points", 0), 1);
    assert_int_equal(pst_json_int(l, "left_out", -1), 0);
    assert_true(pst_json_int(l, "bytes", 0) > 6 + 8);
    assert_false(pst_json_bool(l, "stopping", true) || pst_json_bool(l, "leader_gone", true) || pst_json_bool(l, "held", true));
    json_t *after = told(w->status);
    assert_string_equal(pst_json_str(after, "phase", ""), "PUBLISHING");
    assert_true(pst_json_bool(json_object_get(after, "learner"), "leader_gone", false));
    json_decref(after);
    json_decref(k.seen);
    sup_status_close(w->status);
    free(k.go);
}

/* Nobody comes by here: the main thread of this test only waits. */
static void test_status_is_in_the_log_after_sigusr1(void **state)
{
    world *w = *state;
    char path[] = "/tmp/pst-status-XXXXXX", text[8192] = "";
    int fd = mkstemp(path), kept = dup(2);
    assert_true(fd >= 0 && kept >= 0);
    pst_log_set_level(PST_LOG_INFO);
    dup2(fd, 2);
    sup_status *s = opened(w);
    kill(getpid(), SIGUSR1);
    while (!strstr(text, "}\n")) {
        pst_sleep_ms(5);
        ssize_t n = pread(fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
    }
    sup_status_close(s);
    dup2(kept, 2);
    close(fd);
    close(kept);
    unlink(path);
    const char *line = strstr(text, " supervisor event=state at=/ json={");
    assert_non_null(line);
    json_t *j = json_loads(strchr(line, '{'), JSON_DISABLE_EOF_CHECK, NULL);
    assert_string_equal(pst_json_str(j, "component", ""), "supervisor");
    assert_int_equal(pst_json_int(j, "pid", 0), getpid());
    assert_string_equal(pst_json_str(j, "training_id", ""), "training-unit");
    json_decref(j);
}

#define RUN(t) cmocka_unit_test_setup_teardown(t, world_setup, world_teardown)

int main(void)
{
    umask(077); /* as main.c does */
    alarm(120); /* a wait here has no other end */
    const struct CMUnitTest tests[] = {
        RUN(test_status_names_the_run_its_phase_and_what_it_waits_for),
        RUN(test_status_tells_what_is_queued_and_the_brokers_trouble),
        RUN(test_status_of_a_run_counts_what_the_learner_says),
        RUN(test_status_is_in_the_log_after_sigusr1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
