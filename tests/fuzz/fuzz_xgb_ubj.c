/* fuzz_xgb_ubj.c - a model file in XGBoost's UBJSON from a stranger. */
#include "tests/fuzz/native_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    return native_fuzz(data, len, "xgboost-ubj");
}
