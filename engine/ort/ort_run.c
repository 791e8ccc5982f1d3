/* ort_run.c - one evaluation in ONNX Runtime: the engine's values become the library's and back; see ort.h.
 * Inputs are lent without a copy, except texts and types of less than a byte; so are outputs, until the next run. */
#include "engine/ort/ort_session.h"

#include "engine/ort/ort.h"
#include "engine/ort/ort_watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct eng_ort_run {
    const pst_model *m;
    const eng_ort *o;
    eng_heap heap, run_heap; /* of its life; of its last run */
    const char **in_names, **out_names;
    ort_value **in, **out;
    eng_val *vals;     /* of the outputs */
    ort_value **items; /* of sequences */
    size_t n_items, cap_items;
    /* of the run in progress */
    const eng_val *given;
    const eng_watch *watch;
    size_t n_in, n_out;
};

#define ORT_CHECK(r, call, what, err) ort_check((r)->o->lib, (call), PST_EINVAL, what, err)

static bool is_half_byte(int dtype)
{
    return dtype == ENG_U4 || dtype == ENG_I4 || dtype == ENG_F4E2M1;
}

/* Numbers up to here are the same in both; beyond, ONNX Runtime counts otherwise than ONNX does. */
static int refuse_type(int dtype, const char *name, pst_err *err)
{
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "%s: type %s cannot be exchanged with ONNX Runtime", name,
                       pst_dtype_name((pst_dtype)dtype));
}

static void drop_values(eng_ort_run *r)
{
    const ort_api *a = &r->o->lib->api;
    for (size_t i = 0; i < r->m->info.n_inputs; i++)
        if (r->in[i]) {
            a->value_free(r->in[i]);
            r->in[i] = NULL;
        }
    for (size_t i = 0; i < r->m->info.n_outputs; i++)
        if (r->out[i]) {
            a->value_free(r->out[i]);
            r->out[i] = NULL;
        }
    for (size_t i = 0; i < r->n_items; i++)
        a->value_free(r->items[i]);
    r->n_items = r->cap_items = 0;
    r->items = NULL;
    eng_heap_release(&r->run_heap);
}

/* Room for n more values of sequences, so that storing one cannot fail. */
static void items_room(eng_ort_run *r, size_t n)
{
    r->items = eng_heap_room(r->items, r->n_items, n, &r->cap_items, sizeof *r->items);
}

/* ---- in ---- */

static int tensor_in(eng_ort_run *r, const pst_tensor *t, const char *name, ort_value **ret, pst_err *err)
{
    const ort_lib *lib = r->o->lib;
    static char nothing[8];
    int64_t n = eng_count(t);
    size_t bytes = (size_t)n * pst_dtype_size(t->dtype);
    void *data = n ? t->data : nothing;
    if ((int)t->dtype > ENG_F4E2M1)
        return refuse_type((int)t->dtype, name, err);
    if (t->dtype == PST_STR) {
        int rc = ORT_CHECK(r, lib->api.tensor_new(lib->allocator, t->dims, (size_t)t->rank, PST_STR, ret), name, err);
        return rc < 0 || !n ? rc : ORT_CHECK(r, lib->api.texts_set(*ret, t->data, (size_t)n), name, err);
    }
    if (is_half_byte((int)t->dtype)) {
        bytes = (bytes + 1) / 2;
        uint8_t *packed = eng_heap_alloc(bytes + 1);
        for (int64_t i = 0; i < n; i++)
            packed[i / 2] |= (uint8_t)((((const uint8_t *)t->data)[i] & 15) << (i % 2 * 4));
        data = packed;
    }
    return ORT_CHECK(r, lib->api.tensor_over(lib->memory, data, bytes, t->dims, (size_t)t->rank, (int)t->dtype, ret), name, err);
}

static int seq_in(eng_ort_run *r, const eng_seq *s, const char *name, ort_value **ret, pst_err *err)
{
    size_t first = r->n_items;
    items_room(r, (size_t)s->n);
    for (int64_t i = 0; i < s->n; i++) {
        if (s->items[i].kind != ENG_VAL_TENSOR)
            return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "input %s: only sequences of tensors can be given", name);
        ort_value *v = NULL;
        int rc = tensor_in(r, &s->items[i].t, name, &v, err);
        PST_ASSERT(r->n_items < r->cap_items); /* a value that could not be kept would never be freed */
        if (v)
            r->items[r->n_items++] = v;
        if (rc < 0)
            return rc;
    }
    return ORT_CHECK(r, r->o->lib->api.value_new((const ort_value *const *)r->items + first, (size_t)s->n, ORT_VALUE_SEQUENCE, ret), name,
                     err);
}

