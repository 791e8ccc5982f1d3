/* traces.c - one text a job, beside the core: what the Trainer decides has nothing to do with it. */
#include "trainer/traces.h"

#include "common/base/buf.h"

#include <stdlib.h>
#include <string.h>

void trainer_traces_done(trainer_traces *t)
{
    pst_map_done(&t->at, free);
}

void trainer_traces_keep(trainer_traces *t, const char *training_id, const pst_trace *of)
{
    if (!*of->text || pst_map_get(&t->at, training_id))
        return;
    pst_trace *kept = pst_alloc(sizeof *kept);
    *kept = *of;
    pst_map_put(&t->at, training_id, kept);
}

void trainer_traces_drop(trainer_traces *t, const char *training_id)
{
    free(pst_map_take(&t->at, training_id));
}

void trainer_traces_next(const trainer_traces *t, const char *training_id, bool state, const trainer_cause *cause, pst_trace *ret)
{
    const pst_trace *own = training_id ? pst_map_get(&t->at, training_id) : NULL;
    bool direct = cause && *cause->trace.text && (!training_id || !strcmp(cause->training_id, training_id));
    *ret = (pst_trace){0};
    if (direct && !(state && own))
        pst_trace_child(&cause->trace, ret);
    else if (own)
        pst_trace_child(own, ret);
}
