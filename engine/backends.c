/* backends.c - which backends there are. A plan that names none gets the cheapest that supports its model; of equals the first here, and those behind
 * it are asked to take over what it cannot do after all. */
#include "engine/backend.h"

#include "engine/cuda/cuda_backend.h"
#include "engine/estimate.h"
#include "engine/ort/ort_plan.h"

#include <stdio.h>
#include <string.h>

static const eng_backend *const all[] = {&eng_cuda_backend, &eng_cpu_backend, &eng_ort_backend};
enum { ALL = sizeof all / sizeof *all };

static int take(pst_plan *p, const eng_backend *b, pst_err *err)
{
    int rc = b->supports(p, err);
    if (rc < 0)
        return rc;
    p->backend = b;
    return b->prepare(p, err);
}

/* The first behind `after` that takes p over. */
static int take_over(pst_plan *p, size_t after, bool in_run, pst_err *err)
{
    for (size_t i = after + 1; i < ALL; i++)
        if (all[i]->take_over && all[i]->take_over(p, in_run, err) == 0) {
            p->backend = all[i];
            return 0;
        }
    return PST_EUNSUPPORTED;
}

/* "cuda:1" is the device 1 of cuda. */
static bool is_called(const eng_backend *b, const char *name)
{
    size_t n = strlen(b->name);
    return !strncmp(name, b->name, n) && (!name[n] || (name[n] == ':' && b == &eng_cuda_backend));
}

static int named(pst_plan *p, pst_err *err)
{
    for (size_t i = 0; i < ALL; i++)
        if (is_called(all[i], p->opts.backend))
            return take(p, all[i], err);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "onnx", 0, "backend %s: not one of engine, onnxruntime, cuda, cuda:N, auto",
                       p->opts.backend);
}

/* Without one that supports the model: the last, which will say why. */
static int cheapest(const pst_plan *p, size_t *ret, pst_err *err)
{
    int64_t rows = p->device_may ? eng_cuda_rows_most(p) : eng_estimate_rows(p->m);
    double least = 0;
    bool any = false;
    *ret = ALL - 1;
    for (size_t i = 0; i < ALL; i++) {
        double ns;
        if (all[i]->supports(p, &(pst_err){0}) < 0)
            continue;
        int rc = all[i]->cost(p, rows, &ns, err);
        if (rc < 0)
            return rc;
        if (!any || ns < least) {
            *ret = i;
            least = ns;
        }
        any = true;
    }
    return 0;
}

/* Of a plan that a device might have computed: who does, and why not the device. */
static void say_who(pst_plan *p)
{
    pst_err why = {0};
    if (*p->computes)
        return;
    snprintf(p->computes, sizeof p->computes, "cpu");
    if (p->device_may && eng_cuda_backend.supports(p, &why) == 0)
        snprintf(why.text, sizeof why.text, "by estimate the CPU is quicker");
    snprintf(p->computes_why, sizeof p->computes_why, "%.*s", (int)sizeof p->computes_why - 1, why.text);
}

static int choose(pst_plan *p, pst_err *err)
{
    if (p->opts.backend)
        return named(p, err);
    size_t i;
    int before = err->code, rc = cheapest(p, &i, err);
    if (rc == 0)
        rc = take(p, all[i], err);
    if (rc < 0 && before == 0 && err->code < 0)
        rc = err->code;
    return rc == PST_EUNSUPPORTED ? take_over(p, i, false, err) : rc;
}

int eng_backend_choose(pst_plan *p, pst_err *err)
{
    int rc = choose(p, err);
    if (rc == 0)
        say_who(p);
    return rc;
}

int eng_backend_next(pst_plan *p, pst_err *err)
{
    size_t i = 0;
    while (i < ALL && all[i] != p->backend)
        i++;
    return p->opts.backend ? PST_EUNSUPPORTED : take_over(p, i, true, err);
}