/* ---- out ---- */

static int texts_out(eng_ort_run *r, ort_value *v, pst_tensor *t, const char *name, pst_err *err)
{
    const ort_api *a = &r->o->lib->api;
    size_t n = (size_t)eng_count(t), len = 0;
    int rc = ORT_CHECK(r, a->texts_len(v, &len), name, err);
    if (rc < 0)
        return rc;
    if (len > r->m->limits.arena_bytes_max)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                           "output %s: %zu bytes of text, at most %zu are allowed (arena_bytes_max)", name, len,
                           r->m->limits.arena_bytes_max);
    size_t *at = eng_heap_array(n + 1, sizeof *at);
    char *bytes = eng_heap_bytes(len + 1), *copy = eng_heap_bytes(len + n + 1);
    const char **texts = eng_heap_array(n + 1, sizeof *texts);
    rc = n ? ORT_CHECK(r, a->texts_get(v, bytes, len, at, n), name, err) : 0;
    at[n] = len;
    for (size_t i = 0; i < n && rc == 0; i++) { /* what is between two offsets gets its end */
        size_t k = at[i + 1] - at[i];
        memcpy(copy, bytes + at[i], k);
        copy[k] = 0;
        texts[i] = copy;
        copy += k + 1;
    }
    t->data = texts;
    return rc;
}

static int shape_out(eng_ort_run *r, ort_value *v, pst_tensor *t, const char *name, pst_err *err)
{
    const ort_api *a = &r->o->lib->api;
    ort_shape *s = NULL;
    size_t rank = 0;
    int dtype = 0, rc = ORT_CHECK(r, a->tensor_shape(v, &s), name, err);
    if (rc == 0)
        rc = ORT_CHECK(r, a->shape_dtype(s, &dtype), name, err);
    if (rc == 0)
        rc = ORT_CHECK(r, a->shape_rank(s, &rank), name, err);
    if (rc == 0 && rank > PST_MAX_RANK)
        rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "output %s has %zu dimensions; at most %d are supported", name,
                         rank, PST_MAX_RANK);
    if (rc == 0)
        rc = ORT_CHECK(r, a->shape_dims(s, t->dims, rank), name, err);
    if (rc == 0 && (dtype < 1 || dtype > ENG_F4E2M1))
        rc = refuse_type(dtype, name, err);
    t->rank = (int)rank;
    t->dtype = (pst_dtype)dtype;
    if (s)
        a->shape_free(s);
    return rc;
}

static int tensor_out(eng_ort_run *r, ort_value *v, eng_val *ret, const char *name, pst_err *err)
{
    pst_tensor t = {0};
    int rc = shape_out(r, v, &t, name, err);
    if (rc == 0 && t.dtype == PST_STR)
        rc = texts_out(r, v, &t, name, err);
    else if (rc == 0)
        rc = ORT_CHECK(r, r->o->lib->api.tensor_data(v, &t.data), name, err);
    if (rc == 0 && is_half_byte((int)t.dtype)) {
        int64_t n = eng_count(&t);
        uint8_t *wide = eng_heap_alloc((size_t)n + 1);
        for (int64_t i = 0; i < n; i++)
            wide[i] = (uint8_t)(((const uint8_t *)t.data)[i / 2] >> (i % 2 * 4)) & 15;
        t.data = wide;
    }
    if (rc == 0 && !t.data)
        t.data = eng_heap_alloc(1);
    *ret = (eng_val){.kind = ENG_VAL_TENSOR, .t = t};
    return rc;
}

static int value_out(eng_ort_run *r, ort_value *v, eng_val *ret, const char *name, pst_err *err);

static int seq_out(eng_ort_run *r, ort_value *v, eng_val *ret, const char *name, pst_err *err)
{
    const ort_lib *lib = r->o->lib;
    size_t n = 0;
    int rc = ORT_CHECK(r, lib->api.value_items(v, &n), name, err);
    if (rc < 0)
        return rc;
    eng_seq *s = eng_heap_alloc(sizeof *s);
    s->refs = 1 << 20; /* ours: nobody's last reference frees it */
    s->n = (int64_t)n;
    s->items = eng_heap_array(n + 1, sizeof *s->items);
    for (size_t i = 0; i < n && rc == 0; i++) {
        ort_value *item = NULL;
        items_room(r, 1);
        rc = ORT_CHECK(r, lib->api.value_item(v, (int)i, lib->allocator, &item), name, err);
        if (rc < 0)
            break;
        r->items[r->n_items++] = item;
        rc = value_out(r, item, &s->items[i], name, err);
    }
    *ret = (eng_val){.kind = ENG_VAL_SEQ, .seq = s};
    return rc;
}

