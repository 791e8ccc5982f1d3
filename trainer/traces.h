/* traces.h - which trace each job belongs to: that of its submission, for as long as there is the job.
 *
 * What the Trainer says of a job because of a record about it (a halt, a report) goes on with the trace of that record. But a queued job is deployed
 * when another one ends, or a node comes: that is not to carry the other's trace. The header of a job's record on jobs.state is always the
 * job's own, so that a Trainer that starts anew knows them again. @thread one owner. */
#ifndef PST_TRAINER_TRACES_H
#define PST_TRAINER_TRACES_H

#include "common/base/map.h"
#include "common/platform/trace.h"

typedef struct trainer_traces {
    pst_map at; /* training id → pst_trace */
} trainer_traces;

/* Why a step is made: the record's trace, and the job that the record is about. {0} = for no record, as a tick. */
typedef struct trainer_cause {
    pst_trace trace;
    char training_id[104];
} trainer_cause;

void trainer_traces_done(trainer_traces *t);                                               /* empty again */
void trainer_traces_keep(trainer_traces *t, const char *training_id, const pst_trace *of); /* the first one counts; none is none */
void trainer_traces_drop(trainer_traces *t, const char *training_id);
/* What a record about this job (NULL = about none) carries. state: it is the job's state. */
void trainer_traces_next(const trainer_traces *t, const char *training_id, bool state, const trainer_cause *cause, pst_trace *ret);

#endif
