/* core_state.h - the inside of the Trainer's core, shared by the files of pst_trainer_core only (trainer/CMakeLists.txt). */
#ifndef PST_TRAINER_CORE_STATE_H
#define PST_TRAINER_CORE_STATE_H

#include "common/base/map.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"
#include "schemas/task_array.h"
#include "schemas/queue_spec.h"
#include "trainer/job_fsm.h"
#include "trainer/memory.h"
#include "trainer/trainer_core.h"

#include <stdlib.h>

enum {
    PST_REQUESTS_KEPT = 16, /* answered requests a job remembers */
    PST_QUEUE_MAX = 100000, /* jobs that wait at one site */
    PST_CPU_UNIT = 1000     /* thousandths: sums stay exact */
};

typedef struct trainer_needs {
    int64_t cpu, memory, gpus;
} trainer_needs;

/* What a job's processes need, role by role in their order. */
typedef struct trainer_gang {
    trainer_needs all;
    char node[72];                     /* the only one that may run it; "" = any */
    const char *one_node;              /* why they cannot be spread over several nodes; NULL = they can */
    pst_gpu_preference gpu_preference; /* empty too where it needs no GPUs */
    size_t n;
    struct trainer_gang_role {
        int count;
        trainer_needs each;
    } roles[];
} trainer_gang;

typedef struct trainer_site trainer_site;
typedef struct trainer_node trainer_node;
typedef struct trainer_lane trainer_lane;

/* One of `penstock queues`, over all sites. */
typedef struct trainer_queue {
    char *name;
    bool known; /* it is defined, or `default`; jobs may be left in one that was deleted */
    bool has_cpu, has_memory, has_gpus;
    trainer_needs quota, used;
    int per_user; /* jobs of one user that may run; -1 = any number */
    bool preempts;
    double weight;
    size_t running, waiting;
    pst_map users; /* name → how many jobs run */
    double use;    /* CPUs, a mean that forgets (queues.c), as of settled_us */
    int64_t settled_us;
} trainer_queue;

/* What keeps a job from starting that is not the nodes. */
typedef enum {
    TRAINER_LACKS_NOTHING,
    TRAINER_LACKS_USER,      /* others' jobs of the queue may pass */
    TRAINER_LACKS_GPU_QUOTA, /* those without GPUs may */
    TRAINER_LACKS_QUOTA      /* none may */
} trainer_lack;

typedef struct trainer_part { /* what of a generation is on one node */
    trainer_node *node;
    trainer_needs needs;
} trainer_part;

typedef struct trainer_job {
    pst_job_state s;
    /* From the manifest, whose text is in the state; read when the job is submitted, loaded unended, or resumed. */
    int retries;
    pst_retry_rule *retry_on; /* owned; none = after every failure of its own */
    size_t n_retry_on;
    pst_isolation isolation; /* as the node counts it: DEFAULT = any */
    int64_t deadline_us, grace_us;
    trainer_needs needs; /* of the whole gang */
    trainer_gang *gang;  /* owned; NULL until the manifest was read */
    trainer_site *site;
    trainer_node *node;  /* of the present generation, while charged: its first process's */
    trainer_part *parts; /* … and each node that is charged for it */
    size_t n_parts;
    trainer_queue *queue;
    trainer_lane *lane; /* while queued: where it stands */
    int64_t charged_us; /* since when its queue is charged; 0 = not known */
    bool queued;        /* stands in lane->at */
    bool barred;        /* queued, and held or waiting for other jobs: whatever room there is */
    bool unsaid;        /* queued, and the QUEUED event with the reason is still to come */
    bool dirty;         /* its state is to be published at the end of this step */
    bool charged;
    size_t live_at;        /* place in core->live + 1; 0 = not there */
    int64_t *committed_us; /* by process, owned: when its last checkpoint was reported; an older one is a repetition. NULL = none */
    int64_t result_us;     /* the same for results that are no model */
    int64_t checked_us;    /* when its node was last asked whether it has the generation */
    int64_t ready_us;      /* when the last command of the present generation began, by its reporter's clock; 0 = not known */
    int64_t done_us;       /* when the last one was done, likewise */
    int64_t meet_us;       /* since when a gang waits for the addresses of some; 0 = it does not */
    int64_t list_us;       /* since when one of its processes says that it waits for the list of members, which is made; 0 = none does */
    int64_t list_said_us;  /* … when it said so last */
    size_t list_at;        /* … which */
    int64_t alone_us;      /* since when the others live on although the work is done; 0 = they do not */
    bool wound_up;         /* … and were told to end */
    pst_task_array tasks;  /* of an array: read from its state when first asked for */
    bool task_ended;       /* of an array: one has, in this step */
    int64_t never_us;      /* queued, and since when its site is too small for it even when empty; 0 = it is not */
} trainer_job;

