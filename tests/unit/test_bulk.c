/* Which jobs a verb without an ID is about. What is asked of them, and the answers, need a Kafka: tests/live/test_queue_live.py. */
#include "common/base/buf.h"
#include "producers/bulk.h"
#include "schemas/events.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static pst_job_state *job(pst_map *jobs, const char *id, const char *user, pst_job_public_state state, const char *name)
{
    pst_job_state *s = pst_alloc(sizeof *s);
    s->training_id = pst_strdup(id);
    s->user = pst_strdup(user);
    s->name = pst_strdup(name);
    s->queue = pst_strdup("default");
    s->array_of = pst_strdup("");
    s->state = state;
    s->submitted_at = (int64_t)jobs->n + 1;
    pst_map_put(jobs, id, s);
    return s;
}

static void fill(pst_map *jobs)
{
    setenv("PENSTOCK_USER", "ann", 1);
    job(jobs, "a", "ann", PST_JOB_PUBLIC_STATE_QUEUED, "night-1");
    job(jobs, "b", "ann", PST_JOB_PUBLIC_STATE_PROCESSING, "day-1");
    job(jobs, "c", "ann", PST_JOB_PUBLIC_STATE_COMPLETED, "night-2");
    job(jobs, "d", "ann", PST_JOB_PUBLIC_STATE_HALTED, "day-2");
    job(jobs, "e", "bob", PST_JOB_PUBLIC_STATE_QUEUED, "night-3");
}

/* The ids, one letter each. */
static char *chosen(const jobs_bulk *b, const pst_map *jobs, size_t *ret_others)
{
    static char ids[32];
    const pst_job_state **at = NULL;
    size_t n = 0, others = 0;
    pst_err err = {0};
    int rc = jobs_bulk_choose(b, jobs, &at, &n, &others, &err);
    if (rc < 0)
        return strcpy(ids, rc == PST_EINVAL && err.text[0] ? "refused" : "?");
    for (size_t i = 0; i < n; i++)
        ids[i] = at[i]->training_id[0];
    ids[n] = '\0';
    free(at);
    if (ret_others)
        *ret_others = others;
    return ids;
}
#define CHOSEN(...) chosen(&(jobs_bulk){__VA_ARGS__}, &jobs, &others)

static void test_bulk_takes_own_jobs_for_which_it_makes_sense(void **state)
{
    pst_map jobs = {0};
    size_t others = 0;
    fill(&jobs);
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .queue = "default"), "abd");
    assert_int_equal(others, 1); /* bob's is told, not taken */
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_HALT, .queue = "default"), "ab");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_RESUME, .queue = "default"), "d");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_HOLD, .queue = "default"), "a");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_RELEASE, .queue = "default"), "");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .queue = "default"), "abcd");
    pst_client_jobs_done(&jobs);
}

static void test_bulk_takes_others_only_where_they_are_named(void **state)
{
    pst_map jobs = {0};
    size_t others = 0;
    fill(&jobs);
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .user = "bob"), "e");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .user = "*", .name = "night-*"), "ae");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .as = "bob", .queue = "default"), "e");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .queue = "other"), "");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .state = "COMPLETED,HALTED"), "cd");
    pst_client_jobs_done(&jobs);
}

static void test_bulk_leaves_to_an_array_what_it_reaches_itself(void **state)
{
    pst_map jobs = {0};
    size_t others = 0;
    setenv("PENSTOCK_USER", "ann", 1);
    job(&jobs, "a", "ann", PST_JOB_PUBLIC_STATE_PROCESSING, "many");
    for (int i = 0; i < 2; i++) {
        pst_job_state *s = job(&jobs, i ? "f" : "r", "ann", i ? PST_JOB_PUBLIC_STATE_FAILED : PST_JOB_PUBLIC_STATE_PROCESSING, "many");
        free(s->array_of);
        s->array_of = pst_strdup("a");
    }
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .name = "many"), "a");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_RESUME, .name = "many"), "f"); /* the array has not ended */
    pst_client_jobs_done(&jobs);
}

/* An array that has FAILED because one task did: its tasks that are COMPLETED are not what was asked for. */
static void test_bulk_by_state_takes_tasks_and_not_their_array(void **state)
{
    pst_map jobs = {0};
    size_t others = 0;
    setenv("PENSTOCK_USER", "ann", 1);
    pst_job_state *array = job(&jobs, "a", "ann", PST_JOB_PUBLIC_STATE_FAILED, "many");
    array->array = pst_alloc(sizeof *array->array);
    for (int i = 0; i < 2; i++) {
        pst_job_state *s = job(&jobs, i ? "f" : "c", "ann", i ? PST_JOB_PUBLIC_STATE_FAILED : PST_JOB_PUBLIC_STATE_COMPLETED, "many");
        free(s->array_of);
        s->array_of = pst_strdup("a");
    }
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .state = "FAILED"), "f");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .state = "FAILED,COMPLETED"), "a");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .name = "many"), "a");
    array->state = PST_JOB_PUBLIC_STATE_PROCESSING; /* tasks may be still to come */
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .state = "PROCESSING"), "");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_TERMINATE, .state = "PROCESSING,QUEUED,FAILED,COMPLETED"), "a");
    pst_client_jobs_done(&jobs);
}

static void test_bulk_refuses_what_chooses_nothing(void **state)
{
    pst_map jobs = {0};
    size_t others = 0;
    fill(&jobs);
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .yes = true), "refused"); /* all jobs, because a variable was empty */
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .queue = ""), "refused");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .user = ""), "refused");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .state = "RUNNING"), "refused");
    assert_string_equal(CHOSEN(.action = PST_JOB_ACTION_DELETE, .state = "QUEUED,,"), "refused");
    pst_client_jobs_done(&jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_takes_own_jobs_for_which_it_makes_sense),
        cmocka_unit_test(test_bulk_by_state_takes_tasks_and_not_their_array),
        cmocka_unit_test(test_bulk_takes_others_only_where_they_are_named),
        cmocka_unit_test(test_bulk_leaves_to_an_array_what_it_reaches_itself),
        cmocka_unit_test(test_bulk_refuses_what_chooses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
