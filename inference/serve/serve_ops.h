/* serve_ops.h - what this folder brings: models that answer requests, as common/platform/serving.h says. */
#ifndef PST_INFERENCE_SERVE_OPS_H
#define PST_INFERENCE_SERVE_OPS_H

#include "common/platform/serving.h"

extern const pst_serving_ops pst_serve_ops;

#endif
