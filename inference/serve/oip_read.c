/* oip_read.c - a request's JSON and raw bytes into typed tensors. The request says type and shape itself, so it is read without the model, before
 * anybody waits for one; oip_match holds it against the model afterwards. All sizes are computed with overflow looked for, and no byte is taken
 * before the count that the shape asks for is the count that there is. Data is copied out of the body: raw tensors lie there at any address. */
#include "inference/serve/oip.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    pst_dtype dtype;
} datatypes[] = {{"FP32", PST_F32},  {"FP64", PST_F64},  {"INT64", PST_I64},  {"INT32", PST_I32},  {"INT16", PST_I16},
                 {"INT8", PST_I8},   {"UINT8", PST_U8},  {"UINT16", PST_U16}, {"UINT32", PST_U32}, {"UINT64", PST_U64},
                 {"BOOL", PST_BOOL}, {"BYTES", PST_STR}, {"FP16", PST_F16},   {"BF16", PST_BF16}};

enum { N_DATATYPES = sizeof datatypes / sizeof *datatypes };

const char *oip_datatype(pst_dtype t)
{
    for (size_t i = 0; i < N_DATATYPES; i++)
        if (datatypes[i].dtype == t)
            return datatypes[i].name;
    return NULL;
}

#define REFUSE(code, ...) pst_err_set(err, code, PST_CLASS_DATA, "request", 0, __VA_ARGS__)

/* ---- numbers --------------------------------------------------------------------------------------------------------------- */

typedef struct filler {
    oip_tensor *to;
    size_t at; /* elements so far */
    pst_buf text;
    pst_err *err;
} filler;

