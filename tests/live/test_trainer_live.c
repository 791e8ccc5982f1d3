/* test_trainer_live.c - the Trainer on a real Kafka, against an LCM that is played here: jobs go through, latency from submission to
 * deployment, kill -9 of the Trainer at random moments while the store's file is deleted, a standby that takes over. What the topics say in the
 * end is checked: every job ended once, events numbered without gaps, one deployment per generation; the store equals a clean replay.
 * PENSTOCK_TEST_BOOTSTRAP names the broker (deploy/kafka/kafka start prints it); the program is PENSTOCK_BUILD/penstock. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/proc.h"
#include "common/platform/client.h"
#include "common/platform/view.h"
#include "schemas/training_id.h"
#include "common/base/settings.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/registry/registry.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/topics.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char manifest[] = "name: live\ncpus: 0.5\nmemory: 64 MiB\nframework: {name: custom, version: 1, command: run}\n";

static char *program;
static char dir[] = "/tmp/pst-trainer-XXXXXX", other_dir[] = "/tmp/pst-trainer-XXXXXX";
static char registry_url[64], prefix[32];
static pst_settings settings;
static pst_client *client;
static pst_producer *producer;
static pst_consumer *commands, *events;
static pid_t registry_pid, trainer_pid;

typedef struct seen { /* of one job, from the topics */
    int64_t seq;
    int completed, deployed, generation;
    int64_t submitted_us, deployed_us;
    char request_id[40];
} seen;
static pst_map jobs;

static void ok(int rc, const pst_err *err, const char *what)
{
    if (rc < 0)
        fail_msg("%s: %s %s", what, pst_code_name(rc), err->text);
}

/* ---- programs ------------------------------------------------------------------------------------------------------------------ */

static pid_t start(const char *state_dir, const char *verb, const char *option, const char *value)
{
    const char *argv[] = {program, verb, "--state-dir", state_dir, option, value, NULL};
    char **env = pst_settings_environ(&settings);
    pst_spawn how = {
        .argv = argv, .env = (const char *const *)env, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = 2, .parent_death_signal = SIGKILL};
    pid_t pid;
    pst_err err = {0};
    ok(pst_proc_spawn(&how, &pid, &err), &err, "spawn");
    for (char **e = env; *e; e++)
        free(*e);
    free(env);
    return pid;
}

static int end(pid_t *pid, int sig)
{
    int status = 0;
    if (*pid > 0) {
        kill(*pid, sig);
        waitpid(*pid, &status, 0);
    }
    *pid = 0;
    return status;
}

/* ---- the LCM ------------------------------------------------------------------------------------------------------------------- */

static void send_event(pst_topic t, const pst_type *type, const char *key, const void *event)
{
    pst_buf value = {0};
    pst_err err = {0};
    ok(pst_codec_encode(client->codec, type, pst_client_topic(client, t), event, &value, &err), &err, "encode");
    pst_out out = {.topic = pst_client_topic(client, t),
                   .partition = -1,
                   .key = key,
                   .key_len = strlen(key),
                   .value = value.data,
                   .value_len = value.len};
    ok(pst_producer_send(producer, &out, &err), &err, "send");
    pst_producer_poll(producer, 0);
    pst_buf_done(&value);
}

static void heartbeat(void)
{
    static int64_t last_us;
    if (pst_mono_us() - last_us < 1000000)
        return;
    last_us = pst_mono_us();
    pst_worker_state w = {.worker_id = (char *)"lcm:local",
                          .kind = (char *)"lcm",
                          .site = (char *)"local",
                          .host = (char *)"h",
                          .state = (char *)"running",
                          .version = (char *)"",
                          .cpus = 4,
                          .memory_bytes = (int64_t)8 << 30,
                          .time = pst_now_us()};
    send_event(PST_TOPIC_WORKERS, &pst_worker_state_type, w.worker_id, &w);
}

static void report(const pst_job_command *cmd, pst_report_type type)
{
    pst_process_report r = {.training_id = cmd->training_id,
                            .generation = cmd->generation,
                            .process = (char *)"learner-1",
                            .type = type,
                            .time = pst_now_us(),
                            .reporter = (char *)"lcm:local",
                            .host = (char *)"h",
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED};
    send_event(PST_TOPIC_JOBS_REPORTS, &pst_process_report_type, cmd->training_id, &r);
}

static seen *job_of(const char *id)
{
    seen *s = pst_map_get(&jobs, id);
    if (!s)
        pst_map_put(&jobs, id, s = pst_alloc(sizeof *s));
    return s;
}

