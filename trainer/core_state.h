/* core_state.h - the inside of the Trainer's core, shared by trainer_core.c, requests.c, answers.c, reports.c, queue.c and nodes.c only. */
#ifndef PST_TRAINER_CORE_STATE_H
#define PST_TRAINER_CORE_STATE_H

#include "common/base/map.h"
#include "schemas/manifest.h"
#include "trainer/job_fsm.h"
#include "trainer/memory.h"
#include "trainer/trainer_core.h"

enum {
    PST_REQUESTS_KEPT = 16, /* answered requests a job remembers */
    PST_QUEUE_MAX = 100000, /* jobs that wait at one site */
    PST_CPU_UNIT = 1000     /* thousandths: sums stay exact */
};

typedef struct pst_needs {
    int64_t cpu, memory, gpus;
} pst_needs;

typedef struct pst_site pst_site;
typedef struct pst_node pst_node;

typedef struct pst_job {
    pst_job_state s;
    /* From the manifest, whose text is in the state; read when the job is submitted, loaded unended, or resumed. */
    int retries, parameter_servers;
    int64_t deadline_us, grace_us;
    pst_needs needs; /* of the whole gang */
    pst_site *site;
    pst_node *node; /* of the present generation, while charged */
    bool queued;    /* stands in site->queue */
    bool unsaid;    /* queued, and the QUEUED event with the reason is still to come */
    bool dirty;     /* its state is to be published at the end of this step */
    bool charged;
    size_t live_at;        /* place in core->live + 1; 0 = not there */
    int64_t checkpoint_us; /* time of the last checkpoint report: an older or equal one is a repetition */
    int64_t result_us;     /* the same for results that are no model */
    int64_t checked_us;    /* when its node was last asked whether it has the generation */
    int64_t ready_us;      /* when the last command of the present generation began, by its reporter's clock; 0 = not known */
    int64_t done_us;       /* when the last one was done, likewise */
    int64_t never_us;      /* queued, and since when its site is too small for it even when empty; 0 = it is not */
} pst_job;

typedef struct pst_early {
    pst_job_state s; /* as published: UNKNOWN, with the requests */
    int64_t seen_us; /* when the last of them came, or this Trainer read of it */
} pst_early;

/* One LCM: a computer, or a part of one. */
struct pst_node {
    char *name;
    pst_site *site;
    bool known;     /* it has reported */
    bool accepting; /* its last report said running */
    bool stopped;   /* … stopped */
    bool lost;      /* a person said so; until it reports again */
    bool proves;    /* it knows nonces */
    int64_t epoch, seen_us;
    pst_needs capacity, used;
};

struct pst_site {
    char *name;
    pst_node **nodes; /* by name */
    size_t n_nodes;
    pst_job **queue; /* by (priority down, submitted_at, training_id) */
    size_t n_queue, cap_queue, n_unsaid;
};

struct pst_trainer_core {
    pst_trainer_policy policy;
    pst_trainer_counts counts;
    pst_map jobs, sites, nodes; /* nodes: "site/name" */
    pst_job **live;             /* deployed jobs, for deadlines */
    size_t n_live, cap_live;
    pst_job **dirty;
    size_t n_dirty, cap_dirty;
    pst_memory answered; /* "ACTION user request_id" of rejected requests without a job */
    pst_memory deleted;  /* training ids whose tombstone is known */
    pst_memory rejected; /* training ids of submissions that were rejected; their states are among the jobs */
    pst_map early;       /* training_id → pst_early: requests whose submission has not come yet */
    size_t by_state[PST_JOB_PUBLIC_STATE_REJECTED + 1];
    int64_t now_us;       /* of the present step */
    int64_t said_us;      /* when that happened which the present step is about */
    bool unsettled;       /* now may be wrong by any amount */
    bool too_old;         /* the present request was published too long ago to be taken */
    bool nodes_unread;    /* not every node is known yet that was known before */
    int64_t tick_us;      /* of the last tick */
    int64_t watch_us;     /* since when it has listened without a gap */
    int64_t submitted_us; /* of the last job admitted */
    pst_actions *out;
};

/* What an event says beside its type; all optional. */
typedef struct pst_say {
    const char *actor;      /* default "trainer" */
    const char *request_id; /* default: the submission's */
    const char *process, *reason_code, *reason;
    const int *exit_code, *signal;
    const pst_complaints *details;
} pst_say;

/* ---- trainer_core.c */
/* The one setter of a job's state: checks the table, numbers the event, appends it, marks the state dirty. */
pst_job_event *pst_core_emit(pst_trainer_core *c, pst_job *j, enum pst_job_event_type type, pst_job_public_state to, const pst_say *say);
void pst_core_command(pst_trainer_core *c, pst_job *j, enum pst_job_command_type command, const char *request_id, const char *reason);
/* An answer REJECTED: of the job when there is one, else by itself with sequence 0. */
void pst_core_reject(pst_trainer_core *c, pst_job *j, const char *training_id, const char *request_id, const pst_say *say);
void pst_core_remove(pst_trainer_core *c, pst_job *j);              /* DELETED: tombstone, forget; j is freed */
void pst_core_expire(pst_trainer_core *c, const char *training_id); /* the tombstone of what is no job; forgotten where it is known */
void pst_core_publish(pst_trainer_core *c, const pst_job_state *s); /* a state that is no job's */
pst_job *pst_core_adopt(pst_trainer_core *c, pst_job_state *take);  /* the state moves in; not queued, not charged */
void pst_core_read_manifest(pst_job *j);
void pst_core_set_text(char **text, const char *value); /* replaces; NULL = null */