static int whole(const filler *f, const json_t *v, void *at)
{
    static const struct {
        long long least, most;
    } ranges[] = {[PST_U8] = {0, UINT8_MAX},          [PST_I8] = {INT8_MIN, INT8_MAX},    [PST_U16] = {0, UINT16_MAX},
                  [PST_I16] = {INT16_MIN, INT16_MAX}, [PST_I32] = {INT32_MIN, INT32_MAX}, [PST_U32] = {0, UINT32_MAX},
                  [PST_I64] = {INT64_MIN, INT64_MAX}, [PST_U64] = {0, INT64_MAX}};
    pst_err *err = f->err;
    pst_dtype t = f->to->t.dtype;
    long long x = json_integer_value(v);
    if (!json_is_integer(v))
        return REFUSE(PST_EINVAL, "input %s: element %zu is no whole number, as %s wants it", f->to->name, f->at, oip_datatype(t));
    if (x < ranges[t].least || x > ranges[t].most)
        return REFUSE(PST_EINVAL, "input %s: element %zu, %lld, is outside of %s", f->to->name, f->at, x, oip_datatype(t));
    memcpy(at, &x, pst_dtype_size(t)); /* little endian, as the raw tensors are: checked when the program is compiled */
    return 0;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw tensors are little endian");

static int real(const filler *f, const json_t *v, void *at)
{
    pst_err *err = f->err;
    double x = json_number_value(v);
    float narrow = (float)x;
    if (!json_is_number(v))
        return REFUSE(PST_EINVAL, "input %s: element %zu is no number, as %s wants it", f->to->name, f->at, oip_datatype(f->to->t.dtype));
    if (f->to->t.dtype == PST_F64)
        memcpy(at, &x, sizeof x);
    else if (isinf(narrow))
        return REFUSE(PST_EINVAL, "input %s: element %zu, %g, is beyond FP32", f->to->name, f->at, x);
    else
        memcpy(at, &narrow, sizeof narrow);
    return 0;
}

/* Texts end with a NUL in the engine. Positions are kept until all bytes are there, since the buffer moves. */
static int text(filler *f, const void *data, size_t len)
{
    pst_err *err = f->err;
    if (len && memchr(data, 0, len))
        return REFUSE(PST_EINVAL, "input %s: element %zu has a zero byte in it, which texts of models cannot have", f->to->name, f->at);
    ((size_t *)f->to->t.data)[f->at] = f->text.len;
    pst_buf_add(&f->text, len ? data : "", len);
    pst_buf_addc(&f->text, 0);
    return 0;
}

static void settle_texts(filler *f)
{
    _Static_assert(sizeof(size_t) == sizeof(char *), "a position is replaced by its address");
    if (f->to->t.dtype != PST_STR)
        return;
    f->to->text_len = f->text.len;
    f->to->text = pst_buf_steal(&f->text);
    for (size_t i = 0; i < f->to->count; i++) {
        size_t at = ((size_t *)f->to->t.data)[i];
        ((const char **)f->to->t.data)[i] = f->to->text + at;
    }
}

static int element(filler *f, const json_t *v)
{
    oip_tensor *to = f->to;
    pst_err *err = f->err;
    void *at = (char *)to->t.data + f->at * pst_dtype_size(to->t.dtype);
    int rc = 0;
    switch (to->t.dtype) {
    case PST_F32:
    case PST_F64: rc = real(f, v, at); break;
    case PST_BOOL:
        if (!json_is_boolean(v))
            return REFUSE(PST_EINVAL, "input %s: element %zu is neither true nor false, as BOOL wants it", to->name, f->at);
        *(uint8_t *)at = json_is_true(v);
        break;
    case PST_STR:
        if (!json_is_string(v))
            return REFUSE(PST_EINVAL, "input %s: element %zu is no text, as BYTES wants it", to->name, f->at);
        rc = text(f, json_string_value(v), json_string_length(v));
        break;
    default: rc = whole(f, v, at);
    }
    f->at++;
    return rc;
}

/* Nested data has a list for each dimension. */
static int nested(filler *f, const json_t *v, int depth)
{
    const pst_tensor *t = &f->to->t;
    pst_err *err = f->err;
    const json_t *one;
    size_t i;
    if (depth >= t->rank || (int64_t)json_array_size(v) != t->dims[depth])
        return REFUSE(PST_EINVAL, "input %s: a list of %zu at depth %d of its data is not what its shape says", f->to->name,
                      json_array_size(v), depth + 1);
    int rc = 0;
    json_array_foreach(v, i, one)
    {
        if (json_is_array(one))
            rc = nested(f, one, depth + 1);
        else if (depth == t->rank - 1)
            rc = element(f, one);
        else
            rc = REFUSE(PST_EINVAL, "input %s: its data is neither flat nor nested as its shape says", f->to->name);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int fill_json(oip_tensor *to, const json_t *data, pst_err *err)
{
    filler f = {.to = to, .err = err};
    const json_t *one;
    size_t i;
    int rc = 0;
    if (to->t.dtype == PST_F16 || to->t.dtype == PST_BF16)
        return REFUSE(PST_EINVAL, "input %s: %s has no form in JSON; send it as raw bytes (binary_data_size)", to->name,
                      oip_datatype(to->t.dtype));
    if (!json_is_array(data) && to->t.rank)
        return REFUSE(PST_EINVAL, "input %s has no list `data`, and no binary_data_size among its parameters", to->name);
    bool is_nested = json_is_array(json_array_get(data, 0));
    if (!is_nested && json_is_array(data) && json_array_size(data) != to->count)
        return REFUSE(PST_EINVAL, "input %s: its shape asks for %zu elements, its data has %zu", to->name, to->count,
                      json_array_size(data));
    if (to->count > OIP_JSON_VALUES_MAX) /* before there is room for them: lists in lists are counted while they are read */
        return REFUSE(PST_ELIMIT,
                      "input %s: its shape asks for %zu elements; as JSON a request has %u at most, more go as raw bytes "
                      "(binary_data_size)",
                      to->name, to->count, OIP_JSON_VALUES_MAX);
    to->t.data = pst_alloc(to->bytes + 1);
    if (is_nested)
        rc = nested(&f, data, 0);
    else if (!json_is_array(data))
        rc = element(&f, data); /* of no dimension: one element */
    else
        json_array_foreach(data, i, one) if ((rc = element(&f, one)) < 0) break;
    if (rc == 0 && f.at != to->count)
        rc = REFUSE(PST_EINVAL, "input %s: its shape asks for %zu elements, its data has %zu", to->name, to->count, f.at);
    if (rc == 0)
        settle_texts(&f);
    pst_buf_done(&f.text);
    return rc;
}

/* ---- raw bytes ------------------------------------------------------------------------------------------------------------- */

static int raw_texts(oip_tensor *to, pst_slice raw, pst_err *err)
{
    filler f = {.to = to, .err = err};
    const uint8_t *p = raw.data;
    size_t left = raw.len;
    int rc = 0;
    if (to->count > raw.len / 4)
        return REFUSE(PST_EINVAL, "input %s: its shape asks for %zu texts, %zu bytes cannot hold their lengths", to->name, to->count,
                      raw.len);
    to->t.data = pst_alloc(to->bytes + 1);
    for (; rc == 0 && f.at < to->count; f.at++) {
        uint32_t len = 0;
        if (left >= sizeof len)
            memcpy(&len, p, sizeof len);
        if (left < sizeof len || len > left - sizeof len) {
            rc = REFUSE(PST_EINVAL, "input %s: element %zu says %u bytes, but the %zu bytes of the tensor end before", to->name, f.at, len,
                        raw.len);
            break;
        }
        rc = text(&f, p + sizeof len, len);
        p += sizeof len + len;
        left -= sizeof len + len;
    }
    if (rc == 0 && left)
        rc = REFUSE(PST_EINVAL, "input %s: %zu bytes are left behind its %zu texts", to->name, left, to->count);
    if (rc == 0)
        settle_texts(&f);
    pst_buf_done(&f.text);
    return rc;
}

static int fill_raw(oip_tensor *to, pst_slice raw, pst_err *err)
{
    if (to->t.dtype == PST_STR)
        return raw_texts(to, raw, err);
    if (raw.len != to->bytes)
        return REFUSE(PST_EINVAL, "input %s: its shape asks for %zu bytes of %s, binary_data_size says %zu", to->name, to->bytes,
                      oip_datatype(to->t.dtype), raw.len);
    to->t.data = pst_alloc(to->bytes + 1);
    memcpy(to->t.data, raw.len ? raw.data : "", raw.len);
    for (size_t i = 0; to->t.dtype == PST_BOOL && i < to->count; i++)
        if (((uint8_t *)to->t.data)[i] > 1)
            return REFUSE(PST_EINVAL, "input %s: byte %zu is neither 0 nor 1, as BOOL wants it", to->name, i);
    return 0;
}

/* ---- one input ------------------------------------------------------------------------------------------------------------- */

static int read_datatype(oip_tensor *to, const json_t *in, pst_err *err)
{
    const char *name = pst_json_str(in, "datatype", NULL);
    if (!name)
        return REFUSE(PST_EINVAL, "input %s has no datatype", to->name);
    for (size_t i = 0; i < N_DATATYPES; i++)
        if (!strcmp(datatypes[i].name, name)) {
            to->t.dtype = datatypes[i].dtype;
            return 0;
        }
    return REFUSE(PST_EINVAL,
                  "input %s: there is no datatype %.40s; there are FP32, FP64, INT8 to INT64, UINT8 to UINT64, BOOL, BYTES, FP16, BF16",
                  to->name, name);
}

static int read_shape(oip_tensor *to, const json_t *in, pst_err *err)
{
    const json_t *shape = json_object_get(in, "shape"), *one;
    size_t i, size = pst_dtype_size(to->t.dtype);
    if (!json_is_array(shape))
        return REFUSE(PST_EINVAL, "input %s has no list `shape`", to->name);
    if (json_array_size(shape) > PST_MAX_RANK)
        return REFUSE(PST_EINVAL, "input %s has %zu dimensions; %d is the most", to->name, json_array_size(shape), PST_MAX_RANK);
    to->count = 1;
    json_array_foreach(shape, i, one)
    {
        long long d = json_integer_value(one);
        if (!json_is_integer(one) || d < 0)
            return REFUSE(PST_EINVAL, "input %s: dimension %zu of its shape is no size; a request says each in full", to->name, i);
        if (d > INT32_MAX || __builtin_mul_overflow(to->count, (size_t)d, &to->count) || to->count > OIP_ANSWER_BYTES_MAX)
            return REFUSE(PST_ELIMIT, "input %s: its shape asks for more elements than a request can hold", to->name);
        to->t.dims[to->t.rank++] = d;
    }
    if (__builtin_mul_overflow(to->count, size, &to->bytes))
        return REFUSE(PST_ELIMIT, "input %s: its shape asks for more bytes than a request can hold", to->name);
    return 0;
}

/* raw: what is left of the bytes behind the JSON; the input's own are taken off. */
static int read_input(oip_tensor *to, const json_t *in, bool has_raw, pst_slice *raw, pst_err *err)
{
    const char *name = pst_json_str(in, "name", NULL);
    const json_t *params = json_object_get(in, "parameters"), *size = json_object_get(params, "binary_data_size");
    if (!name || !*name || strlen(name) > 512)
        return REFUSE(PST_EINVAL, "an input has no name, or one of more than 512 bytes");
    to->name = pst_strdup(name);
    if (json_object_get(params, "shared_memory_region"))
        return REFUSE(PST_EUNSUPPORTED, "input %s: shared memory is not offered; send the bytes", name);
    int rc = read_datatype(to, in, err);
    if (rc == 0)
        rc = read_shape(to, in, err);
    if (rc < 0)
        return rc;
    if (!size)
        return fill_json(to, json_object_get(in, "data"), err);
    if (json_object_get(in, "data"))
        return REFUSE(PST_EINVAL, "input %s has both `data` and binary_data_size", name);
    json_int_t n = json_integer_value(size);
    if (!json_is_integer(size) || n < 0)
        return REFUSE(PST_EINVAL, "input %s: its binary_data_size is no number of bytes", name);
    if (!has_raw)
        return REFUSE(
            PST_EINVAL,
            "input %s has a binary_data_size, but the header Inference-Header-Content-Length, which says where raw bytes begin, is missing",
            name);
    if ((uint64_t)n > raw->len)
        return REFUSE(PST_EINVAL, "input %s: its binary_data_size is %lld, but %zu bytes are left of the body", name, (long long)n,
                      raw->len);
    rc = fill_raw(to, (pst_slice){raw->data, (size_t)n}, err);
    raw->data = (const char *)raw->data + n;
    raw->len -= (size_t)n;
    return rc;
}

/* ---- the request ----------------------------------------------------------------------------------------------------------- */

static int read_wanted(oip_wanted *to, const json_t *out, bool def, pst_err *err)
{
    const json_t *params = json_object_get(out, "parameters"), *binary = json_object_get(params, "binary_data");
    const char *name = pst_json_str(out, "name", NULL);
    if (!name || !*name || strlen(name) > 512)
        return REFUSE(PST_EINVAL, "a requested output has no name, or one of more than 512 bytes");
    to->name = pst_strdup(name);
    to->binary = json_is_boolean(binary) ? json_is_true(binary) : def;
    if (binary && !json_is_boolean(binary))
        return REFUSE(PST_EINVAL, "output %s: its binary_data is neither true nor false", name);
    if (json_object_get(params, "shared_memory_region"))
        return REFUSE(PST_EUNSUPPORTED, "output %s: shared memory is not offered; leave the parameter out", name);
    if (json_object_get(params, "classification"))
        return REFUSE(PST_EUNSUPPORTED, "output %s: the classification extension is not offered; ask for the probabilities", name);
    return 0;
}

static int read_tensors(oip_request *r, const json_t *doc, bool has_raw, pst_slice raw, pst_err *err)
{
    const json_t *inputs = json_object_get(doc, "inputs"), *outputs = json_object_get(doc, "outputs"), *one;
    size_t i;
    int rc = 0;
    if (!json_is_array(inputs) || (outputs && !json_is_array(outputs)))
        return REFUSE(PST_EINVAL, "a request is an object with a list `inputs` and, if some outputs only are wanted, a list `outputs`");
    if (json_array_size(inputs) > OIP_TENSORS_MAX || json_array_size(outputs) > OIP_TENSORS_MAX)
        return REFUSE(PST_ELIMIT, "a request has %d inputs and outputs at most", OIP_TENSORS_MAX);
    r->inputs = pst_alloc((json_array_size(inputs) + 1) * sizeof *r->inputs);
    r->outputs = pst_alloc((json_array_size(outputs) + 1) * sizeof *r->outputs);
    json_array_foreach(inputs, i, one) if (rc == 0) rc = read_input(&r->inputs[r->n_inputs++], one, has_raw, &raw, err);
    if (rc == 0 && raw.len)
        rc =
            REFUSE(PST_EINVAL, "%zu bytes of the body belong to no input: the sum of binary_data_size is less than what was sent", raw.len);
    json_array_foreach(outputs, i, one) if (rc == 0) rc = read_wanted(&r->outputs[r->n_outputs++], one, r->binary, err);
    return rc;
}

static int read_head(oip_request *r, const json_t *doc, pst_err *err)
{
    const json_t *params = json_object_get(doc, "parameters"), *id = json_object_get(doc, "id");
    const json_t *binary = json_object_get(params, "binary_data_output"), *timeout = json_object_get(params, "timeout");
    if (!json_is_object(doc))
        return REFUSE(PST_EINVAL, "a request is a JSON object");
    if (id && (!json_is_string(id) || json_string_length(id) > 1024))
        return REFUSE(PST_EINVAL, "the request's id is no text, or longer than 1,024 bytes");
    if (binary && !json_is_boolean(binary))
        return REFUSE(PST_EINVAL, "the parameter binary_data_output is neither true nor false");
    if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) < 0))
        return REFUSE(PST_EINVAL, "the parameter timeout is no number of microseconds");
    r->id = pst_strdup(json_string_value(id));
    r->binary = json_is_true(binary);
    r->timeout_us = json_integer_value(timeout);
    return 0;
}

