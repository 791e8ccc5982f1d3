/* Why a job is where it is: places in a queue, what is missing on which node, whom it waits for, whether its node is heard; whose jobs are told to whom. */
#include "common/platform/why.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "test.h"

#include <string.h>

enum { NOW_S = 1000000 };
#define NOW_US ((int64_t)NOW_S * 1000000)

static void add_job(pst_why *w, const char *json)
{
    json_t *j = json_loads(json, 0, NULL);
    pst_job_state s = {0};
    pst_err err = {0};
    assert_non_null(j);
    if (!json_object_get(j, "since"))
        json_object_set_new(j, "since", json_integer(NOW_US - 60 * 1000000));
    assert_int_equal(pst_event_from_json(&pst_job_state_type, j, &s, &err), 0);
    json_decref(j);
    pst_why_job(w, &s);
}

static void add_node(pst_why *w, const char *name, const char *state, double cpus, int seconds_ago)
{
    pst_worker_state s = {.worker_id = pst_sprintf("lcm.%s", name),
                          .kind = pst_strdup("lcm"),
                          .site = pst_strdup("local"),
                          .host = pst_strdup("h"),
                          .state = pst_strdup(state),
                          .node = pst_strdup(name),
                          .version = pst_strdup(""),
                          .cpus = cpus,
                          .memory_bytes = (int64_t)8 << 30,
                          .time = NOW_US - seconds_ago * (int64_t)1000000};
    pst_why_node(w, &s, NOW_US - seconds_ago * (int64_t)1000000);
}

static json_t *tell(const pst_why *w, const char *id, const char *viewer)
{
    json_t *told = NULL;
    pst_err err = {0};
    assert_int_equal(pst_why_tell(w, id, viewer, NOW_US, &told, &err), 0);
    return told;
}

static void says(const json_t *told, const char *words)
{
    const char *text = json_string_value(json_object_get(told, "text"));
    if (!text || !strstr(text, words))
        fail_msg("\"%s\" is not said in:\n%s", words, text);
}

static void says_not(const json_t *told, const char *words)
{
    assert_null(strstr(json_string_value(json_object_get(told, "text")), words));
}

#define MANIFEST(cpus) \
    "\"manifest\":\"name: n\\nlearners: 1\\ncpus: " cpus "\\nmemory: 1 GiB\\nframework: {name: custom, version: '1', command: x}\""

static pst_why *world(void)
{
    pst_why *w = pst_why_new();
    add_node(w, "n1", "running", 4, 2);
    add_node(w, "n2", "running", 16, 45);
    add_job(w, "{\"training_id\":\"training-run\",\"user\":\"bob\",\"state\":\"PROCESSING\",\"node\":\"n1\",\"submitted_at\":1," MANIFEST(
                   "3") "}");
    add_job(w, "{\"training_id\":\"training-low\",\"user\":\"ann\",\"state\":\"QUEUED\",\"submitted_at\":10,\"name\":\"low\"," MANIFEST(
                   "2") "}");
    add_job(w, "{\"training_id\":\"training-late\",\"user\":\"ann\",\"state\":\"QUEUED\",\"submitted_at\":30," MANIFEST("2") "}");
    add_job(w, "{\"training_id\":\"training-high\",\"user\":\"bob\",\"state\":\"QUEUED\",\"submitted_at\":20,\"priority\":5," MANIFEST(
                   "2") "}");
    return w;
}

static void test_why_tells_the_place_and_who_is_ahead(void **state)
{
    pst_why *w = world();
    json_t *told = tell(w, "training-late", NULL);
    json_t *ahead = json_object_get(told, "ahead");
    assert_int_equal(json_integer_value(json_object_get(told, "position")), 3);
    assert_int_equal(json_integer_value(json_object_get(told, "waiting")), 3);
    assert_int_equal(json_array_size(ahead), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(ahead, 0), "training_id")),
                        "training-high"); /* by priority, then time */
    assert_string_equal(json_string_value(json_object_get(json_array_get(ahead, 1), "training_id")), "training-low");
    says(told, "is QUEUED for 1");
    says(told, "place 3 of 3 in queue default");
    json_decref(told);
    pst_why_free(w);
}

