/* made_up.c - rows for a run whose shapes or time are wanted, not its results; see made_up.h. */
#include "engine/made_up.h"

#include "engine/heap.h"

#include <string.h>

double eng_made_up_number(uint64_t *state)
{
    double sum = 0; /* of four numbers in [-0.5, 0.5) */
    for (int k = 0; k < 4; k++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        sum += (double)(*state >> 40) / 16777216.0 - 0.5;
    }
    return sum * 1.7320508;
}

/* Like rows of a standardised table for floats; 0 for the rest, which is a valid index wherever one is wanted. */
static void fill(pst_tensor *t, int64_t n)
{
    uint64_t state = ENG_MADE_UP_SEED;
    for (int64_t i = 0; i < n && (t->dtype == PST_F32 || t->dtype == PST_F64); i++) {
        double number = eng_made_up_number(&state);
        if (t->dtype == PST_F32)
            ((float *)t->data)[i] = (float)number;
        else
            ((double *)t->data)[i] = number;
    }
    for (int64_t i = 0; i < n && t->dtype == PST_STR; i++)
        ((const char **)t->data)[i] = "";
}

int eng_made_up_inputs(const pst_model *m, int64_t batch, int64_t other, pst_tensor *ret, pst_err *err)
{
    for (size_t i = 0; i < m->info.n_inputs; i++) {
        const pst_value_info *v = &m->info.inputs[i];
        pst_tensor t = {.dtype = v->dtype, .rank = v->rank};
        size_t size = pst_dtype_size(v->dtype);
        bool first = true;
        if (m->in_kinds[i] != ENG_KIND_TENSOR || v->rank < 0 || !size)
            return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0,
                               "input %s is no tensor of a declared type and rank: its shape cannot be made up", v->name);
        for (int k = 0; k < v->rank; k++) {
            bool known = v->dims[k] >= 0;
            if (known)
                t.dims[k] = v->dims[k];
            else /* the first free one is the batch's */
                t.dims[k] = first ? batch : other;
            first = first && known;
        }
        int64_t n = eng_dims_count(t.dims, t.rank);
        if (n < 0 || (uint64_t)n > m->limits.tensor_bytes_max / size)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "input %s would be larger than %zu bytes (tensor_bytes_max)",
                               v->name, m->limits.tensor_bytes_max);
        t.data = eng_heap_alloc64((size_t)n * size + 64);
        memset(t.data, 0, (size_t)n * size + 64);
        fill(&t, n);
        ret[i] = t;
    }
    return 0;
}
