/* oip.h - the Open Inference Protocol v2 between bytes and tensors, with Triton's binary tensor data extension. Knows no models and no threads.
 *
 *     oip_request *r;
 *     oip_read(body, json_len, &r, &err);                          // sizes, counts and types are checked: err names the tensor
 *     oip_match(r, info, ordered, &err);                           // the model's inputs, in its order
 *     … run …
 *     oip_write(r, &(oip_result){…}, &answer, &err);
 *
 * Bounds: a body is what the server lets in; its JSON is 8 MiB and 1,000,000 values at most, since a tree of them takes some twenty times the text;
 * larger tensors go by the binary extension. Source: the protocol's inference_rest.yaml, Triton's extension_binary_data.md. @thread any */
#ifndef PST_INFERENCE_SERVE_OIP_H
#define PST_INFERENCE_SERVE_OIP_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/json.h"
#include "engine/penstock_engine.h"

enum { OIP_TENSORS_MAX = 256 };
#define OIP_JSON_BYTES_MAX   (8u << 20)
#define OIP_JSON_VALUES_MAX  1000000u
#define OIP_ANSWER_BYTES_MAX (64u << 20)

typedef struct oip_tensor {
    char *name;
    pst_tensor t;        /* owns data */
    size_t count, bytes; /* elements; of the elements, those of texts as pointers */
    char *text;          /* PST_STR: what the pointers point into */
    size_t text_len;
} oip_tensor;

typedef struct oip_wanted {
    char *name;
    bool binary;
} oip_wanted;

typedef struct oip_request {
    char *id; /* NULL = none */
    oip_tensor *inputs;
    size_t n_inputs;
    oip_wanted *outputs; /* none: all of them */
    size_t n_outputs;
    bool binary;        /* of outputs that are not named */
    int64_t timeout_us; /* parameter `timeout`; 0 = none */
} oip_request;

/* PST_EPARSE, PST_EINVAL or PST_ELIMIT, class DATA. json_len SIZE_MAX: all of the body is JSON. */
int oip_read(pst_slice body, size_t json_len, oip_request **ret_request, pst_err *err);
void oip_request_free(oip_request *r);          /* NULL-safe */
size_t oip_request_bytes(const oip_request *r); /* that its tensors take */

/* The inputs in the model's order: names, types, ranks and sizes as it has them. ret_inputs has room for info->n_inputs; borrowed from r. */
int oip_match(const oip_request *r, const pst_model_info *info, pst_tensor *ret_inputs, pst_err *err);

/* What a run gave: rows [from, from + rows) of each output along its first dimension; rows 0 = all of it. */
typedef struct oip_result {
    const char *model;
    int version;
    const pst_model_info *info;
    const pst_tensor *outputs;
    int64_t from, rows;
} oip_result;
/* *ret_json_len: where raw tensors begin; only_json: there are none. */
int oip_write(const oip_request *r, const oip_result *result, pst_buf *ret_body, size_t *ret_json_len, bool *ret_binary, pst_err *err);
/* {"name", "versions", "platform", "inputs", "outputs"}; versions is taken */
json_t *oip_metadata(const char *name, json_t *versions, const pst_model_info *info);

const char *oip_datatype(pst_dtype t); /* "FP32"; NULL = the protocol has no word for it */
#endif
