/* test_trainer_replay.c - what a Trainer did is done again from the lines that `penstock cat -J` prints of its topics: the same decisions by a core with
 * another key; another history, or another memory of it, is told apart. */
#include "common/base/fs.h"
#include "common/base/json.h"
#include "schemas/training_id.h"
#include "tests/unit/test.h"
#include "trainer/replay.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char manifest[] = "name: one\ncpus: 1\nmemory: 256 MiB\nframework: {name: custom, version: 1, command: run}\n";

/* A Trainer as it was, and what it leaves on the topics, a line a record. */
typedef struct past {
    tcore *core;
    trainer_actions out;
    int64_t now_us;
    int64_t offset;
    pst_buf lines;
    char nonce[64]; /* of the last DEPLOY */
    char id[64];
} past;

static void record(past *p, const char *topic, const pst_type *type, const void *event)
{
    json_t *j = json_pack("{s:s, s:i, s:I, s:I, s:s, s:o}", "topic", topic, "partition", 0, "offset", (json_int_t)p->offset++, "ts",
                          (json_int_t)(p->now_us / 1000), "key", "k", "payload", pst_event_to_json(type, event));
    pst_json_add(&p->lines, j);
    pst_buf_addc(&p->lines, '\n');
    json_decref(j);
}

static void step(past *p, const trainer_in *in)
{
    trainer_actions_clear(&p->out);
    tcore_step(p->core, in, p->now_us, &p->out);
    for (size_t i = 0; i < p->out.n; i++) {
        const trainer_action *a = &p->out.at[i];
        if (a->kind == PST_DO_EVENT)
            record(p, "penstock.jobs.events", &pst_job_event_type, &a->event);
        if (a->kind == PST_DO_COMMAND)
            record(p, "penstock.jobs.commands", &pst_job_command_type, &a->command);
        if (a->kind == PST_DO_COMMAND && a->command.command == PST_JOB_COMMAND_TYPE_DEPLOY)
            snprintf(p->nonce, sizeof p->nonce, "%s", a->command.nonce);
    }
    p->now_us += 1000000;
}

static void beat(past *p)
{
    pst_worker_state w = {.worker_id = (char *)"lcm.n1",
                          .kind = (char *)"lcm",
                          .site = (char *)"local",
                          .node = (char *)"n1",
                          .host = (char *)"h",
                          .time = p->now_us,
                          .epoch = 1,
                          .state = (char *)"running",
                          .version = (char *)PST_VERSION,
                          .cpus = 4,
                          .memory_bytes = (int64_t)8 << 30};
    record(p, "penstock.workers", &pst_worker_state_type, &w);
    step(p, &(trainer_in){.kind = PST_TRAINER_WORKER, .worker = &w, .seen_us = p->now_us});
}

static void ask(past *p, const char *request_id, pst_job_action action)
{
    pst_job_request r = {.request_id = (char *)request_id,
                         .user = (char *)"ann",
                         .action = action,
                         .time = p->now_us,
                         .training_id = action == PST_JOB_ACTION_SUBMIT ? NULL : p->id,
                         .manifest = action == PST_JOB_ACTION_SUBMIT ? (char *)manifest : NULL};
    record(p, "penstock.jobs.requests", &pst_job_request_type, &r);
    step(p, &(trainer_in){.kind = PST_TRAINER_REQUEST, .request = &r, .published_us = p->now_us, .live = true});
}

static void told(past *p, const char *process, pst_report_type type, const char *nonce)
{
    pst_process_report r = {.training_id = p->id,
                            .generation = 1,
                            .process = (char *)process,
                            .type = type,
                            .time = p->now_us,
                            .reporter = (char *)"supervisor:h",
                            .node = (char *)"n1",
                            .nonce = (char *)nonce,
                            .host = (char *)"h",
                            .has_exit_code = type == PST_REPORT_TYPE_EXITED};
    record(p, "penstock.jobs.reports", &pst_process_report_type, &r);
    step(p, &(trainer_in){.kind = PST_TRAINER_REPORT, .report = &r, .published_us = p->now_us, .live = true});
}

static past live(void)
{
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    memset(policy.nonce_key, 7, sizeof policy.nonce_key);
    past p = {.core = tcore_new(&policy), .now_us = 1700000000000000};
    tcore_loaded(p.core);
    pst_training_id("ann", "r1", p.id);
    beat(&p);
    ask(&p, "r1", PST_JOB_ACTION_SUBMIT);
    told(&p, NULL, PST_REPORT_TYPE_DEPLOYING, p.nonce);
    told(&p, "learner-1", PST_REPORT_TYPE_STARTED, p.nonce);
    told(&p, "learner-1", PST_REPORT_TYPE_RUNNING, p.nonce);
    told(&p, "learner-1", PST_REPORT_TYPE_EXITED, "forged"); /* is not believed, neither then nor now */
    told(&p, "learner-1", PST_REPORT_TYPE_EXITED, p.nonce);
    const pst_job_state *s = tcore_job(p.core, p.id);
    assert_true(s && s->state == PST_JOB_PUBLIC_STATE_COMPLETED && *p.nonce);
    return p;
}

