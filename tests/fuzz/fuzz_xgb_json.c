/* fuzz_xgb_json.c - a model file in XGBoost's JSON from a stranger. */
#include "tests/fuzz/native_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    return native_fuzz(data, len, "xgboost-json");
}
