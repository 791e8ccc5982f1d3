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

/* ---- faults ---- */

/* Which call of the driver fails, counted from 1; on: and all behind it. 0 = none. */
typedef struct cuda_kit_fault {
    int at;
    bool on;
} cuda_kit_fault;

/* From here on, so that what a test needs beside (its model, the CPU's results) is made before. */
static inline void cuda_kit_arm(const cuda_kit_fault *f)
{
    cuda_sim_state.fail_at = f->at;
    cuda_sim_state.fail_on = f->on;
}

/* What a plan's life ended with: an error names the device or says that there is none. */
static inline void cuda_kit_says_why(int rc, const pst_err *err)
{
    if (rc < 0 && (strcmp(err->origin, "cuda") != 0 || !*err->text || (rc != PST_EIO && rc != PST_ENOMEM && rc != PST_EUNSUPPORTED)))
        fail_msg("%d: %s", rc, err->text);
}

/* Lives a plan's life as often as it makes calls of the driver, and in each life another one fails. life arms the fault, checks results, gives back all it took
 * and returns what the plan said. must_work: the CPU takes over, whatever fails. */
static inline void cuda_kit_faults(bool on, bool must_work, int (*life)(const void *arg, const cuda_kit_fault *f), const void *arg)
{
    uint64_t seed = kit_seed;
    int calls = 0, failed = 0;
    for (int at = 0; at == 0 || at <= calls; at++) {
        cuda_kit_begin(NULL);
        kit_seed = seed;
        int rc = life(arg, &(cuda_kit_fault){at, on});
        if (at == 0)
            assert_int_equal(rc, 0);
        if (must_work && rc < 0)
            fail_msg("call %d: the CPU did not take over", at);
        failed += rc < 0;
        if (at == 0)
            calls = cuda_sim_state.calls;
        assert_int_equal(cuda_sim_state.pieces, 0);
        assert_int_equal(cuda_sim_state.pinned, 0);
        assert_int_equal(cuda_sim_state.streams, 0);
        assert_true(cuda_sim_state.contexts <= 1);
    }
    assert_true(calls > 40);
    assert_true(must_work || failed > 20);
}

#endif
