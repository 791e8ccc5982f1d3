/* services.h - child processes of `penstock up`: started, watched, started again with back-off, stopped; and the file that
 * `penstock status` and `down` read (<state-dir>/up.json, written by the up process alone, atomically at every change).
 * @thread the up process's main thread. */
#ifndef PST_DEPLOY_SERVICES_H
#define PST_DEPLOY_SERVICES_H

#include "common/base/settings.h"

#include <jansson.h>
#include <sys/types.h>

/* A scorer that is told to stop ends its round, and may have to wait for its group to come together before it can leave it (20 s at most); one that is
 * killed meanwhile keeps its partitions for a session. */
enum { LOCAL_SCORER_GRACE_MS = 35000 };

typedef struct local_service {
    char *name;  /* "trainer", "score:turbine" */
    char **argv; /* NULL-terminated, owned; argv[0] is the program */
    char *log_path;
    size_t port_at;       /* of argv: the port that is chosen for it; 0 = none */
    const char *variable; /* of our own environment, handed to this service alone; NULL = none */
    pid_t pid;            /* 0 = not running */
    int64_t pid_start;    /* pst_proc_start_time */
    int64_t since_us;     /* of this process, or of the wait */
    int64_t started_mono_us, retry_mono_us;
    int restarts;
    int backoff_ms;
    bool stopping;
    char *last_exit; /* "exit status 2", "signal 9"; NULL = never ended */
} local_service;

typedef struct local_services {
    const pst_settings *settings; /* borrowed; what children get as environment */
    char **env;
    char *log_dir, *file;  /* <state-dir>/log, <state-dir>/up.json */
    int64_t log_bytes_max; /* a service puts its log aside at this size (common/base/log_file.h); 0 = PST_LOG_FILE_BYTES */
    local_service **at;
    size_t n;
    bool dirty;    /* the file must be written */
    json_t *facts; /* bootstrap, registry, gateway, pid, … that go into the file as they are */
} local_services;

int local_services_init(local_services *s, const pst_settings *settings, pst_err *err);
void local_services_done(local_services *s); /* does not stop anything */
/* argv: arguments after the program itself, NULL-terminated. Starts at once. LOCAL_PORT as one of them is a free port of 127.0.0.1, chosen anew where another has
 * taken it meanwhile. */
#define LOCAL_PORT "PORT"
int local_services_add(local_services *s, const char *name, const char *const *args, pst_err *err);
/* The same for one that gets a variable of our environment as well, which no other service sees. variable: its name, borrowed for ever; NULL = none. */
int local_services_add_with(local_services *s, const char *name, const char *const *args, const char *variable, pst_err *err);
local_service *local_services_find(local_services *s, const char *name);
/* Reaps ended children, restarts those whose wait is over, writes the file if something changed. Call every 50 to 200 ms. */
void local_services_tick(local_services *s);
/* Signals one service and waits up to timeout_ms, then SIGKILL. It is not restarted, and leaves the list. */
void local_services_stop(local_services *s, const char *name, int sig, int timeout_ms);
void local_services_stop_all(local_services *s, int timeout_ms); /* all that are left, together */

/* A scorer that paused itself: what was published for it is worth another start, though it says the same. */
bool local_services_paused(const char *state_dir, const local_service *v);
/* The file of a running up, pids checked against /proc now; NULL when there is none or its process is gone. Owned by the caller.
 * ret_up_pid may be NULL. */
json_t *local_services_read(const char *state_dir, pid_t *ret_up_pid);

#endif
