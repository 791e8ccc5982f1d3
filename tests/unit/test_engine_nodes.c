/* ONNX backend node tests: every folder of ONNX 1.22.0 runs, with fused steps and node by node; nothing that is claimed may fail,
 * and at least PASS_MIN must pass. The data is 54 MB and not in the repository. With arguments: runs those folders instead and prints them all. */
#include "engine/backend_test.h"

#include "common/base/buf.h"
#include "common/base/fs.h"

#include <stdlib.h>
#include <string.h>

#define PASS_MIN 1616

/* What is not claimed, and why. An UNSUPPORTED folder whose text names none of these fails the test: nothing gets lost unseen.
 * ONNX Runtime serves those of them that it knows (penstock models test --onnxruntime). */
static const struct {
    const char *what, *why;
} not_claimed[] = {
    {"NegativeLogLikelihoodLoss-", "a loss: part of training, not of an exported model"},
    {"SoftmaxCrossEntropyLoss-", "a loss"},
    {"Dropout: training mode", "training"},
    {"ai.onnx.preview.training.", "optimisers: training, and preview"},
    {"ai.onnx.preview.FlexAttention-", "preview"},
    {"LinearAttention-27", "opset 27, in no release of an exporter yet"},
    {"CausalConvWithState-27", "opset 27, in no release of an exporter yet"},
    {"ImageDecoder-", "would bring JPEG, PNG, TIFF, WebP and JPEG 2000 decoders, each an attack surface; decode before the topic"},
    {"TensorScatter-", "caches of text generation: state between runs"},
    {"DeformConv-", "rare; served by ONNX Runtime"},
    {"Scan-8", "replaced in opset 9, another signature"},
};
#define NOT_CLAIMED (sizeof not_claimed / sizeof *not_claimed)

static int known_reason(const char *line)
{
    for (size_t i = 0; i < NOT_CLAIMED; i++)
        if (strstr(line, not_claimed[i].what))
            return 0;
    printf("not ok: in no list: %s\n", line);
    return 1;
}

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
    int rc = pst_models_test(1, &dir, how, f), pass = 0, fail = 0, unsupported = 0, unknown = 0;
    fclose(f);
    const char *last = text;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strncmp(line, "FAIL", 4))
            puts(line);
        if (!strncmp(line, "UNSUPPORTED", 11))
            unknown += known_reason(line);
        last = line;
    }
    printf("%s: %s\n", name, last);
    if (sscanf(last, "%d passed, %d failed, %d unsupported", &pass, &fail, &unsupported) != 3 || fail || rc || pass < PASS_MIN || unknown) {
        printf("not ok: nothing may fail, at least %d must pass, and what is unsupported must be in the list\n", PASS_MIN);
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