/* Each of these may become a value of some forty bytes; those inside of texts are counted too, which costs nobody anything. */
static bool too_many(const char *json, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += json[i] == ',' || json[i] == '[' || json[i] == '{';
    return n > OIP_JSON_VALUES_MAX;
}

int oip_read(pst_slice body, size_t json_len, oip_request **ret_request, pst_err *err)
{
    bool has_raw = json_len != SIZE_MAX;
    size_t len = has_raw ? json_len : body.len;
    json_t *doc = NULL;
    if (len > body.len)
        return REFUSE(PST_EINVAL, "Inference-Header-Content-Length is %zu, but the body has %zu bytes", len, body.len);
    if (len > OIP_JSON_BYTES_MAX || too_many(body.data, len))
        return REFUSE(
            PST_ELIMIT,
            "the request's JSON is larger than 8 MiB or has more than %u values; send large tensors as raw bytes (binary_data_size)",
            OIP_JSON_VALUES_MAX);
    int rc = pst_json_parse(len ? body.data : "", len, "the request", &doc, err);
    if (rc < 0)
        return rc;
    oip_request *r = pst_alloc(sizeof *r);
    rc = read_head(r, doc, err);
    if (rc == 0)
        rc = read_tensors(r, doc, has_raw, (pst_slice){(const char *)body.data + len, body.len - len}, err);
    json_decref(doc);
    if (rc < 0) {
        oip_request_free(r);
        return rc;
    }
    *ret_request = r;
    return 0;
}