typedef struct trainer_early {
    pst_job_state s; /* as published: UNKNOWN, with the requests */
    int64_t seen_us; /* when the last of them came, or this Trainer read of it */
} trainer_early;

/* One LCM: a computer, or a part of one. */
struct trainer_node {
    char *name;
    trainer_site *site;
    bool known;       /* it has reported */
    bool accepting;   /* its last report said running */
    bool stopped;     /* … stopped */
    bool lost;        /* a person said so; until it reports again */
    bool proves;      /* it knows nonces */
    char *address;    /* by which processes on other nodes reach those on it; NULL = it takes no part of a gang */
    char **gpu_types; /* each once */
    size_t n_gpu_types;
    char *computer;      /* on whose loopback it is; NULL = not known, as where an older LCM says no more than localhost */
    bool yields;         /* it knows pre-emption; an older one would not end a victim */
    bool opens;          /* it has the key that seals secrets */
    pst_isolation floor; /* the weakest that its operator allows */
    int64_t epoch, seen_us;
    trainer_needs capacity, used;
    const trainer_job *kept_for; /* during a pass: for whom room is kept here (queue.c) */
    trainer_needs kept;          /* what others may not have: what it is to have here, and what was put beside that since */
    char *claim_id; /* the job for which others are being halted here (preempt.c); NULL = none. What becomes free is its alone */
    trainer_needs claimed;
    bool claim_stands; /* in the present pass */
};

/* Those of one queue that wait at one site, by (barred, priority down, submitted_at, training_id). */
struct trainer_lane {
    trainer_queue *queue;
    trainer_job **at;
    size_t n, cap, n_unsaid;
    /* of the present pass */
    size_t next, looks, passed;
    bool closed, blocked, no_gpus;
    double share;
    trainer_job *head; /* the first of it that found no room, in the last pass that looked; NULL = none */
    int64_t head_us;   /* since when it is */
    size_t cursor;     /* of the pass before: where it stopped passing over those that may not run (queue.c); 0 = it saw all */
};

struct trainer_site {
    char *name;
    trainer_node **nodes; /* by name */
    size_t n_nodes;
    bool had_old;         /* an LCM without a node's id has reported, at some time */
    trainer_lane **lanes; /* in the order in which they came to be */
    size_t n_lanes;
    size_t n_queue;     /* in all lanes */
    char *kept_id;      /* the job that room is kept for; NULL = none */
    trainer_part *kept; /* where, and what on each of the nodes; owned */
    size_t n_kept;
    int64_t kept_us; /* since when */
};

struct tcore {
    trainer_policy policy;
    trainer_counts counts;
    pst_map jobs, sites, nodes; /* nodes: "site/name" */
    pst_map queues;             /* name → trainer_queue */
    bool use_unread;            /* what queues have had is still to be made from the jobs */
    int64_t typical_us;         /* how long generations have lasted lately; 0 = not known */
    trainer_job **live;         /* deployed jobs, for deadlines */
    size_t n_live, cap_live;
    trainer_job **dirty;
    size_t n_dirty, cap_dirty;
    trainer_memory answered; /* "ACTION user request_id" of rejected requests without a job */
    trainer_memory deleted;  /* training ids whose tombstone is known */
    trainer_memory rejected; /* training ids of submissions that were rejected; their states are among the jobs */
    pst_map arrays;          /* those that are to be looked at, of which a task has moved */
    pst_map early;           /* training_id → trainer_early: requests whose submission has not come yet */
    pst_map asking;          /* training ids of jobs whose stores are to be asked; those that were ended meanwhile may be among them */
    size_t by_state[PST_JOB_PUBLIC_STATE_REJECTED + 1];
    int64_t now_us;       /* of the present step */
    int64_t said_us;      /* when that happened which the present step is about */
    bool unsettled;       /* now may be wrong by any amount */
    bool too_old;         /* the present request was published too long ago to be taken */
    bool after_due;       /* some job has ended or gone, or has come that waits for others */
    bool nodes_unread;    /* not every node is known yet that was known before */
    int64_t tick_us;      /* of the last tick */
    int64_t watch_us;     /* since when it has listened without a gap */
    int64_t submitted_us; /* of the last job admitted */
    trainer_actions *out;
};

