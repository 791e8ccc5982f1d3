/* supervisor_world.c - what the tests of the supervisor share: each test gets folders of its own, and the sink decodes what it is sent, so that a
 * test sees the events themselves. */
#include "supervisor_world.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/stop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int world_setup(void **state)
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

int world_teardown(void **state)
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

sup_outlet *world_outlet_to(world *w, sup_sink sink)
{
    sup_outlet *o = NULL;
    assert_int_equal(sup_outlet_open(&(sup_outlet_conf){.run_dir = w->run_dir,
                                                        .training_id = "training-unit",
                                                        .process = "learner-1",
                                                        .generation = 1,
                                                        .reporter = "supervisor:unit",
                                                        .host = "unit",
                                                        .sink = sink},
                                     &o, NULL),
                     0);
    return o;
}

sup_outlet *world_outlet(world *w)
{
    return world_outlet_to(w, (sup_sink){.arg = w, .send = sink_send, .pump = sink_pump, .reset = sink_reset});
}

/* Runs a shell command as a job; extra: further YAML. */
void world_run(world *w, const char *command, const char *extra, const sup_output_limits *limits)
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
    r.outlet = world_outlet(w);
    r.objects = w->objects;
    r.status = w->status;
    r.store_patience_ms = w->store_patience_ms;
    sup_status_outlet(w->status, r.outlet);
    if (sup_supervise(&r, limits, &err) < 0)
        fail_msg("%s", err.text);
    sup_status_outlet(w->status, NULL);
    sup_outlet_close(r.outlet);
    sup_run_close(&r);
    pst_buf_done(&y);
    w->spec.manifest = NULL;
}

/* The same run once more, as if it had not been. */
void world_again(world *w)
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

const char *world_line(const world *w, const char *start)
{
    for (size_t i = 0; i < w->n_lines; i++)
        if (!strncmp(w->lines[i].text, start, strlen(start)))
            return w->lines[i].text;
    return NULL;
}

void world_check(const world *w, const int *wanted, size_t n)
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

size_t world_own_points(world *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_points; i++)
        if (!strcmp(w->points[i].group, "system"))
            pst_event_clear(&pst_metric_point_type, &w->points[i]);
        else
            w->points[n++] = w->points[i];
    return w->n_points = n;
}

const pst_process_report *world_end(const world *w)
{
    assert_int_equal(w->reports[w->n_reports - 1].type, PST_REPORT_TYPE_EXITED);
    return &w->reports[w->n_reports - 1];
}

bool world_gone(const char *pid_text)
{
    return !pst_proc_start_time(atoi(pid_text + strcspn(pid_text, "0123456789")));
}

void *world_stop_soon(void *arg)
{
    pst_sleep_ms(500);
    kill(getpid(), SIGTERM);
    return NULL;
}
