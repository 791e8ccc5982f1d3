/* oip_write.c - outputs of a run into an answer: JSON, and behind it the raw bytes of those outputs that were asked for so. Numbers have so many digits
 * that they read back as the same bits. JSON has no NaN and no infinities: an output that holds one is refused with the cure, since a null
 * in its place would be taken for something else by half of the clients. */
#include "inference/serve/oip.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(code, ...) pst_err_set(err, code, PST_CLASS_DATA, "answer", 0, __VA_ARGS__)

/* Rows of an output: its elements from one on. */
typedef struct part {
    const char *name;
    pst_tensor t;
    size_t first, count;
    bool binary;
} part;

static int number(pst_buf *out, const part *p, size_t i, pst_err *err)
{
    char text[40];
    const void *d = p->t.data;
    double x = 0;
    switch (p->t.dtype) {
    case PST_F32: snprintf(text, sizeof text, "%.9g", x = (double)((const float *)d)[i]); break;
    case PST_F64: snprintf(text, sizeof text, "%.17g", x = ((const double *)d)[i]); break;
    case PST_I8: snprintf(text, sizeof text, "%d", ((const int8_t *)d)[i]); break;
    case PST_U8: snprintf(text, sizeof text, "%u", ((const uint8_t *)d)[i]); break;
    case PST_I16: snprintf(text, sizeof text, "%d", ((const int16_t *)d)[i]); break;
    case PST_U16: snprintf(text, sizeof text, "%u", ((const uint16_t *)d)[i]); break;
    case PST_I32: snprintf(text, sizeof text, "%" PRId32, ((const int32_t *)d)[i]); break;
    case PST_U32: snprintf(text, sizeof text, "%" PRIu32, ((const uint32_t *)d)[i]); break;
    case PST_I64: snprintf(text, sizeof text, "%" PRId64, ((const int64_t *)d)[i]); break;
    case PST_U64: snprintf(text, sizeof text, "%" PRIu64, ((const uint64_t *)d)[i]); break;
    case PST_BOOL: snprintf(text, sizeof text, "%s", ((const uint8_t *)d)[i] ? "true" : "false"); break;
    default:
        return REFUSE(PST_EUNSUPPORTED, "output %s is %s, which has no form in JSON; ask for raw bytes (binary_data)", p->name,
                      oip_datatype(p->t.dtype));
    }
    if (!isfinite(x))
        return REFUSE(PST_EUNSUPPORTED, "output %s: element %zu is %g, which JSON cannot say; ask for raw bytes (binary_data)", p->name,
                      i - p->first, x);
    pst_buf_adds(out, text);
    return 0;
}

static int add_data(pst_buf *out, const part *p, pst_err *err)
{
    pst_buf_adds(out, ",\"data\":[");
    int rc = 0;
    for (size_t i = p->first; rc == 0 && i < p->first + p->count; i++) {
        if (i > p->first)
            pst_buf_addc(out, ',');
        if (p->t.dtype == PST_STR) {
            const char *text = ((const char *const *)p->t.data)[i];
            pst_json_quote(out, text, strlen(text));
        } else {
            rc = number(out, p, i, err);
        }
        if (out->len > OIP_ANSWER_BYTES_MAX)
            return REFUSE(PST_ELIMIT, "the answer is larger than %u MiB; ask for fewer rows or outputs", OIP_ANSWER_BYTES_MAX >> 20);
    }
    pst_buf_adds(out, "]");
    return rc;
}

static size_t raw_size(const part *p)
{
    size_t n = p->count * pst_dtype_size(p->t.dtype);
    if (p->t.dtype != PST_STR)
        return n;
    n = 4 * p->count;
    for (size_t i = p->first; i < p->first + p->count; i++)
        n += strlen(((const char *const *)p->t.data)[i]);
    return n;
}

static void add_raw(pst_buf *out, const part *p)
{
    size_t size = pst_dtype_size(p->t.dtype);
    if (p->t.dtype != PST_STR) {
        pst_buf_add(out, p->count ? (const char *)p->t.data + p->first * size : "", p->count * size);
        return;
    }
    for (size_t i = p->first; i < p->first + p->count; i++) {
        const char *text = ((const char *const *)p->t.data)[i];
        uint32_t len = (uint32_t)strlen(text);
        pst_buf_add(out, &len, sizeof len);
        pst_buf_add(out, text, len);
    }
}

static int part_of(const oip_result *result, size_t k, part *ret, pst_err *err)
{
    part p = {.name = result->info->outputs[k].name, .t = result->outputs[k]};
    size_t inner = 1;
    if (!oip_datatype(p.t.dtype))
        return REFUSE(PST_EUNSUPPORTED, "output %s is of a type that the protocol does not have", p.name);
    for (int d = 0; d < p.t.rank; d++)
        if (__builtin_mul_overflow(d || !result->rows ? (size_t)p.t.dims[d] : 1, inner, &inner))
            return REFUSE(PST_ELIMIT, "output %s is larger than an answer can be", p.name);
    p.count = inner;
    if (result->rows) {
        PST_ASSERT(p.t.rank > 0 && result->from + result->rows <= p.t.dims[0]);
        p.first = (size_t)result->from * inner;
        p.count = (size_t)result->rows * inner;
        p.t.dims[0] = result->rows;
    }
    if (p.count > OIP_ANSWER_BYTES_MAX / (pst_dtype_size(p.t.dtype) ? pst_dtype_size(p.t.dtype) : 1))
        return REFUSE(PST_ELIMIT, "output %s is larger than %u MiB; ask for fewer rows", p.name, OIP_ANSWER_BYTES_MAX >> 20);
    *ret = p;
    return 0;
}

