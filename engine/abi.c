/* abi.c - the ABI's layouts, checked where they are compiled: a struct that grew or moved a field would break programs that were built
 * against an older header. engine/README.md says what may change. */
#include "engine/abi.h"

#include "engine/penstock_engine.h"

/* What callers allocate keeps its size within one soname; the test of the installed library compares with these too. */
_Static_assert(sizeof(pst_err) == 504, "ABI");
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(pst_tensor) == 80, "ABI");
_Static_assert(sizeof(pst_value_info) == 96, "ABI");
_Static_assert(sizeof(pst_model_limits) == 96, "ABI");
_Static_assert(sizeof(pst_plan_opts) == 64, "ABI");
_Static_assert(sizeof(pst_explain_opts) == 80, "ABI");
_Static_assert(sizeof(pst_run_limits) == 64, "ABI");
#endif

int eng_reserved_check(const uint64_t *words, size_t n, const char *what, pst_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (words[i])
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "onnx", 0,
                               "%s: reserved word %zu is not 0: set the struct to zero first, or use the library version that knows it",
                               what, i);
    return 0;
}

const char *pst_engine_version(void)
{
    return PST_VERSION;
}