/* What an event says beside its type; all optional. */
typedef struct trainer_say {
    const char *actor;      /* default "trainer" */
    const char *request_id; /* default: the submission's */
    const char *process, *reason_code, *reason;
    const int *exit_code, *signal;
    const pst_complaints *details;
} trainer_say;

static inline void tcore_set_text(char **text, const char *value) /* replaces; NULL = null */
{
    char *copy = pst_strdup(value);
    free(*text);
    *text = copy;
}

/* The files below call earlier ones only; trainer_core.c, above all of them, takes the step. */

/* ---- queues.c: the queues there are, what they may have, whose turn it is */
trainer_queue *trainer_queue_named(tcore *c, const char *name); /* made when new, unknown but for `default` */
void trainer_queue_free(void *queue);
void tcore_queue_defined(tcore *c, const char *name, const pst_queue_spec *spec); /* NULL = deleted */
/* Complains of a queue that does not exist: false. */
bool trainer_queue_check(const tcore *c, const pst_manifest *m, pst_complaints *of_manifest);
/* More than the quota of the whole queue? The sentence (free()), or NULL. */
char *trainer_queue_exceeds(const trainer_queue *q, const trainer_needs *needs);
/* What the queue's rules say against starting it now; where ret_why is not NULL with the sentence (free()). */
trainer_lack trainer_queue_lacking(const trainer_job *j, char **ret_why);
int trainer_queue_running_of(const trainer_queue *q, const char *user);
bool trainer_queue_is_over(const trainer_queue *q);         /* has more than its quota: that was lowered */
double tcore_queue_share(const tcore *c, trainer_queue *q); /* the least goes first */
void tcore_queue_charge(tcore *c, trainer_job *j);
void tcore_queue_release(tcore *c, trainer_job *j);
void tcore_queues_read_past(tcore *c); /* after a load, once: what was used */
void tcore_queues_reset(tcore *c);

/* ---- places.c: sites, nodes, what of them is taken, who waits where */
trainer_gang *trainer_gang_of(const pst_manifest *m); /* free() */
trainer_site *tcore_site(tcore *c, const char *name); /* made when new */
void trainer_site_free(void *site);
trainer_node *tcore_node(tcore *c, const char *site, const char *name); /* made when new */
void trainer_node_free(void *node);
void tcore_charge(tcore *c, trainer_job *j);         /* to s.node */
void tcore_release(tcore *c, trainer_job *j);        /* fine when it is not charged */
void trainer_queue_add(tcore *c, trainer_job *j);    /* into its site's queue; the event comes from trainer_queue_run */
void trainer_queue_remove(tcore *c, trainer_job *j); /* fine when it is not queued */
void trainer_queue_said(trainer_job *j);             /* why it waits is in its state already: no event of that */
size_t trainer_lane_barred(const trainer_lane *l);   /* where those begin that are barred; n = there is none */

/* ---- nonces.c */
/* Node, epoch and nonce of a command; their digests into the state. */
void tcore_sign(tcore *c, trainer_job *j, const trainer_node *to, pst_job_command *cmd);

/* ---- jobs.c: the jobs in memory, and what a step produces */
/* The one setter of a job's state: checks the table, numbers the event, appends it, marks the state dirty. */
pst_job_event *tcore_emit(tcore *c, trainer_job *j, enum pst_job_event_type type, pst_job_public_state to, const trainer_say *say);
/* To every node of its generation; *_to: to one of them. */
void tcore_command(tcore *c, trainer_job *j, enum pst_job_command_type command, const char *request_id, const char *reason);
void tcore_command_to(tcore *c, trainer_job *j, const char *node, enum pst_job_command_type command, const char *request_id,
                      const char *reason);
