/* op_table.c - the table of operators as data, and the search in it. */
#include "engine/ops/kernels.h"

#include <string.h>

#define HALF                                            PST_OP_HALF
#define IMPURE                                          PST_OP_IMPURE
#define OP(DOMAIN, NAME, FROM, TO, RUN, FLAGS)          {DOMAIN, NAME, FROM, TO, pst_op_##RUN, NULL, FLAGS},
#define OP_PREPARED(DOMAIN, NAME, FROM, TO, RUN, FLAGS) {DOMAIN, NAME, FROM, TO, pst_op_##RUN, pst_prepare_##RUN, FLAGS},
const pst_op pst_op_table[] = {
#include "engine/ops/op_table.def"
};
const size_t pst_op_count = sizeof pst_op_table / sizeof *pst_op_table;

const pst_op *pst_op_find(const char *domain, const char *name, int64_t opset)
{
    for (size_t i = 0; i < pst_op_count; i++) {
        const pst_op *o = &pst_op_table[i];
        if (!strcmp(o->name, name) && !strcmp(o->domain, domain) && opset >= o->min_opset && (!o->max_opset || opset <= o->max_opset))
            return o;
    }
    return NULL;
}