static void obey(const pst_record *r)
{
    pst_job_command cmd;
    pst_err err = {0};
    ok(pst_codec_decode(client->codec, &pst_job_command_type, r->value, r->value_len, r->timestamp_ms, &cmd, &err), &err, "command");
    if (cmd.command == PST_JOB_COMMAND_TYPE_DEPLOY) {
        seen *s = job_of(cmd.training_id);
        s->deployed++;
        s->deployed_us = pst_now_us();
        if (cmd.generation != s->generation + 1)
            fail_msg("%s: generation %d is deployed after %d", cmd.training_id, cmd.generation, s->generation);
        s->generation = cmd.generation;
        report(&cmd, PST_REPORT_TYPE_STARTED);
        report(&cmd, PST_REPORT_TYPE_RUNNING);
        if (s->seq % 2)
            report(&cmd, PST_REPORT_TYPE_RUNNING); /* twice */
        report(&cmd, PST_REPORT_TYPE_EXITED);
    }
    pst_event_clear(&pst_job_command_type, &cmd);
}

static void hear(const pst_record *r)
{
    pst_job_event e;
    pst_err err = {0};
    ok(pst_codec_decode(client->codec, &pst_job_event_type, r->value, r->value_len, r->timestamp_ms, &e, &err), &err, "event");
    seen *s = job_of(e.training_id);
    if (e.seq != s->seq + 1)
        fail_msg("%s: event %lld %s follows %lld", e.training_id, (long long)e.seq, pst_job_event_type_text(e.type), (long long)s->seq);
    s->seq = e.seq;
    s->completed += e.type == PST_JOB_EVENT_TYPE_COMPLETED;
    pst_event_clear(&pst_job_event_type, &e);
}

/* One turn of the played LCM. Returns how many jobs have completed. */
static int turn(void)
{
    pst_consumer *const both[] = {commands, events};
    void (*const fns[])(const pst_record *) = {obey, hear};
    heartbeat();
    for (int i = 0; i < 2; i++) {
        pst_batch b;
        pst_err err = {0};
        ok(pst_consumer_poll(both[i], &(pst_poll){.records_max = 100, .timeout_ms = 2}, &b, &err), &err, "poll");
        for (size_t k = 0; k < b.n; k++)
            fns[i](&b.records[k]);
    }
    int completed = 0;
    for (size_t i = 0; i < jobs.n; i++)
        completed += jobs.at[i].key && ((seen *)jobs.at[i].value)->completed > 0;
    return completed;
}

static void submit(const char *request_id, int copies)
{
    char id[64];
    pst_job_request r = {.request_id = (char *)request_id,
                         .user = (char *)"live",
                         .action = PST_JOB_ACTION_SUBMIT,
                         .manifest = (char *)manifest,
                         .time = pst_now_us()};
    pst_training_id(r.user, request_id, id);
    job_of(id)->submitted_us = pst_now_us();
    for (int i = 0; i < copies; i++)
        send_event(PST_TOPIC_JOBS_REQUESTS, &pst_job_request_type, request_id, &r);
}

static void until_completed_within(int n, int seconds)
{
    int64_t until = pst_mono_us() + seconds * 1000000LL;
    int done = 0;
    while ((done = turn()) < n && pst_mono_us() < until) {
    }
    if (done < n)
        fail_msg("%d of %d jobs have completed after %d s", done, n, seconds);
}

static void until_completed(int n)
{
    until_completed_within(n, 300); /* a net for what hangs */
}

/* ---- tests --------------------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_live_latency_from_submission_to_deployment(void **state)
{
    enum { N = 20 };
    int64_t took[N];
    submit("warm", 1);
    until_completed(1);
    for (int i = 0; i < N; i++) {
        char id[64], request_id[16];
        snprintf(request_id, sizeof request_id, "lat-%d", i);
        submit(request_id, 1);
        pst_training_id("live", request_id, id);
        until_completed(i + 2);
        seen *s = job_of(id);
        took[i] = s->deployed_us - s->submitted_us;
    }
    qsort(took, N, sizeof *took, by_value);
    printf("submission to deployment: median %.1f ms, worst %.1f ms\n", (double)took[N / 2] / 1e3, (double)took[N - 1] / 1e3);
    assert_true(took[N / 2] < 5000000); /* a busy machine is no failure; polling once a minute would be */
}

static void check_ledger(int n)
{
    for (size_t i = 0; i < jobs.n; i++) {
        const seen *s = jobs.at[i].key ? jobs.at[i].value : NULL;
        if (s && (s->completed != 1 || s->deployed != 1))
            fail_msg("%s completed %d times, was deployed %d times", jobs.at[i].key, s->completed, s->deployed);
    }
    assert_int_equal(jobs.live, n);
}