static void test_why_tells_what_is_missing_on_which_node(void **state)
{
    pst_why *w = world();
    json_t *told = tell(w, "training-high", NULL), *missing = json_object_get(told, "missing");
    assert_int_equal(json_array_size(missing), 2);
    says(told, "node n1 is ready; missing there: 1 cpus (free: 1 of 4 cpus");
    says(told, "node n2 is silent (last heard 45");
    json_decref(told);
    add_job(
        w,
        "{\"training_id\":\"training-run\",\"state\":\"COMPLETED\",\"node\":\"n1\",\"submitted_at\":1}"); /* computed anew, not remembered */
    told = tell(w, "training-high", NULL);
    says(told, "node n1 is ready; there is room for it");
    json_decref(told);
    pst_why_free(w);
}

static void test_why_of_a_held_one_and_of_one_that_waits_for_others(void **state)
{
    pst_why *w = world();
    add_job(w, "{\"training_id\":\"training-held\",\"state\":\"QUEUED\",\"held_by\":\"root\",\"priority\":9,\"after\":[\"training-run\","
               "\"training-gone\"]}");
    json_t *told = tell(w, "training-held", NULL);
    says(told, "user root holds it; `penstock release training-held`");
    says(told, "until training-run is COMPLETED (penstock.after): that is PROCESSING");
    says(told, "training-gone is COMPLETED (penstock.after): that is deleted");
    assert_null(json_object_get(told, "position"));
    json_decref(told);
    told = tell(w, "training-high", NULL); /* who is held is not ahead of anybody */
    assert_int_equal(json_integer_value(json_object_get(told, "position")), 1);
    json_decref(told);
    pst_why_free(w);
}

static void test_why_of_a_running_one_tells_whether_its_node_is_heard(void **state)
{
    pst_why *w = world();
    json_t *told = tell(w, "training-run", NULL);
    says(told, "on node n1, which is ready (heard 2");
    says_not(told, "--force");
    json_decref(told);
    add_job(w, "{\"training_id\":\"training-far\",\"state\":\"PROCESSING\",\"node\":\"n2\",\"stop_action\":\"HALT\",\"stop_by\":\"ann\"}");
    told = tell(w, "training-far", NULL);
    says(told, "which is silent");
    says(told, "penstock terminate --force training-far");
    says(told, "user ann asked for HALT");
    json_decref(told);
    pst_why_free(w);
}

static void test_why_names_no_job_of_others_to_a_user(void **state)
{
    pst_why *w = world();
    json_t *told = tell(w, "training-late", "ann");
    pst_err err = {0};
    assert_int_equal(json_integer_value(json_object_get(told, "position")), 3);
    assert_int_equal(json_array_size(json_object_get(told, "ahead")), 1);
    says_not(told, "training-high");
    says(told, "ahead: 1 more");
    json_decref(told);
    assert_int_equal(pst_why_tell(w, "training-high", "ann", NOW_US, &told, &err), PST_ENOTFOUND);
    pst_why_free(w);
}

static void test_why_takes_the_beginning_of_an_id(void **state)
{
    pst_why *w = world();
    json_t *told = tell(w, "training-la", NULL);
    pst_err err = {0};
    assert_string_equal(json_string_value(json_object_get(told, "training_id")), "training-late");
    json_decref(told);
    assert_int_equal(pst_why_tell(w, "training-l", NULL, NOW_US, &told, &err), PST_EINVAL);
    pst_err_clear(&err);
    assert_int_equal(pst_why_tell(w, "", NULL, NOW_US, &told, &err), PST_ENOTFOUND);
    assert_int_equal(pst_why_tell(w, "training-nobody", NULL, NOW_US, &told, &err), PST_ENOTFOUND);
    pst_why_free(w);
}

