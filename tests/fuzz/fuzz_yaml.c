/* fuzz_yaml.c - manifests and pipeline files come from strangers. */
#include "common/base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pst_yaml y;
    pst_err err = {0};
    if (pst_yaml_parse((const char *)data, size, "fuzz", &y, &err) == 0) {
        pst_yaml_line(&y, y.root);
        pst_yaml_done(&y);
    }
    return 0;
}
