/* outlet.h - a supervisor's way out: reports, log lines and metric points, in order, to the topics; never in the way of the learner.
 *
 *     push (main thread) ──▶ memory (bounded) ──▶ in flight ──▶ sink (Kafka) ──ack──▶ gone          all on the outlet's own thread
 *                               │ full: broker away              │ failed: put back in front, sink reset
 *                               ▼
 *                            spool files in the run dir (bounded; the oldest is dropped, a gap record takes its place)
 *
 * Log lines and metric points get their rindex when they are sent, so that the numbers have no gap whatever was left out before; the next
 * numbers live in a mapped file of the run dir and survive a kill -9. What was sent and not acknowledged when a supervisor ended may stand on
 * the topic all the same: its successor asks the sink for the last number there before it sends anything, so that no number comes twice and
 * none is left out. Reports go first, among themselves in order; they are not spooled
 * (exit.json holds the one that matters). @thread push functions: one thread; all else as said. */
#ifndef PST_LCM_SUPERVISOR_OUTLET_H
#define PST_LCM_SUPERVISOR_OUTLET_H

#include "schemas/events.h"

#define PST_OUTLET_MEMORY_MAX  (4u << 20) /* bytes waiting in memory before the spool is used */
#define PST_OUTLET_FLIGHT_MAX  (4u << 20) /* bytes handed to the sink and not acknowledged */
#define PST_OUTLET_ITEMS_MAX   5000       /* the same in records */
#define PST_OUTLET_SEGMENT_MAX (4u << 20) /* one spool file */
#define PST_OUTLET_SPOOL_MAX   (256ll << 20)

typedef enum { PST_OUTLET_REPORT = 0, PST_OUTLET_LOG, PST_OUTLET_METRIC } pst_outlet_kind;

typedef void (*sup_outlet_done)(void *arg, void *token, int code); /* code: 0 or PST_E… of the delivery */

/* Where records go: Kafka, or a test. Called on the outlet's thread only. */
typedef struct sup_sink {
    void *arg;
    /* body: Avro binary without framing, key: training_id. 0: taken, the token comes back by pump exactly once, unless reset comes first.
     * Class RETRY: not now. Class DATA: never (too large). */
    int (*send)(void *arg, pst_outlet_kind kind, const char *key, const void *body, size_t len, void *token, pst_err *err);
    void (*pump)(void *arg, int timeout_ms, sup_outlet_done done, void *done_arg);
    void (*reset)(void *arg); /* forget everything in flight, without its tokens */
    /* The highest rindex that stands on the topic among this process's records of this generation that are not older than since_ms (Unix);
     * -1 = none. Class RETRY: not now. NULL: this sink keeps nothing to ask for. */
    int (*last)(void *arg, pst_outlet_kind kind, const char *key, int generation, const char *process, int64_t since_ms,
                int64_t *ret_rindex, pst_err *err);
    void (*close)(void *arg);
} sup_sink;

typedef struct sup_outlet_conf {
    const char *run_dir;
    const char *training_id, *process;
    int generation;
    const char *reporter, *host;
    const char *node, *nonce; /* in every report; NULL = "" */
    int64_t spool_bytes_max;  /* 0 = PST_OUTLET_SPOOL_MAX */
    size_t memory_bytes_max;  /* 0 = PST_OUTLET_MEMORY_MAX */
    int begin_ms;             /* the sink is first called after this at the latest; 0 = at once */
    sup_sink sink;            /* closed by sup_outlet_close */
} sup_outlet_conf;

typedef struct sup_outlet sup_outlet;

/* Takes up what an earlier supervisor of the run dir has spooled. Starts the thread. */
int sup_outlet_open(const sup_outlet_conf *conf, sup_outlet **ret_outlet, pst_err *err);
/* The sink may be called from now on, whatever is left of begin_ms: loading and connecting a client takes the processor from a learner that is just
 * being started. Until then all that is pushed waits, as if the broker were away. A flush begins, too. */
void sup_outlet_begin(sup_outlet *o);
/* text: valid UTF-8. */
void sup_outlet_log(sup_outlet *o, pst_log_stream stream, int64_t time_us, const char *text, size_t len);
void sup_outlet_gap(sup_outlet *o, int64_t time_us, int64_t lines, int64_t bytes, const char *why);
/* training_id, generation, process and rindex are filled in. */
void sup_outlet_metric(sup_outlet *o, const pst_metric_point *point);
/* training_id, generation, process, reporter, host, node, nonce are filled in; time where it is 0. */
void sup_outlet_report(sup_outlet *o, const pst_process_report *report);
/* More than half of the spool is used although the broker answers: whoever pushes should wait rather than have the oldest dropped. */
bool sup_outlet_crowded(sup_outlet *o);
/* Waits until everything is acknowledged. give_up is asked every 100 ms; true: PST_ESTOPPED, nothing is lost yet. */
int sup_outlet_flush(sup_outlet *o, bool (*give_up)(void *arg), void *arg);

typedef struct sup_outlet_counts {
    bool begun;                         /* the sink may be called */
    int64_t acked, dropped;             /* records so far */
    int64_t acked_us;                   /* when the last was acknowledged; monotonic, 0 = none yet */
    int64_t reports;                    /* records that wait: reports, */
    int64_t waiting, waiting_bytes;     /* lines and points in memory, */
    int64_t in_flight, in_flight_bytes; /* what was handed to the sink, */
    int64_t spool_bytes;                /* and on disk */
    int64_t unspooled_lines;            /* had no room on disk, and are told as a gap */
    char trouble[200];                  /* what the sink or the disk last refused with since something was acknowledged; "" = nothing */
    int64_t trouble_us;                 /* when; monotonic */
} sup_outlet_counts;

void sup_outlet_count(sup_outlet *o, sup_outlet_counts *ret_counts);
/* Stops the thread; what was not acknowledged (reports excepted) is left in the spool, in order. */
void sup_outlet_close(sup_outlet *o);

#endif
