/* fuzz_onnx_load.c - the ONNX parser alone: an ONNX file from a stranger is loaded and described, not planned. What a plan and its kernels make of
 * it is fuzz_onnx's matter, which is a hundred times slower. */
#include "tests/fuzz/onnx_fuzz.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    pst_model_limits limits = onnx_fuzz_limits;
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load(data, len, NULL, &limits, &m, &err) < 0) {
        if (!err.text[0]) /* an error always says something */
            abort();
        return 0;
    }
    const pst_model_info *info = pst_model_info_get(m);
    for (size_t i = 0; i < info->n_inputs; i++)
        if (info->inputs[i].rank > PST_MAX_RANK || !info->inputs[i].name)
            abort();
    pst_model_unref(m);
    return 0;
}
