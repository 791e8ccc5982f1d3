/* lcm_core.h - what the LCM decides: a pure function of events. No I/O, no clock, no threads; time comes in as data.
 *
 *     lcm_core *l = lcm_new(devices);
 *     lcm_actions a = {0};
 *     lcm_step(l, &(lcm_event){.type = PST_LCM_COMMAND, .now_us = now, .id = {"training-a", 1}, .command = …}, &a);
 *     … perform a.at[0…n) in order; INTEND and REPORT before the commit, the rest after it …
 *     lcm_actions_done(&a);
 *
 * A gang is the processes of one generation; process_fsm.h has the picture of a process's states.
 *
 * Everything is idempotent: a command twice, an observation twice, actions repeated after a crash. What a tick costs follows what lives, not
 * what has ended. Time is monotonic: a clock that is set shortens no grace. @thread one owner. */
#ifndef PST_LCM_CORE_H
#define PST_LCM_CORE_H

#include "lcm/process.h"
#include "schemas/manifest.h"

#define PST_LCM_LEARNERS_MAX PST_JOB_PROCESSES_MAX
#define PST_LCM_MARGIN_US    10000000 /* beyond the grace time, before a supervisor is given up */

typedef struct lcm_core lcm_core;

typedef enum { PST_LCM_DEPLOY = 1, PST_LCM_HALT, PST_LCM_KILL, PST_LCM_CLEAN, PST_LCM_CHECK } pst_lcm_command_kind;

typedef struct lcm_command {
    pst_lcm_command_kind kind;
    pst_process_set sets[PST_PROCESS_SETS_MAX]; /* DEPLOY: which processes */
    size_t n_sets;
    int grace_ms;   /* DEPLOY */
    char nonce[40]; /* DEPLOY: of the generation, for every report about it; else for the answer that it is not here */
} lcm_command;

typedef enum {
    PST_LCM_COMMAND = 1,   /* command */
    PST_LCM_FOUND_GANG,    /* an intent on disk at start; command.learners … as in the intent */
    PST_LCM_FOUND_PROCESS, /* process, seen, exit, published, devices */
    PST_LCM_RECOVERED,     /* all FOUND events were given: act on them */
    PST_LCM_NOTICED,       /* process, seen, exit, published: the launcher's watch */
    PST_LCM_EMPTIED,       /* process: nothing of it lives any more (answer to END); published; text: what ended it, if that is known */
    PST_LCM_START_FAILED,  /* process, text */
    PST_LCM_INTENDED,      /* the intent is on disk */
    PST_LCM_INTENT_FAILED, /* text: the generation cannot be deployed */
    PST_LCM_EXPECTED,      /* the Trainer's view, read after the commands were caught up: this generation should live here */
    PST_LCM_TICK,
    PST_LCM_STOP_SITE /* end everything, reason PLATFORM_DOWN */
} lcm_event_type;

typedef struct lcm_event {
    lcm_event_type type;
    int64_t now_us;
    pst_process_id id; /* names were checked (pst_rundir_name_ok) */
    lcm_command command;
    pst_lcm_seen seen;
    const pst_rundir_exit *exit;        /* with SEEN_ENDED */
    bool published;                     /* nothing of its output waits on disk */
    pst_rundir_stop_reason stop_reason; /* FOUND_PROCESS, NOTICED: stop.json */
    const pst_lcm_devices *devices;     /* FOUND_PROCESS: it has; NULL = none */
    const char *text;
} lcm_event;

typedef enum {
    PST_LCM_INTEND = 1, /* write the intent durably, answer INTENDED or INTENT_FAILED */
    PST_LCM_REPORT,
    PST_LCM_START,      /* on devices; failing: START_FAILED */
    PST_LCM_STOP,       /* its reason durably; where it is the first one, SIGTERM to the supervisor after the commit */
    PST_LCM_ABANDON,    /* another SIGTERM: give up publishing, leave it to the next start */
    PST_LCM_END,        /* SIGKILL to all of it, answer EMPTIED once nothing is left; repeated on ticks. Without force a supervisor that
                           only publishes is left alone: NOTICED, SEEN_FLUSHING */
    PST_LCM_MARK_ENDED, /* write exit.json and published for a process that has no supervisor to do it */
    PST_LCM_REMOVE      /* the job's folders */
} lcm_action_type;

typedef enum {
    PST_LCM_REPORT_DEPLOYING = 1,
    PST_LCM_REPORT_DEPLOY_FAILED,
    PST_LCM_REPORT_EXITED,
    PST_LCM_REPORT_LOST,
    PST_LCM_REPORT_CLEANED,
    PST_LCM_REPORT_REFUSED, /* by the shell alone: a command that no Trainer gave */
    PST_LCM_REPORT_REMARK   /* the same: a launcher's word about what a process waits for */
} lcm_report_type;

typedef struct lcm_action {
    lcm_action_type type;
    pst_process_id id;
    lcm_command command;                /* INTEND */
    pst_lcm_devices devices;            /* START */
    pst_rundir_stop_reason stop_reason; /* STOP */
    bool force;                         /* END */
    lcm_report_type report;             /* REPORT */
    char nonce[40];                     /* REPORT: what proves it; "" = none is known */
    pst_rundir_exit exit;               /* REPORT of EXITED and LOST, MARK_ENDED; reason and reason_code of every report */
} lcm_action;

typedef struct lcm_actions {
    lcm_action *at;
    size_t n, cap;
} lcm_actions;

lcm_core *lcm_new(int devices); /* how many the node has */
void lcm_free(lcm_core *l);
void lcm_step(lcm_core *l, const lcm_event *in, lcm_actions *ret_actions); /* appends */
lcm_action *lcm_actions_add(lcm_actions *a);                               /* one more, all zero; valid until the next */
void lcm_actions_done(lcm_actions *a);
/* After STOP_SITE: nothing is left to wait for. */
bool lcm_idle(const lcm_core *l);
/* {jobs known, processes that live, devices in use} for heartbeats. */
void lcm_counts(const lcm_core *l, int ret_counts[3]);
/* Highest generation known of a job; 0 = unknown. */
int lcm_generation(const lcm_core *l, const char *training_id);
/* Is anything of it still to be looked after? */
bool lcm_is_busy(const lcm_core *l, const char *training_id);
/* Its folders are gone: nothing is remembered of an ended generation any more. */
void lcm_forget(lcm_core *l, const char *training_id, int generation);
/* Every generation of which a process may live. fn must not step the core. */
void lcm_each_living(const lcm_core *l, void (*fn)(void *arg, const char *training_id, int generation), void *arg);

#endif