static int value_out(eng_ort_run *r, ort_value *v, eng_val *ret, const char *name, pst_err *err)
{
    const ort_api *a = &r->o->lib->api;
    int type = 0, set = 1;
    int rc = ORT_CHECK(r, a->value_is_set(v, &set), name, err);
    if (rc == 0 && !set)
        return 0; /* an empty optional */
    if (rc == 0)
        rc = ORT_CHECK(r, a->value_type(v, &type), name, err);
    if (rc < 0)
        return rc;
    if (type == ORT_VALUE_TENSOR)
        return tensor_out(r, v, ret, name, err);
    if (type == ORT_VALUE_SEQUENCE)
        return seq_out(r, v, ret, name, err);
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "output %s is neither a tensor nor a sequence of tensors", name);
}

static int session_run(void *arg, const void *options, pst_err *err)
{
    eng_ort_run *r = arg;
    return ORT_CHECK(r,
                     r->o->lib->api.session_run(r->o->session, options, r->in_names, (const ort_value *const *)r->in, r->n_in, r->out_names,
                                                r->n_out, r->out),
                     "the evaluation failed", err);
}

static int run_body(void *arg, pst_err *err)
{
    eng_ort_run *r = arg;
    const pst_model_info *info = &r->m->info;
    int rc = 0;
    for (size_t i = 0; i < r->n_in && rc == 0; i++) {
        const eng_val *v = &r->given[i];
        const char *name = info->inputs[i].name;
        if (v->kind == ENG_VAL_TENSOR)
            rc = tensor_in(r, &v->t, name, &r->in[i], err);
        else if (v->kind == ENG_VAL_SEQ)
            rc = seq_in(r, v->seq, name, &r->in[i], err);
        else
            rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "input %s: an empty value cannot be given to ONNX Runtime",
                             name);
    }
    if (rc == 0)
        rc = ort_run_watched(r->o->lib, r->watch, session_run, r, err);
    for (size_t i = 0; i < r->n_out && rc == 0; i++)
        rc = value_out(r, r->out[i], &r->vals[i], info->outputs[i].name, err);
    return rc;
}

int eng_ort_run_begin(eng_ort_run *r, const eng_watch *watch, const eng_val *in, size_t n_in, size_t n_out, pst_err *err)
{
    drop_values(r);
    memset(r->vals, 0, (r->m->info.n_outputs + 1) * sizeof *r->vals);
    r->given = in;
    r->watch = watch;
    r->n_in = n_in;
    r->n_out = n_out;
    int rc = eng_heap_run(&r->run_heap, run_body, r, err);
    r->given = NULL;
    if (rc < 0)
        drop_values(r);
    return rc;
}

void eng_ort_run_results(const eng_ort_run *r, const eng_val **ret_out, size_t n_out)
{
    for (size_t i = 0; i < n_out; i++)
        ret_out[i] = &r->vals[i];
}

static int new_body(void *arg, pst_err *err)
{
    eng_ort_run *r = arg;
    const pst_model_info *info = &r->m->info;
    r->in_names = eng_heap_array(info->n_inputs + 1, sizeof *r->in_names);
    r->out_names = eng_heap_array(info->n_outputs + 1, sizeof *r->out_names);
    r->vals = eng_heap_array(info->n_outputs + 1, sizeof *r->vals);
    ort_value **in = eng_heap_array(info->n_inputs + 1, sizeof *in);
    r->out = eng_heap_array(info->n_outputs + 1, sizeof *r->out);
    for (size_t i = 0; i < info->n_inputs; i++)
        r->in_names[i] = info->inputs[i].name;
    for (size_t i = 0; i < info->n_outputs; i++)
        r->out_names[i] = info->outputs[i].name;
    r->in = in;
    return 0;
}

int eng_ort_run_new(const pst_model *m, eng_ort_run **ret, pst_err *err)
{
    eng_ort_run *r = eng_heap_raw(sizeof *r);
    if (!r)
        return eng_heap_none(sizeof *r, err);
    r->m = m;
    r->o = __atomic_load_n(&m->ort, __ATOMIC_ACQUIRE);
    int rc = eng_heap_run(&r->heap, new_body, r, err);
    if (rc < 0) {
        eng_ort_run_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void eng_ort_run_free(eng_ort_run *r)
{
    if (!r)
        return;
    if (r->in) /* the last thing new_body makes */
        drop_values(r);
    eng_heap_release(&r->heap);
    free(r);
}