void oip_request_free(oip_request *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_inputs; i++) {
        free(r->inputs[i].name);
        free(r->inputs[i].t.data);
        free(r->inputs[i].text);
    }
    for (size_t i = 0; i < r->n_outputs; i++)
        free(r->outputs[i].name);
    free(r->inputs);
    free(r->outputs);
    free(r->id);
    free(r);
}

size_t oip_request_bytes(const oip_request *r)
{
    size_t n = sizeof *r + (r->n_inputs + r->n_outputs) * sizeof *r->inputs;
    for (size_t i = 0; i < r->n_inputs; i++)
        n += r->inputs[i].bytes + r->inputs[i].text_len;
    return n;
}

/* ---- against the model ----------------------------------------------------------------------------------------------------- */

static void shape_text(char *to, size_t size, const int64_t *dims, int rank)
{
    size_t n = (size_t)snprintf(to, size, "[");
    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%lld", i ? ", " : "", (long long)dims[i]);
    if (n < size)
        snprintf(to + n, size - n, "]");
}

static int fits(const oip_tensor *in, const pst_value_info *v, pst_err *err)
{
    char wanted[160], given[160];
    if (in->t.dtype != v->dtype)
        return REFUSE(PST_EINVAL, "input %s is %s, the model wants %s", in->name, oip_datatype(in->t.dtype),
                      oip_datatype(v->dtype) ? oip_datatype(v->dtype) : "a type that the protocol does not have");
    bool fit = v->rank < 0 || v->rank == in->t.rank;
    for (int d = 0; fit && d < v->rank; d++)
        fit = v->dims[d] < 0 || v->dims[d] == in->t.dims[d];
    if (fit)
        return 0;
    shape_text(wanted, sizeof wanted, v->dims, v->rank);
    shape_text(given, sizeof given, in->t.dims, in->t.rank);
    return REFUSE(PST_EINVAL, "input %s has the shape %s, the model wants %s (-1: any size)", in->name, given, wanted);
}