/* There is room, and the queue's rules hold it back all the same: that is said, and what of the quota is in use. */
static void test_why_tells_what_its_queue_lacks(void **state)
{
    pst_why *w = world();
    pst_queue_spec q = {.name = pst_strdup("default"), .weight = 1, .quota = {.has_cpus = true, .cpus = 4}};
    add_job(w, "{\"training_id\":\"training-narrow\",\"user\":\"ann\",\"state\":\"QUEUED\",\"submitted_at\":5," MANIFEST("1") "}");
    add_job(w, "{\"training_id\":\"training-gone\",\"user\":\"ann\",\"queue\":\"nightly\",\"state\":\"QUEUED\"," MANIFEST("1") "}");
    json_t *told = tell(w, "training-narrow", NULL);
    says(told, "node n1 is ready; there is room for it");
    says_not(told, "its queue holds it back");
    json_decref(told);
    pst_why_queue(w, &q);
    told = tell(w, "training-narrow", NULL);
    says_not(told, "its queue holds it back"); /* 3 + 1 = 4 */
    assert_null(json_object_get(told, "queue_lacks"));
    json_decref(told);
    told = tell(w, "training-low", NULL);
    says(told, "its queue holds it back, whatever room there is: queue default has 3 of its quota of 4 CPUs in use and the job needs 2");
    assert_non_null(json_object_get(told, "queue_lacks"));
    json_decref(told);
    told = tell(w, "training-gone", NULL);
    says(told, "queue nightly was deleted");
    json_decref(told);
    pst_why_free(w);
}

/* Every task's id begins with its array's. */
static void test_why_the_beginning_of_an_arrays_id_means_the_array(void **state)
{
    pst_why *w = world();
    add_job(w, "{\"training_id\":\"training-sweep\",\"state\":\"PROCESSING\",\"array\":{\"indices\":\"0-1\",\"tasks\":2,\"admitted\":2,"
               "\"running\":1,"
               "\"waiting\":1}}");
    add_job(w, "{\"training_id\":\"training-sweep-0\",\"state\":\"PROCESSING\",\"node\":\"n1\",\"array_of\":\"training-sweep\"}");
    add_job(w, "{\"training_id\":\"training-sweep-1\",\"state\":\"QUEUED\",\"array_of\":\"training-sweep\",\"array_index\":1}");
    json_t *told = tell(w, "training-sw", NULL);
    assert_string_equal(json_string_value(json_object_get(told, "training_id")), "training-sweep");
    json_decref(told);
    pst_err err = {0};
    assert_int_equal(pst_why_tell(w, "training-sweep-", NULL, NOW_US, &told, &err), PST_EINVAL); /* which of its tasks? */
    pst_why_free(w);
}

static void test_why_where_no_node_has_reported(void **state)
{
    pst_why *w = pst_why_new();
    add_job(w, "{\"training_id\":\"training-a\",\"state\":\"QUEUED\",\"site\":\"nowhere\",\"manifest\":\"no: [manifest\"}");
    json_t *told = tell(w, "training-a", NULL);
    says(told, "no LCM of site nowhere has reported yet");
    json_decref(told);
    pst_why_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_why_tells_the_place_and_who_is_ahead),
        cmocka_unit_test(test_why_tells_what_is_missing_on_which_node),
        cmocka_unit_test(test_why_of_a_held_one_and_of_one_that_waits_for_others),
        cmocka_unit_test(test_why_of_a_running_one_tells_whether_its_node_is_heard),
        cmocka_unit_test(test_why_names_no_job_of_others_to_a_user),
        cmocka_unit_test(test_why_takes_the_beginning_of_an_id),
        cmocka_unit_test(test_why_tells_what_its_queue_lacks),
        cmocka_unit_test(test_why_the_beginning_of_an_arrays_id_means_the_array),
        cmocka_unit_test(test_why_where_no_node_has_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
