/* fuzz_lgbm_text.c - a model file in LightGBM's text from a stranger. */
#include "tests/fuzz/native_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    return native_fuzz(data, len, "lightgbm-text");
}
