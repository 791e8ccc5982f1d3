/* kernels.h - every kernel the table names, declared from the table itself. */
#ifndef PST_ENGINE_OPS_KERNELS_H
#define PST_ENGINE_OPS_KERNELS_H

#include "engine/ops/ops.h"
#include "engine/plan.h"

#define OP(DOMAIN, NAME, FROM, TO, RUN, ...)          int eng_op_##RUN(eng_op_ctx *c);
#define OP_PREPARED(DOMAIN, NAME, FROM, TO, RUN, ...) int eng_op_##RUN(eng_op_ctx *c), eng_prepare_##RUN(eng_op_ctx *c);
#define OP_MADE_OF(DOMAIN, NAME, FROM, TO, WHAT)      const char *eng_made_of_##WHAT(eng_expand *x);
#include "engine/ops/op_table.def"
#undef OP
#undef OP_PREPARED
#undef OP_MADE_OF

#endif
