/* fuzz_oip.c - a body of the Open Inference Protocol: refused with a sentence, or tensors whose bytes are all there, which an answer can be made of. The
 * first two bytes say where the JSON ends; 0xffff: all of it is JSON. */
#include "inference/serve/oip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every byte that a tensor says it has, so that a sanitizer sees one that is not there. */
static size_t look_at(const oip_tensor *t)
{
    size_t sum = 0, count = 1;
    for (int d = 0; d < t->t.rank; d++)
        count *= (size_t)t->t.dims[d];
    PST_ASSERT(count == t->count && t->bytes == count * pst_dtype_size(t->t.dtype) && oip_datatype(t->t.dtype));
    for (size_t i = 0; i < t->bytes; i++)
        sum += ((const uint8_t *)t->t.data)[i];
    for (size_t i = 0; t->t.dtype == PST_STR && i < t->count; i++)
        sum += strlen(((const char *const *)t->t.data)[i]);
    return sum;
}

/* The inputs as a model's that gives back what it gets. */
static void echo(const oip_request *r)
{
    pst_value_info *values = calloc(r->n_inputs + 1, sizeof *values);
    pst_tensor *tensors = calloc(r->n_inputs + 1, sizeof *tensors);
    for (size_t i = 0; i < r->n_inputs; i++) {
        const oip_tensor *in = &r->inputs[i];
        values[i] = (pst_value_info){.name = in->name, .dtype = in->t.dtype, .rank = in->t.rank};
        memcpy(values[i].dims, in->t.dims, sizeof values[i].dims);
    }
    pst_model_info info = {.inputs = values, .n_inputs = r->n_inputs, .outputs = values, .n_outputs = r->n_inputs};
    pst_buf body = {0};
    pst_err err = {0};
    size_t json_len = 0;
    bool binary = false;
    int rc = oip_match(r, &info, tensors, &err);
    if (rc == 0)
        rc = oip_write(r, &(oip_result){"m", 1, &info, tensors, 0, 0}, &body, &json_len, &binary, &err);
    PST_ASSERT(rc == 0 ? json_len <= body.len && (binary || json_len == body.len) : err.text[0] && err.cls == PST_CLASS_DATA);
    if (rc == 0) {
        json_t *doc = NULL;
        PST_ASSERT(pst_json_parse(body.data, json_len, "the answer", &doc, NULL) == 0 || json_len > 1 << 20);
        json_decref(doc);
    }
    pst_buf_done(&body);
    free(values);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t json_len = (size_t)data[0] << 8 | data[1], sum = 0;
    oip_request *r = NULL;
    pst_err err = {0};
    int rc = oip_read((pst_slice){data + 2, size - 2}, json_len == 0xffff ? SIZE_MAX : json_len, &r, &err);
    PST_ASSERT(rc == 0 ? r != NULL : !r && err.text[0] && err.cls == PST_CLASS_DATA);
    for (size_t i = 0; r && i < r->n_inputs; i++)
        sum += look_at(&r->inputs[i]);
    if (r && sum != SIZE_MAX)
        echo(r);
    oip_request_free(r);
    return 0;
}
