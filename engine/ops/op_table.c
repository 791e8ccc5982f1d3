/* op_table.c - the table of operators as data, and the search in it. */
#include "engine/ops/kernels.h"

#include <string.h>

#define HALF        ENG_OP_HALF
#define IMPURE      ENG_OP_IMPURE
#define DRAWS       (ENG_OP_IMPURE | ENG_OP_DRAWS)
#define SHAPE(RULE) .shape = ENG_SHAPE_##RULE
#define ACT(CODE)   .act = ENG_ACT_##CODE
#define LAYER(KIND) .layer = ENG_FUSED_##KIND
#define TILE(CODE)                  \
    .tile = &(const eng_op_as_tile) \
    {                               \
        .code = ENG_TILE_##CODE     \
    }
#define TILE_A(CODE, A)                                 \
    .tile = &(const eng_op_as_tile)                     \
    {                                                   \
        .code = ENG_TILE_##CODE, .attrs = 1, .alpha = A \
    }
#define TILE_AB(CODE, A, B)                                        \
    .tile = &(const eng_op_as_tile)                                \
    {                                                              \
        .code = ENG_TILE_##CODE, .attrs = 2, .alpha = A, .beta = B \
    }
#define KERNEL(USED, PLAIN) .kernel = USED, .plain = PLAIN
#define OP(DOMAIN, NAME, FROM, TO, RUN, FLAGS, TYPE, COST, ...) \
    {.domain = DOMAIN,                                          \
     .name = NAME,                                              \
     .min_opset = FROM,                                         \
     .max_opset = TO,                                           \
     .run = eng_op_##RUN,                                       \
     .flags = FLAGS,                                            \
     .type = ENG_TYPE_##TYPE,                                   \
     .cost = ENG_COST_##COST,                                   \
     __VA_ARGS__},
#define OP_PREPARED(DOMAIN, NAME, FROM, TO, RUN, FLAGS, TYPE, COST, ...) \
    OP(DOMAIN, NAME, FROM, TO, RUN, FLAGS, TYPE, COST, .prepare = eng_prepare_##RUN, __VA_ARGS__)
#define OP_MADE_OF(DOMAIN, NAME, FROM, TO, WHAT) \
    {.domain = DOMAIN, .name = NAME, .min_opset = FROM, .max_opset = TO, .made_of = eng_made_of_##WHAT},
const eng_op eng_op_table[] = {
#include "engine/ops/op_table.def"
};
const size_t eng_op_count = sizeof eng_op_table / sizeof *eng_op_table;

const eng_op *eng_op_find(const char *domain, const char *name, int64_t opset)
{
    for (size_t i = 0; i < eng_op_count; i++) {
        const eng_op *o = &eng_op_table[i];
        if (!strcmp(o->name, name) && !strcmp(o->domain, domain) && opset >= o->min_opset && (!o->max_opset || opset <= o->max_opset))
            return o;
    }
    return NULL;
}
