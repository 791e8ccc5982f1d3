/* fuzz_pipeline.c - a pipeline file, from a folder and from the topic: refused with a sentence, or a pipeline within its limits. */
#include "inference/pipeline/pipeline.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int published = 0; published < 2; published++) {
        pst_pipeline *p = NULL;
        pst_err err = {0};
        int rc = (published ? pst_pipeline_parse_published : pst_pipeline_parse)((const char *)data, size, "fuzz.yml", &p, &err);
        PST_ASSERT(rc == 0 ? p && p->name && p->batch_count > 0 : !p && err.text[0]);
        pst_pipeline_free(p);
    }
    return 0;
}