/* The answer to a request that is about no job: sequence 0. */
void pst_core_answer(pst_trainer_core *c, const char *request_id, const pst_say *say);
void pst_core_command_node(pst_trainer_core *c, const pst_node *n, enum pst_job_command_type command, const char *request_id,
                           const char *reason);
void pst_core_tell_node(pst_trainer_core *c, const pst_node *n, const char *state); /* onto `workers`, under the node's key */

/* ---- requests.c */
void pst_core_request(pst_trainer_core *c, const pst_trainer_in *in);
void pst_core_bad_request(pst_trainer_core *c, const pst_trainer_in *in);
/* The generation is over and the wish that ended it is carried out: HALTED, TERMINATED, DELETED. j may be freed. */
void pst_core_fulfil_wish(pst_trainer_core *c, pst_job *j);
/* The job has ended by itself before the wish could be carried out. A wish to delete is carried out all the same: j is freed then. */
void pst_core_drop_wish(pst_trainer_core *c, pst_job *j);

void pst_core_remember(pst_job *j, const char *mark); /* an answered request; the oldest goes */
/* Answers one control request of a job that is there, or not (then it is rejected). */
void pst_core_control(pst_trainer_core *c, const pst_job_request *r);
/* An answer REJECTED that belongs to no job; remembered by (action, user, request id). */
void pst_core_reject_orphan(pst_trainer_core *c, const pst_job_request *r, const char *training_id, const pst_say *say);
bool pst_core_orphan_answered(const pst_trainer_core *c, const pst_job_request *r);

/* ---- answers.c */
/* Keeps a request of an unknown job until its submission comes. False: there are too many, answer it now. */
bool pst_early_keep(pst_trainer_core *c, const pst_job_request *r);
bool pst_early_has(const pst_trainer_core *c, const pst_job_request *r);
/* The submission was answered: what came before it is answered now, in the order in which it came. */
void pst_early_apply(pst_trainer_core *c, const char *training_id);
void pst_early_load(pst_trainer_core *c, const pst_job_state *s);
void pst_early_drop(pst_trainer_core *c, const char *training_id);
void pst_early_free(void *early);
/* A submission with a known (user, request id): the same again (counted), or another one (rejected). */
void pst_submit_again(pst_trainer_core *c, pst_job *j, const pst_trainer_in *in, const char *digest);
/* Of the manifest and of the code that a submission brings. ret: 65 bytes. */
void pst_submit_digest(const pst_trainer_in *in, char *ret);
/* The reason why a request is not taken any more (free()), or NULL. */
char *pst_request_too_old(const pst_trainer_core *c, const pst_trainer_in *in);
bool pst_request_of_operator(const pst_trainer_core *c, const pst_job_request *r);
/* May this user touch this job? */
bool pst_request_allowed(const pst_trainer_core *c, const pst_job *j, const pst_job_request *r);
void pst_answers_tick(pst_trainer_core *c, bool caught_up); /* answers what waited long enough, forgets what is old */

/* ---- reports.c */
void pst_core_report(pst_trainer_core *c, const pst_process_report *r);
void pst_core_deadlines(pst_trainer_core *c);
void pst_core_conclude(pst_trainer_core *c, pst_job *j); /* nothing while a process lives; j may be freed */
void pst_core_start_failing(pst_trainer_core *c, pst_job *j, const char *code, const char *reason);
/* live, and being stopped because something failed: the first failure stands in s.reason_code */
bool pst_job_is_failing(const pst_job *j);

/* ---- queue.c */
pst_site *pst_core_site(pst_trainer_core *c, const char *name); /* made when new */
void pst_queue_add(pst_trainer_core *c, pst_job *j);            /* into its site's queue; the event comes from pst_queue_run */
void pst_queue_remove(pst_trainer_core *c, pst_job *j);         /* fine when it is not queued */
void pst_queue_run(pst_trainer_core *c);                        /* deploys what fits, says why the rest waits */
void pst_site_free(void *site);
pst_needs pst_needs_of(int learners, int parameter_servers, double cpus, int64_t memory_bytes, int gpus);

/* ---- nodes.c */
pst_node *pst_core_node(pst_trainer_core *c, const char *site, const char *name); /* made when new */
void pst_node_free(void *node);
void pst_core_worker(pst_trainer_core *c, const pst_worker_state *w, int64_t seen_us);
void pst_core_attend(pst_trainer_core *c);              /* at each tick, first */
void pst_core_charge(pst_trainer_core *c, pst_job *j);  /* to s.node */
void pst_core_release(pst_trainer_core *c, pst_job *j); /* fine when it is not charged */
/* More than any node of the site has? The sentence (free()), or NULL. A site that no LCM has reported: NULL. */
char *pst_queue_never(const pst_site *site, const pst_needs *needs);
/* The node that takes it now, or NULL and why not (free()). *ret_bound: only one node will do; others need not wait behind it. */
pst_node *pst_site_place(const pst_trainer_core *c, const pst_job *j, char **ret_why, bool *ret_bound);
/* Node, epoch and nonce of a command; their digests into the state. */
void pst_core_sign(pst_trainer_core *c, pst_job *j, pst_job_command *cmd);
/* Does the report come from where the generation was given to? Else it is counted, and its node asked where that may help. */
bool pst_core_believes(pst_trainer_core *c, pst_job *j, const pst_process_report *r);
/* The wish that is to be forced, if its node is silent: true when the job has ended by it; j may be freed then. */
bool pst_core_force(pst_trainer_core *c, pst_job *j);
void pst_core_silences(pst_trainer_core *c); /* says which live jobs wait for a silent node, and when it is back */
void pst_core_node_request(pst_trainer_core *c, const pst_job_request *r, const char *by);

#endif
