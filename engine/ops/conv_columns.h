/* conv_columns.h - convolutions by gathered columns and a product: any number of dimensions, any groups. @thread the plan's */
#ifndef PST_ENGINE_OPS_CONV_COLUMNS_H
#define PST_ENGINE_OPS_CONV_COLUMNS_H

#include "engine/node_backend.h"

extern const eng_node_backend eng_conv_columns_backend;

#endif