static void test_live_killed_trainer_goes_on_and_store_is_made_anew(void **state)
{
    enum { N = 60 };
    char *store = pst_fs_join(dir, "store.db");
    size_t before = jobs.live;
    for (int i = 0; i < N; i++) {
        char request_id[16];
        snprintf(request_id, sizeof request_id, "kill-%d", i);
        submit(request_id, 1 + i % 2);
        int64_t until = pst_mono_us() + 50000;
        while (pst_mono_us() < until)
            turn();
        if (i % 13 == 12) {
            end(&trainer_pid, SIGKILL);
            trainer_pid = start(dir, "trainer", "--port", "0");
        }
        if (i == 30)
            unlink(store);
    }
    until_completed((int)before + N);
    int64_t calm = pst_mono_us() + 2000000;
    while (pst_mono_us() < calm)
        turn(); /* what comes doubled has come by then */
    check_ledger((int)before + N);
    free(store);
}

static pst_store *open_view(void)
{
    pst_err err = {0};
    pst_store *s = NULL;
    char *url = pst_sprintf("sqlite:%s/store.db", dir);
    ok(pst_store_open(url, true, &s, &err), &err, "store");
    free(url);
    return s;
}

/* Waits until store has the documents that a view has which was made anew; returns them. */
static char *until_equal(pst_store *store, pst_view *replay)
{
    pst_err err = {0};
    char *a = NULL, *b = NULL;
    int64_t until = pst_mono_us() + 300000000;
    do {
        free(a);
        free(b);
        pst_sleep_ms(200);
        a = pst_store_dump(store, "jobs", &err);
        b = pst_store_dump(pst_view_lock(replay), "jobs", &err);
        pst_view_unlock(replay);
    } while ((!a || !b || strcmp(a, b) || pst_view_lag(replay) != 0) && pst_mono_us() < until);
    assert_non_null(a);
    assert_string_equal(a, b);
    free(b);
    return a;
}

static void test_live_store_equals_a_clean_replay(void **state)
{
    pst_err err = {0};
    pst_view *replay;
    ok(pst_view_start(client, "memory:", &replay, &err), &err, "view");
    pst_store *live = open_view();
    char *a = until_equal(live, replay);
    size_t lines = 0;
    for (const char *s = a; *s; s++)
        lines += *s == '\n';
    assert_int_equal(lines, jobs.live);
    free(a);
    pst_store_close(live);
    pst_view_stop(replay);
}

/* A store of this very cluster and read to the end, but by a version that named fields otherwise: its documents are made anew, even such as no
 * newer state would ever replace. */
static void test_live_store_of_another_version_is_made_anew(void **state)
{
    pst_err err = {0};
    pst_store *older = NULL;
    pst_view *view, *replay;
    pst_topic_info info = {0};
    char *cluster = NULL, *url = pst_sprintf("sqlite:%s/older.db", dir);
    const char *topic = pst_client_topic(client, PST_TOPIC_JOBS_STATE);
    bool applied;
    ok(pst_store_open(url, false, &older, &err), &err, "store");
    ok(pst_admin_ping(client->bus, 10000, &cluster, NULL, &err), &err, "ping");
    ok(pst_admin_topic(client->bus, topic, &info, 10000, &err), &err, "topic");
    json_t *doc = json_pack("{s:s, s:s, s:s}", "training_id", "training-older", "state", "HALTED", "wish", "NONE");
    char *key = pst_sprintf("cluster %s", cluster);
    ok(pst_store_put(older, "jobs", "training-older", INT64_C(1) << 40, doc, &applied, &err), &err, "put");
    ok(pst_store_position_set(older, key, 0, 1, &err), &err, "cluster");
    for (int p = 0; p < info.partitions; p++)
        ok(pst_store_position_set(older, topic, p, info.high[p], &err), &err, "position");
    ok(pst_view_start(client, url, &view, &err), &err, "view");
    ok(pst_view_start(client, "memory:", &replay, &err), &err, "replay");
    char *same = until_equal(older, replay);
    assert_null(strstr(same, "training-older"));
    free(same);
    pst_view_stop(replay);
    pst_view_stop(view);
    pst_store_close(older);
    pst_topic_info_done(&info);
    json_decref(doc);
    free(cluster);
    free(key);
    free(url);
}

static pid_t start_with_long_session(const char *state_dir)
{
    return start(state_dir, "trainer", "-X", "session.timeout.ms=290000");
}

static void complete_one_more(const char *request_id)
{
    size_t before = jobs.live;
    submit(request_id, 1);
    until_completed_within((int)before + 1, 150);
}