/* An answer REJECTED: of the job when there is one, else by itself with sequence 0. */
void tcore_reject(tcore *c, trainer_job *j, const char *training_id, const char *request_id, const trainer_say *say);
/* The answer to a request that is about no job: sequence 0. */
void tcore_answer(tcore *c, const char *request_id, const trainer_say *say);
void tcore_command_node(tcore *c, const trainer_node *n, enum pst_job_command_type command, const char *request_id, const char *reason);
void tcore_tell_node(tcore *c, const trainer_node *n, const char *state); /* onto `workers`, under the node's key */
void tcore_publish(tcore *c, const pst_job_state *s);                     /* borrowed until the step's actions are done */
/* The state moves in; not queued, not charged. m: its manifest where that was parsed for it just now, else NULL; the retry rules move out of it. */
trainer_job *tcore_adopt(tcore *c, pst_job_state *take, pst_manifest *m);
void tcore_read_manifest(trainer_job *j);
void tcore_changed(tcore *c, trainer_job *j); /* its state is published at the end of this step */
void tcore_live_add(tcore *c, trainer_job *j);
void tcore_remove(tcore *c, trainer_job *j);          /* DELETED: tombstone, forget; j is freed */
void tcore_expire(tcore *c, const char *training_id); /* the tombstone of what is no job; forgotten where it is known */
void tcore_forget(tcore *c, trainer_job *j);          /* from every table; j is freed */
void trainer_job_free(void *job);

/* ---- stores.c: jobs that wait for an answer of their data stores */
bool trainer_stores_needed(const pst_manifest *m);
bool trainer_stores_unasked(const trainer_job *j); /* never admitted: QUEUED, or halted meanwhile */
bool trainer_stores_awaited(const trainer_job *j);
void trainer_stores_await(tcore *c, trainer_job *j);  /* received, not admitted */
void trainer_stores_loaded(tcore *c, trainer_job *j); /* one that is queued */
void trainer_stores_answered(tcore *c, const char *training_id, const char *refused);

/* ---- placement.c: where a job may go, and if nowhere, why */
bool trainer_node_has_lease(const tcore *c, const trainer_node *n);
/* As nodes count it: what a native job leaves out, or asks for, is never too little for a sandbox. */
pst_isolation trainer_isolation_of(const pst_manifest *m);
/* Is it weaker than every node of the site allows? The sentence (free()), or NULL. */
char *trainer_site_forbids(const trainer_site *site, pst_isolation isolation);
bool trainer_node_forbids(const trainer_node *n, pst_isolation isolation);
char *trainer_node_forbidding(const trainer_node *n, pst_isolation isolation); /* the sentence (free()) */
char *trainer_node_closed(const tcore *c, const trainer_node *n);              /* why it takes nothing at the moment (free()), or NULL */
/* More than any single node of the site has? The sentence (free()), or NULL. A site that no LCM has reported: NULL. */
char *trainer_one_node_never(const trainer_site *site, const trainer_gang *gang);
bool trainer_node_is_open(const tcore *c, const trainer_node *n); /* nothing of that: it takes jobs */
/* How the job likes its devices, from 0, the best; the same for all where it has no preference. */
size_t trainer_node_gpu_rank(const trainer_node *n, const trainer_job *j);
/* Could it run there now, were the node empty? */
bool trainer_node_suits(const tcore *c, const trainer_node *n, const trainer_job *j);
/* May it be one of several nodes for the job, whatever room it has? */
bool trainer_node_takes_part(const tcore *c, const trainer_node *n, const trainer_job *j);
/* By how much it is too full for that, in parts of its size; 0 = it has room. */
double trainer_node_shortfall(const trainer_node *n, const trainer_needs *needs);
/* What the job may not have of it: what is used, and room that is kept for another (queue.c), whichever is more. */
trainer_needs trainer_node_taken(const trainer_node *n, const trainer_job *j);
/* The node that takes all of it now, or NULL and why not (free()). *ret_bound: only one node will do; others need not wait behind it. */
trainer_node *trainer_site_place(const tcore *c, const trainer_job *j, char **ret_why, bool *ret_bound);

