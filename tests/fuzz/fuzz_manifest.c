/* fuzz_manifest.c - manifests as strangers submit them: every violation is named, and what is taken stays within the limits. */
#include "schemas/manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pst_manifest m = {0};
    pst_complaints errors = {0}, warnings = {0};
    int rc = pst_manifest_parse((const char *)data, size, &m, &errors, &warnings);
    PST_ASSERT((rc == 0) == (errors.n == 0));
    if (rc == 0)
        PST_ASSERT(m.learners >= 1 && m.retries >= 0 && m.grace_us >= 0 && m.memory_bytes >= 0);
    pst_manifest_check_served(&m, &warnings); /* also of one that is wrong otherwise */
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return 0;
}
