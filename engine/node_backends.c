/* node_backends.c - which backends of single nodes there are; of two that cost the same the first here is taken. */
#include "engine/node_backend.h"

#include "engine/dnnl/dnnl_conv.h"
#include "engine/ops/conv_columns.h"
#include "engine/ops/conv_fast.h"
#include "engine/ops/conv_lanes.h"

const eng_node_backend *const eng_node_backends[] = {
#ifdef PST_HAVE_DNNL
    &eng_dnnl_conv_backend,
#endif
    &eng_conv_lanes_backend,
    &eng_conv_fast_backend,
    &eng_conv_columns_backend,
};
const size_t eng_node_backend_count = sizeof eng_node_backends / sizeof *eng_node_backends;