/* Of preempt.c: the node is free for all, or what this job claims is: it waits no more. */
void tcore_claim_drop(trainer_node *n);
void tcore_claim_ends(trainer_site *s, const trainer_job *j);

/* ---- spread.c: gangs over several nodes */
/* More than any node of the site has, and more than those together where it may be spread? The sentence (free()), or NULL. A site that no LCM has reported: NULL. */
char *trainer_queue_never(const trainer_site *site, const trainer_gang *gang);
/* A node for each of its processes, all of which have room now (free()), or NULL and why not (free()). */
trainer_node **trainer_spread_place(const tcore *c, const trainer_job *j, char **ret_why);
/* On which nodes room is best kept for such a gang: where it would fit were they empty, those with most room now first (free()), or NULL. */
trainer_part *trainer_spread_keep(const tcore *c, const trainer_job *j, size_t *ret_n);
bool trainer_is_on(const trainer_job *j, const char *node);
/* The names of the nodes of its generation, each once; *ret_n of them, at least 1. Names are borrowed; free() the array. */
const char **trainer_job_nodes(const trainer_job *j, size_t *ret_n);
char *trainer_nodes_text(const trainer_job *j); /* "node a", "nodes a, b and c"; free() */

/* ---- after.c: jobs that wait for other jobs */
char *trainer_barred_text(const trainer_job *j); /* why it is; free() */
void trainer_after_check(const tcore *c, const pst_manifest *m, pst_complaints *of_manifest);
void trainer_after_take(const tcore *c, const pst_manifest *m, pst_job_state *s); /* of a new job: those that are not COMPLETED yet */
void tcore_after_run(tcore *c);

/* ---- arrays.c: job arrays (s.array) and their tasks (s.array_of) */
const pst_task_array *trainer_array_tasks(trainer_job *j);
trainer_job *trainer_array_task(const tcore *c, trainer_job *array, size_t i); /* NULL: not admitted yet, or deleted */
void trainer_array_open(tcore *c, trainer_job *j); /* a queued one whose turn has come: from now on its tasks are admitted */
bool tcore_arrays_run(tcore *c);                   /* admits tasks, ends arrays; true: the queues are to be looked at again */

/* ---- gang.c: what its processes say together */
/* Ranked are all but parameter servers and evaluators: these end the job, those serve them. */
bool trainer_is_ranked(const pst_job_process *p);
bool trainer_has_succeeded(const pst_job_process *p);
/* How many of the gang (ranked ones only, or all) are in a state of at least this rank. */
int trainer_count_from(const trainer_job *j, pst_job_process_state least, bool ranked_only);
/* Is its end the job's? The chief's is, or without one that of every ranked process. */
bool trainer_decides(const trainer_job *j, const pst_job_process *p);
/* The chief, or without one every ranked process, has ended with 0. */
bool trainer_work_is_done(const trainer_job *j);
/* Nothing lives but parameter servers, which never end by themselves. */
bool trainer_serves_until_ended(const trainer_job *j);
/* The first ranked process, which registers the model, was done with that. */
bool trainer_has_registered(const trainer_job *j);
/* Every command that decides was done, by itself, before it could be stopped: what was asked for came too late. */
bool trainer_work_has_finished(const trainer_job *j);

/* ---- ending.c: how a generation ends */
bool trainer_is_platform_down(const char *code); /* an operator stopped the platform: nobody's fault */
/* live, and being stopped because something failed: the first failure stands in s.reason_code */
bool trainer_job_is_failing(const trainer_job *j);
void tcore_start_failing(tcore *c, trainer_job *j, const char *process, const char *code,
                         const char *reason);  /* process NULL = all of it */
void tcore_conclude(tcore *c, trainer_job *j); /* nothing while a process lives; j may be freed */
/* The generation is over and the stop that was asked for is carried out: HALTED, TERMINATED, DELETED. j may be freed. */
void tcore_carry_out_stop(tcore *c, trainer_job *j);
/* The job has ended by itself before the stop that was asked for could be carried out. A deletion is carried out all the same: j is freed then. */
void tcore_drop_stop(tcore *c, trainer_job *j);
void tcore_delete_now(tcore *c, trainer_job *j, const char *actor, const char *request_id, const char *reason); /* j is freed */