static int add_output(pst_buf *out, const part *p, pst_err *err)
{
    pst_buf_adds(out, "{\"name\":");
    pst_json_quote(out, p->name, strlen(p->name));
    pst_buf_printf(out, ",\"datatype\":\"%s\",\"shape\":[", oip_datatype(p->t.dtype));
    for (int d = 0; d < p->t.rank; d++)
        pst_buf_printf(out, "%s%" PRId64, d ? "," : "", p->t.dims[d]);
    pst_buf_adds(out, "]");
    int rc = 0;
    if (p->binary)
        pst_buf_printf(out, ",\"parameters\":{\"binary_data_size\":%zu}", raw_size(p));
    else
        rc = add_data(out, p, err);
    pst_buf_adds(out, "}");
    return rc;
}

/* Those asked for, in their order; or all. */
static int parts_of(const oip_request *r, const oip_result *result, part *parts, size_t *ret_n, pst_err *err)
{
    size_t n = r->n_outputs ? r->n_outputs : result->info->n_outputs;
    for (size_t i = 0; i < n; i++) {
        size_t k = r->n_outputs ? 0 : i;
        while (r->n_outputs && strcmp(result->info->outputs[k].name, r->outputs[i].name) != 0)
            k++;
        int rc = part_of(result, k, &parts[i], err);
        if (rc < 0)
            return rc;
        parts[i].binary = r->n_outputs ? r->outputs[i].binary : r->binary;
    }
    *ret_n = n;
    return 0;
}

/* The JSON part names each output's size, so raw bytes come behind all of it, in the same order; how long they are is known before any is copied. */
int oip_write(const oip_request *r, const oip_result *result, pst_buf *ret_body, size_t *ret_json_len, bool *ret_binary, pst_err *err)
{
    size_t n = 0, raw = 0;
    part *parts = pst_alloc((r->n_outputs + result->info->n_outputs + 1) * sizeof *parts);
    pst_buf out = {0};
    bool binary = false;
    int rc = parts_of(r, result, parts, &n, err);
    pst_buf_adds(&out, "{\"model_name\":");
    pst_json_quote(&out, result->model, strlen(result->model));
    pst_buf_printf(&out, ",\"model_version\":\"%d\"", result->version);
    if (r->id) {
        pst_buf_adds(&out, ",\"id\":");
        pst_json_quote(&out, r->id, strlen(r->id));
    }
    pst_buf_adds(&out, ",\"outputs\":[");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (i)
            pst_buf_addc(&out, ',');
        rc = add_output(&out, &parts[i], err);
        binary |= parts[i].binary;
        raw += parts[i].binary ? raw_size(&parts[i]) : 0;
    }
    pst_buf_adds(&out, "]}");
    if (rc == 0 && raw > OIP_ANSWER_BYTES_MAX)
        rc = REFUSE(PST_ELIMIT, "the answer is larger than %u MiB; ask for fewer rows or outputs", OIP_ANSWER_BYTES_MAX >> 20);
    size_t json_len = out.len;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (parts[i].binary)
            add_raw(&out, &parts[i]);
    free(parts);
    if (rc < 0) {
        pst_buf_done(&out);
        return rc;
    }
    *ret_body = out;
    *ret_json_len = json_len;
    *ret_binary = binary;
    return 0;
}

static json_t *values(const pst_value_info *v, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (int d = 0; d < v[i].rank; d++)
            json_array_append_new(shape, json_integer(v[i].dims[d] < 0 ? -1 : v[i].dims[d]));
        if (v[i].rank < 0) /* not told by the file */
            json_array_append_new(shape, json_integer(-1));
        const char *type = oip_datatype(v[i].dtype);
        json_array_append_new(all, json_pack("{s:s, s:s, s:o}", "name", v[i].name, "datatype", type ? type : "UNKNOWN", "shape", shape));
    }
    return all;
}

json_t *oip_metadata(const char *name, json_t *versions, const pst_model_info *info)
{
    const char *platform = info->format;
    if (!strcmp(platform, "onnx"))
        platform = "onnx_onnxv1";
    else if (!strncmp(platform, "xgboost", 7))
        platform = "xgboost_native";
    else if (!strncmp(platform, "lightgbm", 8))
        platform = "lightgbm_native";
    return json_pack("{s:s, s:o, s:s, s:o, s:o}", "name", name, "versions", versions, "platform", platform, "inputs",
                     values(info->inputs, info->n_inputs), "outputs", values(info->outputs, info->n_outputs));
}