/* Inputs by name, in the model's order. What the request has too much of is told first: a wrong name is the likelier slip than a missing input. */
int oip_match(const oip_request *r, const pst_model_info *info, pst_tensor *ret_inputs, pst_err *err)
{
    for (size_t k = 0; k < r->n_inputs; k++) {
        size_t times = 0, known = 0;
        for (size_t j = 0; j < r->n_inputs; j++)
            times += !strcmp(r->inputs[j].name, r->inputs[k].name);
        for (size_t i = 0; i < info->n_inputs; i++)
            known += !strcmp(info->inputs[i].name, r->inputs[k].name);
        if (times > 1)
            return REFUSE(PST_EINVAL, "input %s is there twice", r->inputs[k].name);
        if (!known)
            return REFUSE(PST_EINVAL, "the model has no input %s; its first is %s", r->inputs[k].name,
                          info->n_inputs ? info->inputs[0].name : "missing");
    }
    for (size_t i = 0; i < info->n_inputs; i++) {
        const oip_tensor *in = NULL;
        for (size_t k = 0; k < r->n_inputs && !in; k++)
            if (!strcmp(r->inputs[k].name, info->inputs[i].name))
                in = &r->inputs[k];
        if (!in)
            return REFUSE(PST_EINVAL, "input %s is missing", info->inputs[i].name);
        int rc = fits(in, &info->inputs[i], err);
        if (rc < 0)
            return rc;
        ret_inputs[i] = in->t;
    }
    for (size_t k = 0; k < r->n_outputs; k++) {
        size_t known = 0, times = 0;
        for (size_t i = 0; i < info->n_outputs; i++)
            known += !strcmp(info->outputs[i].name, r->outputs[k].name);
        for (size_t j = 0; j < r->n_outputs; j++)
            times += !strcmp(r->outputs[j].name, r->outputs[k].name);
        if (!known || times > 1)
            return REFUSE(PST_EINVAL, known ? "output %s is asked for twice" : "the model has no output %s", r->outputs[k].name);
    }
    return 0;
}
