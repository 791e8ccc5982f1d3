/* op_table.c - the table of operators as data, and the search in it. */
#include "engine/ops/kernels.h"

#include <string.h>

#define HALF                                            ENG_OP_HALF
#define IMPURE                                          ENG_OP_IMPURE
#define OP(DOMAIN, NAME, FROM, TO, RUN, FLAGS)          {DOMAIN, NAME, FROM, TO, eng_op_##RUN, NULL, FLAGS},
#define OP_PREPARED(DOMAIN, NAME, FROM, TO, RUN, FLAGS) {DOMAIN, NAME, FROM, TO, eng_op_##RUN, eng_prepare_##RUN, FLAGS},
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
