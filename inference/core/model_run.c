/* model_run.c - the bounds of a model's runs. The engine asks between nodes and rounds of loops, so the flag of stop.h ends also a model whose loop has no
 * end; without this a scorer of such a model could only be killed. */
#include "inference/core/model_run.h"

#include "common/base/stop.h"
#include "common/base/clock.h"

#include <stdatomic.h>

#define GRACE_US 4000000

static bool to_end(void *arg)
{
    static _Atomic int64_t since_us; /* of the process: it is told to stop once */
    if (!pst_stop_requested()) {
        if (atomic_load_explicit(&since_us, memory_order_relaxed))
            atomic_store(&since_us, 0);
        return false;
    }
    int64_t now = pst_mono_us(), none = 0;
    atomic_compare_exchange_strong(&since_us, &none, now);
    return pst_stop_forced() || now - atomic_load(&since_us) > GRACE_US;
}

pst_run_limits score_model_run_limits(int ms)
{
    return (pst_run_limits){.ms_max = (uint64_t)ms, .stop = to_end};
}