/* ---- preempt.c */
/* For a job that found no room: halts who has to go, if its queue preempts and that helps. What is on the way (free()), or NULL. */
char *tcore_preempt(tcore *c, const trainer_job *j);
/* Around a pass: what no job claimed anew in it is free for all. */
void tcore_claims_begin(trainer_site *s);
void tcore_claims_end(trainer_site *s);

/* ---- queue.c */
void trainer_queue_run(tcore *c); /* deploys what fits, says why the rest waits */

/* ---- meeting.c: the addresses of a gang's processes */
void tcore_reachable(tcore *c, trainer_job *j, const pst_process_report *r);
void trainer_meeting_tick(tcore *c, trainer_job *j); /* says for whom a gang waits, and ends it when that lasts */

/* ---- reports.c */
void tcore_report(tcore *c, const pst_process_report *r);
void tcore_deadlines(tcore *c);

/* ---- nodes.c */
void tcore_worker(tcore *c, const pst_worker_state *w, int64_t seen_us);
void tcore_attend(tcore *c); /* at each tick, first */
/* The stop that is to be forced, if its node is silent: true when the job has ended by it; j may be freed then. */
bool tcore_force(tcore *c, trainer_job *j);
void tcore_silences(tcore *c); /* says which live jobs wait for a silent node, and when it is back */
void tcore_node_request(tcore *c, const pst_job_request *r, const char *by);

/* ---- answers.c: every request is answered once */
char *trainer_request_mark(const pst_job_request *r); /* "HALT:request id", under which a job remembers it; free() */
bool trainer_is_answered(const trainer_job *j, const char *mark);
void tcore_remember(trainer_job *j, const char *mark); /* an answered request; the oldest goes */
void tcore_remember_orphan(tcore *c, const pst_job_request *r);
bool tcore_orphan_answered(const tcore *c, const pst_job_request *r);
/* An answer REJECTED that belongs to no job; remembered by (action, user, request id). */
void tcore_reject_orphan(tcore *c, const pst_job_request *r, const char *training_id, const trainer_say *say);
/* A submission with a known (user, request id): the same again (counted), or another one (rejected). */
void trainer_submit_again(tcore *c, trainer_job *j, const trainer_in *in, const char *digest);
/* Of the manifest and of the code that a submission brings. ret: 65 bytes. */
void trainer_submit_digest(const trainer_in *in, char *ret);
char *trainer_asked_by(const pst_job_request *r); /* "user bar: too slow"; free() */
void trainer_check_text(pst_complaints *bad, const char *field, const char *text, bool needed);
/* The reason why a request is not taken any more (free()), or NULL. */
char *trainer_request_too_old(const tcore *c, const trainer_in *in);
bool trainer_request_of_operator(const tcore *c, const pst_job_request *r);
/* May this user touch this job? */
bool trainer_request_allowed(const tcore *c, const trainer_job *j, const pst_job_request *r);

/* ---- early.c: requests that came before their submission */
/* Keeps a request of an unknown job until its submission comes. False: there are too many, answer it now. */
bool trainer_early_keep(tcore *c, const pst_job_request *r);
bool trainer_early_has(const tcore *c, const pst_job_request *r);
void trainer_early_load(tcore *c, const pst_job_state *s);
void trainer_early_drop(tcore *c, const char *training_id);
void trainer_early_free(void *early);

/* ---- control.c: what is asked of a job that is there */
/* Answers one control request of a job that is there, or not (then it is rejected). */
void tcore_control(tcore *c, const pst_job_request *r);
/* The submission was answered: what came before it is answered now, in the order in which it came. */
void trainer_early_apply(tcore *c, const char *training_id);
void trainer_answers_tick(tcore *c, bool caught_up); /* answers what waited long enough, forgets what is old */

/* ---- requests.c */
void tcore_request(tcore *c, const trainer_in *in);
void tcore_bad_request(tcore *c, const trainer_in *in);

#endif
