/* ONNX backend node tests: every folder of ONNX 1.22.0 runs, with fused steps and node by node; nothing that is claimed may fail,
 * and at least PASS_MIN must pass. The data is 54 MB and not in the repository. With arguments: runs those folders instead and prints them all. */
#include "engine/backend_test.h"

#include "common/base/buf.h"
#include "common/base/fs.h"

#include <stdlib.h>
#include <string.h>

#define PASS_MIN 1547

static char *find_data(void)
{
    const char *dir = getenv("PENSTOCK_ONNX_NODE_TESTS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (dir && *dir)
        return pst_strdup(dir);
    if (cache && *cache)
        return pst_sprintf("%s/penstock/onnx-node-tests", cache);
    return pst_sprintf("%s/.cache/penstock/onnx-node-tests", home ? home : "");
}

static int run_all(char *dir, unsigned how, const char *name)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int rc = pst_models_test(1, &dir, how, f), pass = 0, fail = 0, unsupported = 0;
    fclose(f);
    const char *last = text;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strncmp(line, "FAIL", 4))
            puts(line);
        last = line;
    }
    printf("%s: %s\n", name, last);
    if (sscanf(last, "%d passed, %d failed, %d unsupported", &pass, &fail, &unsupported) != 3 || fail || rc || pass < PASS_MIN) {
        printf("not ok: nothing may fail and at least %d must pass\n", PASS_MIN);
        rc = 1;
    }
    free(text);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return pst_models_test(argc - 1, argv + 1, PST_NODE_TEST_ONNXRUNTIME, stdout);
    char *dir = find_data();
    if (!pst_fs_exists(dir)) {
        printf("skipped: no ONNX node tests in %s. Cure: pip download --no-deps onnx==1.22.0, unpack onnx/backend/test/data/node from the "
               "wheel and "
               "set PENSTOCK_ONNX_NODE_TESTS to it\n",
               dir);
        free(dir);
        return 77;
    }
    int rc = run_all(dir, 0, "fused"), rc2 = run_all(dir, PST_NODE_TEST_NO_FUSION, "node by node");
    free(dir);
    return rc ? rc : rc2;
}
