/* onnx_fuzz.h - limits for fuzzing ONNX files: small, so that size is not the finding. */
#ifndef PST_TESTS_ONNX_FUZZ_H
#define PST_TESTS_ONNX_FUZZ_H

#include "engine/penstock_engine.h"

static const pst_model_limits onnx_fuzz_limits = {.file_bytes_max = 1 << 20,
                                                  .nodes_max = 200,
                                                  .tensor_bytes_max = 1 << 18,
                                                  .arena_bytes_max = 2 << 20,
                                                  .depth_max = 4,
                                                  .steps_max = 2000,
                                                  .backends = PST_BACKENDS_OWN};

#endif
