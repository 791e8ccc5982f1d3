/* test_queue_spec.c - queues as people write them: what is taken, and where and how what is wrong is named. */
#include "schemas/avro.h"
#include "schemas/queue_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void refused(const char *text, const char *says)
{
    pst_queue_spec *specs = NULL;
    size_t n = 0;
    pst_err err = {0};
    assert_true(pst_queue_specs_parse(text, strlen(text), "q.yml", &specs, &n, &err) < 0);
    if (!strstr(err.text, says))
        fail_msg("wanted \"%s\", found \"%s\"", says, err.text);
    assert_null(specs);
}

static void test_queue_spec_takes_several_documents_and_leaves_out_is_no_limit(void **unused)
{
    static const char text[] = "# queues of the team\n---\nname: nightly\nweight: 3\nquota: {cpus: 16, memory: 64GiB, gpus: 0}\n"
                               "max_running_per_user: 4\npreempts: true\n--- # the next\nname: 7\nquota:\n  memory: 1024\n---\n\n";
    pst_queue_spec *q;
    size_t n;
    pst_err err = {0};
    assert_int_equal(pst_queue_specs_parse(text, strlen(text), "q.yml", &q, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(q[0].name, "nightly");
    assert_true(q[0].weight == 3 && q[0].preempts && q[0].quota.has_cpus && q[0].quota.cpus == 16);
    assert_true(q[0].quota.memory == (int64_t)64 << 30 && q[0].quota.has_gpus && q[0].quota.gpus == 0);
    assert_true(q[0].has_max_running_per_user && q[0].max_running_per_user == 4);
    assert_string_equal(q[1].name, "7");
    assert_true(q[1].weight == 1 && !q[1].preempts && !q[1].quota.has_cpus && !q[1].quota.has_gpus && !q[1].has_max_running_per_user);
    assert_true(q[1].quota.has_memory && q[1].quota.memory == 1024);
    assert_int_equal(pst_queue_spec_check(&q[0], &err), 0);
    pst_queue_specs_free(q, n);
}

static void test_queue_spec_written_is_read_again(void **unused)
{
    static const char *const texts[] = {"name: a\n", "name: b\nweight: 0.5\nquota: {cpus: 1.5, gpus: 2}\nmax_running_per_user: 0\n",
                                        "{\"name\": \"c\", \"quota\": {\"memory\": \"2GiB\", \"cpus\": null}, \"preempts\": true}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pst_queue_spec *q, *again;
        size_t n;
        assert_int_equal(pst_queue_specs_parse(texts[i], strlen(texts[i]), "q", &q, &n, NULL), 0);
        char *yaml = pst_queue_spec_yaml(q);
        assert_int_equal(pst_queue_specs_parse(yaml, strlen(yaml), "q", &again, &n, NULL), 0);
        assert_true(pst_event_equal(&pst_queue_spec_type, q, again));
        json_t *j = pst_queue_spec_json(q);
        char *json = json_dumps(j, 0);
        pst_queue_specs_free(again, 1);
        assert_int_equal(pst_queue_specs_parse(json, strlen(json), "q", &again, &n, NULL), 0);
        assert_true(pst_event_equal(&pst_queue_spec_type, q, again));
        free(json);
        json_decref(j);
        free(yaml);
        pst_queue_specs_free(q, 1);
        pst_queue_specs_free(again, 1);
    }
}

static void test_queue_spec_names_file_line_and_what_is_wrong(void **unused)
{
    refused("name: a\nwieght: 3\n", "q.yml:2: ");
    refused("name: a\nwieght: 3\n", "did you mean weight");
    refused("name: a\n---\nname: b\nquota: {cpu: 3}\n", "q.yml:4: ");
    refused("name: a\n---\nname: b\nquota: {cpu: 3}\n", "cpus");
    refused("name: a\n---\nname: b\nweight: 0\n", "q.yml:4: weight: must be a number from 0.001 to 1000000, found 0");
    refused("name: a\nweight: -1\n", "found -1");
    refused("name: a\nweight: .nan\n", "weight: ");
    refused("name: a\nquota: 4\n", "quota: must be a mapping");
    refused("name: a\nquota: {cpus: -1}\n", "quota.cpus: ");
    refused("name: a\nquota: {gpus: 1.5}\n", "quota.gpus: must be a whole number, 0 or more, found 1.5");
    refused("name: a\nquota: {memory: 64 parsecs}\n", "quota.memory: ");
    refused("name: a\nmax_running_per_user: many\n", "max_running_per_user: must be a whole number");
    refused("name: a\npreempts: maybe\n", "preempts: must be true or false, found \"maybe\"");
    refused("weight: 2\n", "name: must be letters");
    refused("name: ../x\n", "name: must be letters");
    refused("name: a\n---\nweight: 1\nname: a\n", "q.yml:4: queue a stands in the file twice");
    refused("- a\n", "a queue is a mapping");
    refused("", "no queue stands in it");
    refused("---\n# nothing\n---\n", "no queue stands in it");
    refused("name: [a\n", "q.yml:");
    char name[80];
    snprintf(name, sizeof name, "name: x%064d\n", 1);
    refused(name, "name: must be letters");
}

static void test_queue_use_counts_what_waits_and_runs(void **unused)
{
    pst_queue_spec q = {.name = (char *)"q", .quota = {.has_cpus = true, .cpus = 4}};
    pst_queue_use use = {0};
    char manifest[] =
        "name: a\ncpus: 1\nframework: {name: custom, version: 1, command: run}\npenstock: {roles: {worker: {count: 2}, ps: {count: "
        "1, cpus: 0.5}}}\n";
    pst_job_state runs = {.queue = (char *)"q", .user = (char *)"ann", .state = PST_JOB_PUBLIC_STATE_PROCESSING, .manifest = manifest};
    pst_job_state waits = runs, elsewhere = runs;
    waits.state = PST_JOB_PUBLIC_STATE_QUEUED;
    elsewhere.queue = (char *)"other";
    assert_null(pst_queue_lacks(&q, &use, &waits));
    pst_queue_use_add(&use, "q", "ann", &runs);
    pst_queue_use_add(&use, "q", "ann", &waits);
    pst_queue_use_add(&use, "q", "ann", &elsewhere);
    assert_true(use.cpus == 2.5 && use.running == 1 && use.waiting == 1 && use.users_running == 1);
    char *why = pst_queue_lacks(&q, &use, &waits);
    assert_string_equal(why, "queue q has 2.5 of its quota of 4 CPUs in use and the job needs 2.5");
    free(why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue_spec_takes_several_documents_and_leaves_out_is_no_limit),
        cmocka_unit_test(test_queue_spec_written_is_read_again),
        cmocka_unit_test(test_queue_spec_names_file_line_and_what_is_wrong),
        cmocka_unit_test(test_queue_use_counts_what_waits_and_runs),
    };
    return cmocka_run_group_tests_name("queue_spec", tests, NULL, NULL);
}
