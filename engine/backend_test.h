/* backend_test.h - ONNX backend node tests: folders of model.onnx and test_data_set_N with input_K.pb and output_K.pb.
 * Source of the layout and of the tolerances: onnx/backend/test/runner of ONNX 1.22 (rtol 1e-3, atol 1e-7 unless data.json says otherwise). */
#ifndef PST_ENGINE_BACKEND_TEST_H
#define PST_ENGINE_BACKEND_TEST_H

#include "common/base/err.h"

#include <stdio.h>

typedef enum {
    PST_NODE_TEST_PASS,
    PST_NODE_TEST_FAIL,
    PST_NODE_TEST_UNSUPPORTED,
    PST_NODE_TEST_SERVED /* passed, by ONNX Runtime */
} pst_node_test_result;

enum {
    PST_NODE_TEST_NO_FUSION = 1,  /* with the reference kernels */
    PST_NODE_TEST_ONNXRUNTIME = 2 /* what the engine does not cover may be served by ONNX Runtime; otherwise it is UNSUPPORTED */
};

/* One folder. err says why it is not PASS. how: PST_NODE_TEST_… @thread any */
pst_node_test_result pst_node_test(const char *dir, unsigned how, pst_err *err);

/* `penstock models test DIR…`: a DIR with model.onnx is one test, else its sub-folders are. One line each, then counts.
 * Returns 0 when nothing failed, 1 when something did, 2 when a folder cannot be read. */
int pst_models_test(int n, char **dirs, unsigned how, FILE *out);

#endif
