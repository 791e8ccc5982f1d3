/* cuda_kit.h - a simulated host with devices for tests of whole plans (cuda_sim.h), with the emulated kernels behind it. */
#ifndef PST_TESTS_CUDA_KIT_H
#define PST_TESTS_CUDA_KIT_H

#include "engine/cuda/context.h"
#include "engine/plan.h"
#include "tests/unit/cuda_sim.h"
#include "tests/unit/engine_kit.h"

static const cuda_sim_device cuda_kit_h200 = {"NVIDIA H200", 9, 0, (size_t)141 << 30, (size_t)140 << 30};

/* A host with one device, and no context of the test before. */
static inline int cuda_kit_begin(void **state)
{
    eng_cuda_pretend(&cuda_sim_driver, &cuda_sim_plugin);
    cuda_sim_state = (cuda_sim){
        .cuda = 13000, .version = "580.65.06", .n = 1, .device = {cuda_kit_h200}, .kernel = eng_cuda_trees_run, .net = eng_cuda_net_run};
    return 0;
}

static inline int cuda_kit_end(void **state)
{
    assert_int_equal(cuda_sim_state.pieces, 0);
    assert_int_equal(cuda_sim_state.pinned, 0);
    assert_int_equal(cuda_sim_state.streams, 0);
    assert_int_equal(cuda_sim_state.open, 0);
    eng_cuda_pretend(NULL, NULL);
    return 0;
}

static inline int cuda_kit_try(pst_model *m, const char *backend, pst_plan **ret, pst_err *err)
{
    return pst_plan_new(m, &(pst_plan_opts){.backend = backend}, ret, err);
}

static inline pst_plan *cuda_kit_plan(pst_model *m, const char *backend)
{
    pst_plan *p = NULL;
    pst_err err = {0};
    if (cuda_kit_try(m, backend, &p, &err) < 0)
        fail_msg("%s: %s", backend ? backend : "no backend named", err.text);
    return p;
}

/* m has no plan on a device, and it is said why; where the CPU may take it, it does. Takes m. */
static inline void cuda_kit_refused(pst_model *m, const char *backend, int code, const char *says)
{
    pst_plan *p = NULL;
    pst_err err = {0};
    int rc = cuda_kit_try(m, backend, &p, &err);
    if (rc != code || !strstr(err.text, says))
        fail_msg("%s: %d \"%s\", and \"%s\" was expected", backend, rc, err.text, says);
    pst_plan_free(p);
    p = cuda_kit_plan(m, "auto");
    assert_string_equal(p->computes, "cpu");
    if (!strstr(p->computes_why, says) && !strstr(p->computes_why, "by estimate the CPU is quicker"))
        fail_msg("auto: \"%s\" for \"%s\"", p->computes_why, says);
    pst_plan_free(p);
    pst_model_unref(m);
}

#endif
