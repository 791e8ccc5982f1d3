/* seen.h - what observed runs show of a step. Not installed. The plan's thread. */
#ifndef PST_ENGINE_SEEN_H
#define PST_ENGINE_SEEN_H

#include "engine/plan.h"

enum { ENG_SEEN_INPUTS = 8 };

typedef struct eng_seen {
    uint64_t runs, ns, started_ns;
    double flops, bytes, out_bytes; /* of all runs together; bytes: read and written */
    bool has_out, is_seq;
    pst_tensor out; /* of the last run; the data is not to be read */
    int n_in;
    pst_tensor in[ENG_SEEN_INPUTS];
    uint64_t best_ns; /* least of the timed runs; 0 = none */
    int probes;       /* outputs at batch 2 and 3 */
    pst_tensor probe[2];
} eng_seen;

/* Before a step, with its inputs still there, and after it. */
void eng_seen_before(eng_step *s);
void eng_seen_after(const pst_plan *p, eng_step *s);

#endif