static void let_both_join(void)
{
    int64_t until = pst_mono_us() + 3000000;
    while (pst_mono_us() < until)
        turn();
}

/* Another computer's trainer (its own state folder) waits, and takes over when the other ends: at once, since that one leaves its groups, and not
 * after its session, which would be longer than we wait. Which of two is active is Kafka's choice, so either ends once beside the other. */
static void test_live_standby_takes_over(void **state)
{
    assert_int_equal(end(&trainer_pid, SIGTERM), 0);
    trainer_pid = start_with_long_session(dir);
    pid_t standby = start_with_long_session(other_dir);
    let_both_join();
    complete_one_more("standby-1");
    assert_int_equal(end(&trainer_pid, SIGTERM), 0);
    complete_one_more("standby-2");
    trainer_pid = start_with_long_session(dir);
    let_both_join();
    complete_one_more("standby-3");
    assert_int_equal(end(&standby, SIGTERM), 0);
    complete_one_more("standby-4");
    assert_int_equal(end(&trainer_pid, SIGTERM), 0);
    check_ledger((int)jobs.live);
}

/* ---- set up -------------------------------------------------------------------------------------------------------------------- */

static pst_consumer *follow(pst_topic t)
{
    pst_consumer *c = NULL;
    pst_err err = {0};
    const char *topics[] = {pst_client_topic(client, t)};
    ok(pst_consumer_new(client->bus, &(pst_consumer_opts){.topics = topics, .n_topics = 1}, &c, &err), &err, "consumer");
    return c;
}

static int setup(void **state)
{
    pst_err err = {0};
    uint32_t r;
    pst_random(&r, sizeof r);
    int port = pst_proc_free_port(0);
    char port_text[16];
    if (!mkdtemp(dir) || !mkdtemp(other_dir))
        return -1;
    snprintf(prefix, sizeof prefix, "t%08x.", r);
    snprintf(port_text, sizeof port_text, "%d", port);
    snprintf(registry_url, sizeof registry_url, "http://127.0.0.1:%d", port);
    unsetenv("PENSTOCK_STORE");
    unsetenv("PENSTOCK_OBJECTS");
    pst_setting_flags flags = {
        .bootstrap = getenv("PENSTOCK_TEST_BOOTSTRAP"), .registry = registry_url, .state_dir = dir, .prefix = prefix};
    ok(pst_settings_load(&flags, &settings, &err), &err, "settings");
    ok(pst_client_open(&settings, "test", &client, &err), &err, "client");
    registry_pid = start(dir, "registry", "--port", port_text);
    for (int i = 0; i < 3000 && pst_registry_ping(client->registry, &(pst_err){0}) < 0; i++)
        pst_sleep_ms(100);
    ok(pst_client_create_topics(client, &err), &err, "topics");
    ok(pst_client_register_schemas(client, &err), &err, "schemas");
    ok(pst_producer_new(client->bus, &(pst_producer_opts){.linger_ms = 0}, &producer, &err), &err, "producer");
    commands = follow(PST_TOPIC_JOBS_COMMANDS);
    events = follow(PST_TOPIC_JOBS_EVENTS);
    trainer_pid = start(dir, "trainer", "--port", "0");
    return 0;
}

static void free_any(void *p)
{
    free(p);
}

static int teardown(void **state)
{
    end(&trainer_pid, SIGTERM);
    end(&registry_pid, SIGTERM);
    pst_consumer_free(commands);
    pst_consumer_free(events);
    pst_producer_free(producer);
    pst_client_close(client);
    pst_settings_done(&settings);
    pst_map_done(&jobs, free_any);
    pst_fs_remove_tree(dir, NULL);
    pst_fs_remove_tree(other_dir, NULL);
    free(program);
    return 0;
}

int main(void)
{
    if (!getenv("PENSTOCK_TEST_BOOTSTRAP")) {
        printf("skipped: no broker. PENSTOCK_TEST_BOOTSTRAP=$(deploy/kafka/kafka start) gives one\n");
        return 77;
    }
    program = pst_sprintf("%s/penstock", getenv("PENSTOCK_BUILD") ? getenv("PENSTOCK_BUILD") : "build");
    if (access(program, X_OK) < 0) {
        printf("skipped: %s is not built\n", program);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_latency_from_submission_to_deployment),
        cmocka_unit_test(test_live_killed_trainer_goes_on_and_store_is_made_anew),
        cmocka_unit_test(test_live_store_equals_a_clean_replay),
        cmocka_unit_test(test_live_store_of_another_version_is_made_anew),
        cmocka_unit_test(test_live_standby_takes_over),
    };
    return cmocka_run_group_tests_name("trainer_live", tests, setup, teardown);
}
