/* supervise_opts.c - the table of supervise_opts.h, apart from the supervisor: penstock's own list of verbs holds it without that. */
#include "lcm/supervisor/supervise_opts.h"

static const pst_opt opts[] = {
    {"run-dir", 0, PST_OPT_STR, offsetof(supervise_opts, run_dir), "DIR", NULL, "the run directory, with spec.json in it"},
    {"address", 0, PST_OPT_STR, offsetof(supervise_opts, address), "ADDRESS", NULL,
     "numeric address of this host or pod, by which the others of its gang reach it [one of 127.0.0.0/8, or as the LCM was told]"},
    {"install", 0, PST_OPT_STR, offsetof(supervise_opts, install), "DIR", NULL,
     "run nothing: leave this program, its libraries and its loader in DIR, for a container of another image"},
    {"settings", 0, PST_OPT_STR, offsetof(supervise_opts, settings), "FILE", NULL,
     "with --install: settings to be handed over, NAME=value strings each with a NUL behind it"},
    {"settings-to", 0, PST_OPT_STR, offsetof(supervise_opts, settings_to), "FILE", NULL, "with --settings: where they are copied to"},
    {"log-lines", 0, PST_OPT_DOUBLE, offsetof(supervise_opts, lines_per_s), "N 0..1000000000", "10000",
     "log lines a second; more are left out and counted"},
    {"log-bytes", 0, PST_OPT_BYTES, offsetof(supervise_opts, bytes_per_s), "BYTES", "8MiB", "log bytes a second"},
    {"spool", 0, PST_OPT_BYTES, offsetof(supervise_opts, spool_bytes), "BYTES", "256MiB", "disk for output that waits for the broker"}};
const pst_usage pst_supervise_usage = {.verb = "supervise",
                                       .args = "--run-dir DIR",
                                       .summary = "Run one process of a job (started by the LCM).",
                                       .opts = opts,
                                       .n_opts = sizeof opts / sizeof *opts};
