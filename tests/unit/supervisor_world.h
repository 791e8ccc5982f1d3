/* supervisor_world.h - a supervisor's run without a broker, for tests: folders, a sink that is a list, and what came out of it. */
#ifndef PST_TESTS_SUPERVISOR_WORLD_H
#define PST_TESTS_SUPERVISOR_WORLD_H

#include "lcm/supervisor/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define KEPT_MAX   60000
#define POINTS_MAX 41000

typedef struct world {
    char dir[64];
    char *run_dir;
    pst_objects *objects;
    pst_rundir_spec spec;
    sup_outlet *outlet;
    sup_status *status; /* NULL, or a test's */
    int store_patience_ms;
    /* what came out */
    pst_process_report reports[32];
    pst_log_line *lines;
    pst_metric_point points[POINTS_MAX];
    size_t n_reports, n_lines, n_points;
    void *tokens[PST_OUTLET_ITEMS_MAX + 16];
    size_t n_tokens;
    pst_decode_plan *plans[3];
} world;
int world_setup(void **state);
int world_teardown(void **state);
sup_outlet *world_outlet_to(world *w, sup_sink sink);
sup_outlet *world_outlet(world *w);
/* Runs a shell command as a job; extra: further YAML. */
void world_run(world *w, const char *command, const char *extra, const sup_output_limits *limits);
void world_again(world *w);                                    /* the same run once more, as if it had not been */
const char *world_line(const world *w, const char *start);     /* the first that begins so; NULL */
void world_check(const world *w, const int *wanted, size_t n); /* the reports, in order */
size_t world_own_points(world *w); /* drops those of the supervisor itself, one every five seconds that a run takes; how many are left */
const pst_process_report *world_end(const world *w); /* EXITED */
bool world_gone(const char *pid_text);               /* "child 123" */
void *world_stop_soon(void *unused);                 /* a thread: SIGTERM in half a second */

#define REPORTS(w, ...) world_check(w, (int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))
enum {
    STARTED = PST_REPORT_TYPE_STARTED,
    DOWNLOADING = PST_REPORT_TYPE_DOWNLOADING,
    RUNNING = PST_REPORT_TYPE_RUNNING,
    CHECKPOINT = PST_REPORT_TYPE_CHECKPOINT,
    STORING = PST_REPORT_TYPE_STORING,
    EXITED = PST_REPORT_TYPE_EXITED
};
#endif
