/* watch.c - ends a run that takes too long or that nobody wants any more: the bounds of pst_run_limits.
 *
 * A run looks between nodes and between the rounds of loops; the large products look inside (eng_op_pause). A request to stop is a load of a
 * flag, so it is asked each time; the clock takes longer than a small node does, so it is read every few looks only, and each time
 * again once two readings were far apart. Why not a timer or a second thread: the library starts none for that and owns no signal, and a
 * kernel cannot be left half way. */
#include "common/base/clock.h"
#include "engine/abi.h"
#include "engine/plan.h"
#include "engine/cpu/gemm.h"
#include "engine/workers.h"

#include <inttypes.h>
#include <string.h>

enum { EVERY_MAX = 64 };
#define CLOSE_NS 200000

void eng_watch_begin(eng_watch *w)
{
    w->on = w->limits.ms_max || w->limits.stop;
    w->every = w->to_clock = 1;
    if (w->limits.ms_max)
        w->began_ns = w->looked_ns = pst_mono_ns();
}

int eng_watch_look(eng_watch *w, pst_err *err)
{
    if (w->limits.stop && w->limits.stop(w->limits.stop_arg))
        return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "onnx", 0, "stopped by its caller while the model ran");
    if (!w->limits.ms_max || --w->to_clock)
        return 0;
    int64_t now = pst_mono_ns();
    if (now - w->looked_ns > CLOSE_NS)
        w->every = 1;
    else if (w->every < EVERY_MAX)
        w->every *= 2;
    w->to_clock = w->every;
    w->looked_ns = now;
    if ((uint64_t)(now - w->began_ns) / 1000000 < w->limits.ms_max)
        return 0;
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_DATA, "onnx", 0,
                       "the model ran longer than %" PRIu64 " ms in one evaluation: a loop without an end, or too many rows at once",
                       w->limits.ms_max);
}

int eng_op_pause(eng_op_ctx *c)
{
    return eng_watch_check(&c->plan->watch, c->err);
}

uint64_t eng_plan_steps_max(const pst_plan *p)
{
    uint64_t own = p->watch.limits.steps_max, all = p->m->limits.steps_max;
    return own && own < all ? own : all;
}

int pst_plan_limit(pst_plan *p, const pst_run_limits *limits, pst_err *err)
{
    pst_err own = {0};
    int rc = limits ? eng_reserved_check(limits->reserved, sizeof limits->reserved / sizeof *limits->reserved, "pst_run_limits",
                                         err ? err : &own)
                    : 0;
    if (rc == 0)
        p->watch = (eng_watch){.limits = limits ? *limits : (pst_run_limits){0}};
    return rc;
}

/* ---- parts of a kernel ---- */

typedef struct share_out {
    void (*compute)(void *arg, int64_t part, int worker);
    void *arg;
    int64_t first;
} share_out;

static void one_part(void *arg, int64_t part, int worker)
{
    const share_out *s = arg;
    s->compute(s->arg, s->first + part, worker);
}

int eng_op_workers(const eng_op_ctx *c, double products)
{
    return eng_workers_worth(c->plan->workers, products) ? eng_workers_count(c->plan->workers) : 1;
}

int eng_op_parts(eng_op_ctx *c, int64_t parts, double products, void (*compute)(void *arg, int64_t part, int worker), void *arg)
{
    enum { ROUND = 256 }; /* parts between two looks at the clock */
    int n = eng_op_workers(c, products);
    share_out s = {.compute = compute, .arg = arg};
    if (n > 1 && !eng_sgemm_room()) /* nothing may unwind while others compute */
        return eng_heap_none(0, c->err);
    for (int64_t some = n > 1 ? ROUND : 1; s.first < parts; s.first += some) {
        int rc = eng_op_pause(c);
        if (rc < 0)
            return rc;
        eng_workers_run(n > 1 ? c->plan->workers : NULL, parts - s.first < some ? parts - s.first : some, one_part, &s);
    }
    return 0;
}