static void forget(past *p)
{
    trainer_actions_done(&p->out);
    tcore_free(p->core);
    pst_buf_done(&p->lines);
}

static trainer_replay_result play(const pst_buf *lines, const char *job, char **ret_told)
{
    char path[] = "/tmp/penstock-replay-XXXXXX";
    pst_err err = {0};
    trainer_recording r = {0};
    trainer_replay_result result;
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    size_t size;
    close(mkstemp(path));
    assert_int_equal(pst_fs_write_atomic(path, lines->data, lines->len, 0600, &err), 0);
    assert_int_equal(trainer_recording_of_file(&r, path, &err), 0);
    FILE *out = open_memstream(ret_told, &size);
    trainer_replay(&r, &policy, job, out, &result);
    fclose(out);
    trainer_recording_done(&r);
    unlink(path);
    return result;
}

static size_t events_in(const pst_buf *lines)
{
    size_t n = 0;
    for (const char *at = lines->data; (at = strstr(at, "penstock.jobs.events")); at++)
        n++;
    return n;
}

static void test_replay_comes_to_the_same_decisions(void **state)
{
    past p = live();
    char *text;
    trainer_replay_result r = play(&p.lines, NULL, &text);
    assert_int_equal(r.records, 7);
    assert_int_equal(r.different, 0);
    assert_int_equal(r.same, events_in(&p.lines));
    assert_true(r.same >= 7);
    assert_non_null(strstr(text, "COMPLETED generation=1 state=COMPLETED"));
    assert_non_null(strstr(text, "> "));
    assert_null(strstr(text, "!"));
    free(text);
    r = play(&p.lines, "training-other", &text);
    assert_int_equal(r.same + r.different, 0);
    assert_string_equal(text, "");
    free(text);
    forget(&p);
}

/* The lines of one topic after the other, as they come from several `penstock cat`: time brings them together again. */
static void test_replay_takes_the_topics_one_after_the_other(void **state)
{
    past p = live();
    char *text;
    pst_buf sorted = {0};
    static const char *const topics[] = {"jobs.events", "jobs.reports", "jobs.commands", "workers", "jobs.requests"};
    for (size_t t = 0; t < 5; t++)
        for (const char *at = p.lines.data, *end; (end = strchr(at, '\n')); at = end + 1) {
            char *line = pst_strndup(at, (size_t)(end - at) + 1), *name = pst_sprintf("\"penstock.%s\"", topics[t]);
            if (strstr(line, name))
                pst_buf_adds(&sorted, line);
            free(name);
            free(line);
        }
    assert_int_equal(sorted.len, p.lines.len);
    trainer_replay_result r = play(&sorted, NULL, &text);
    assert_int_equal(r.different, 0);
    assert_int_equal(r.same, events_in(&p.lines));
    free(text);
    pst_buf_done(&sorted);
    forget(&p);
}

static void test_replay_tells_where_the_topic_says_something_else(void **state)
{
    past p = live();
    char *text, *at = strstr(p.lines.data, "\"type\":\"COMPLETED\"");
    assert_non_null(at);
    memcpy(at, "\"type\":\"QUEUED\"   ", 18);
    size_t all = events_in(&p.lines);
    trainer_replay_result r = play(&p.lines, NULL, &text);
    assert_int_equal(r.different, 1);
    assert_int_equal(r.same, all - 1);
    assert_non_null(strstr(text, "! training-"));
    assert_non_null(strstr(text, "recorded: training-"));
    free(text);
    forget(&p);
}

static void test_replay_misses_what_only_the_topic_has(void **state)
{
    past p = live();
    char *text;
    pst_job_event extra = {.training_id = p.id, .generation = 1, .seq = 99, .time = p.now_us, .actor = (char *)"trainer"};
    extra.type = PST_JOB_EVENT_TYPE_FAILED;
    extra.state = PST_JOB_PUBLIC_STATE_FAILED;
    record(&p, "penstock.jobs.events", &pst_job_event_type, &extra);
    extra.training_id = (char *)"training-older";
    record(&p, "penstock.jobs.events", &pst_job_event_type, &extra);
    trainer_replay_result r = play(&p.lines, NULL, &text);
    assert_int_equal(r.different, 1);
    assert_int_equal(r.older, 1);
    assert_non_null(strstr(text, "! only recorded: training-"));
    free(text);
    forget(&p);
}

static void test_replay_refuses_lines_of_something_else(void **state)
{
    char path[] = "/tmp/penstock-replay-XXXXXX";
    pst_err err = {0};
    trainer_recording r = {0};
    close(mkstemp(path));
    assert_int_equal(pst_fs_write_atomic(path, "{}\nhello\n", 9, 0600, &err), 0);
    assert_int_equal(trainer_recording_of_file(&r, path, &err), PST_EPARSE);
    assert_non_null(strstr(err.text, "line 2"));
    trainer_recording_done(&r);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_comes_to_the_same_decisions),
        cmocka_unit_test(test_replay_takes_the_topics_one_after_the_other),
        cmocka_unit_test(test_replay_tells_where_the_topic_says_something_else),
        cmocka_unit_test(test_replay_misses_what_only_the_topic_has),
        cmocka_unit_test(test_replay_refuses_lines_of_something_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
