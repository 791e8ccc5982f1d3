/* fuzz_onnx.c - an ONNX file from a stranger: load, plan, one run with small inputs. Limits are small, so that size is not the finding. */
#include "engine/penstock_engine.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void run(pst_model *m, bool no_fusion)
{
    const pst_model_info *info = pst_model_info_get(m);
    pst_plan_opts opts = {.no_fusion = no_fusion};
    pst_plan *p = NULL;
    pst_tensor in[8] = {0}, out[8];
    static const char *texts[64];
    static double zeros[128]; /* 64 elements of the widest type */
    if (info->n_inputs > 8 || pst_plan_new(m, &opts, &p, NULL) < 0)
        return;
    for (size_t i = 0; i < 64; i++)
        texts[i] = "a";
    for (size_t i = 0; i < info->n_inputs; i++) {
        int64_t n = 1;
        in[i].dtype = info->inputs[i].dtype ? info->inputs[i].dtype : PST_F32;
        in[i].rank = info->inputs[i].rank < 0 ? 2 : info->inputs[i].rank;
        for (int k = 0; k < in[i].rank; k++) {
            int64_t d = info->inputs[i].rank < 0 || info->inputs[i].dims[k] < 0 ? 2 : info->inputs[i].dims[k];
            in[i].dims[k] = d;
            n *= d > 64 ? 65 : d;
            n = n > 64 ? 65 : n;
        }
        if (n > 64 || n < 0) /* too big for the constant input: not what is looked for */
            goto out;
        in[i].data = in[i].dtype == PST_STR ? (void *)texts : (void *)zeros;
    }
    pst_err err = {0};
    pst_plan_run(p, in, info->n_inputs, out, info->n_outputs < 8 ? info->n_outputs : 8, &err);
    free(pst_plan_explain(p));
out:
    pst_plan_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    pst_model_limits limits = {
        .file_bytes_max = 1 << 20, .nodes_max = 200, .tensor_bytes_max = 1 << 20, .arena_bytes_max = 4 << 20, .depth_max = 4};
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load(data, len, NULL, &limits, &m, &err) < 0)
        return 0;
    run(m, false);
    run(m, true);
    pst_model_unref(m);
    return 0;
}
