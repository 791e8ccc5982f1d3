/* onnx_tensor.c - untrusted bytes: the wire pre-scan, TensorProto and external data (onnx_read.h). protobuf-c recurses without a bound and allocates
 * for each field, so its input is walked first and refused by the limits; sizes that a tensor claims are held against what there is before
 * memory is asked for; external files lie below the model's folder or are refused. */
#include "engine/onnx_read.h"

#include "common/base/fs.h"
#include "engine/onnx.pb-c.h"

#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIELDS_MAX        ((size_t)48 << 20)
#define FIELDS_OF_ONE_MAX ((size_t)16 << 20) /* protobuf-c notes every field of a message (40 bytes) before it reads them */
#define PARTS_MAX         ((size_t)4 << 20)  /* messages, texts and unknown fields: each costs an allocation */

void eng_limits_default(pst_model_limits *l)
{
    if (!l->file_bytes_max)
        l->file_bytes_max = (size_t)512 << 20;
    if (!l->nodes_max)
        l->nodes_max = 100000;
    if (!l->tensor_bytes_max)
        l->tensor_bytes_max = (size_t)512 << 20;
    if (!l->arena_bytes_max)
        l->arena_bytes_max = (size_t)1 << 30;
    if (!l->depth_max)
        l->depth_max = 16;
    if (!l->steps_max)
        l->steps_max = 200000000;
}

typedef struct scan {
    const pst_model_limits *limits;
    size_t fields, parts, nodes, numbers;
    int depth_max;
    pst_err *err;
} scan;

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;
        v |= shift < 64 ? (uint64_t)(b & 127) << shift : 0;
        if (!(b & 128)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static int scan_message(scan *s, const ProtobufCMessageDescriptor *d, const uint8_t *p, size_t len, int depth);

/* Packed integers: a byte of the file may become eight of memory. */
static int scan_numbers(scan *s, const uint8_t *p, size_t len)
{
    size_t n = 0, max = s->limits->file_bytes_max / 4;
    for (size_t i = 0; i < len; i++)
        n += p[i] < 128;
    s->numbers += n;
    return s->numbers <= max ? 0
                             : pst_err_set(s->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                                           "the model lists more than %zu integers; save it with raw tensor data", max);
}

static int scan_bytes(scan *s, const ProtobufCFieldDescriptor *f, const uint8_t **p, const uint8_t *end, int depth)
{
    uint64_t n;
    if (!varint(p, end, &n) || n > (uint64_t)(end - *p))
        return pst_err_set(s->err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0,
                           "no ONNX file: a field reaches beyond the end of its message; the file was cut short, or is of another kind");
    const uint8_t *at = *p;
    *p += n;
    bool packed = f && f->type != PROTOBUF_C_TYPE_MESSAGE && f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_BYTES;
    if (!packed && ++s->parts > PARTS_MAX)
        return pst_err_set(s->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model has more than %zu messages and texts", PARTS_MAX);
    if (packed && (f->type == PROTOBUF_C_TYPE_INT64 || f->type == PROTOBUF_C_TYPE_UINT64 || f->type == PROTOBUF_C_TYPE_INT32))
        return scan_numbers(s, at, (size_t)n);
    if (!f || f->type != PROTOBUF_C_TYPE_MESSAGE)
        return 0;
    const ProtobufCMessageDescriptor *sub = f->descriptor;
    if (sub == &pst_onnx__node_proto__descriptor && ++s->nodes > s->limits->nodes_max)
        return pst_err_set(s->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model has more than %zu nodes (nodes_max)",
                           s->limits->nodes_max);
    return scan_message(s, sub, at, (size_t)n, depth + 1);
}

/* The decoder allocates whatever a message announces, so its bytes are walked once before, by lengths and counts alone, and every limit is
 * met here; nothing is kept. */
static int scan_message(scan *s, const ProtobufCMessageDescriptor *d, const uint8_t *p, size_t len, int depth)
{
    if (depth > s->depth_max)
        return pst_err_set(s->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model nests graphs deeper than %d (depth_max)",
                           s->limits->depth_max);
    const uint8_t *end = p + len;
    size_t own = 0;
    while (p < end) {
        uint64_t key, skip;
        if (!varint(&p, end, &key) || !(key >> 3) || key >> 3 > 0x1fffffff)
            return pst_err_set(s->err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0,
                               "no model that can be read: neither ONNX (bad field key) nor a file of XGBoost or LightGBM; is it broken, "
                               "or of another kind?");
        if (++s->fields > FIELDS_MAX || ++own > FIELDS_OF_ONE_MAX)
            return pst_err_set(s->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model has more than %zu fields, or %zu in one message",
                               FIELDS_MAX, FIELDS_OF_ONE_MAX);
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, (unsigned)(key >> 3));
        if (!f && ++s->parts > PARTS_MAX)
            return pst_err_set(s->err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model has more than %zu unknown fields", PARTS_MAX);
        int rc = 0;
        switch (key & 7) {
        case 0: rc = varint(&p, end, &skip) ? 0 : -1; break;
        case 1: rc = end - p >= 8 ? (p += 8, 0) : -1; break;
        case 5: rc = end - p >= 4 ? (p += 4, 0) : -1; break;
        case 2:
            rc = scan_bytes(s, f, &p, end, depth);
            if (rc < 0)
                return rc;
            break;
        default: rc = -1; break;
        }
        if (rc < 0)
            return pst_err_set(s->err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0,
                               "no model that can be read: neither ONNX (bad field %u of %s) nor a file of XGBoost or LightGBM; is it "
                               "broken, or of another kind?",
                               (unsigned)(key >> 3), d->short_name);
    }
    return 0;
}

int eng_onnx_scan(const ProtobufCMessageDescriptor *root, const void *data, size_t len, const pst_model_limits *limits, pst_err *err)
{
    /* graph → node → attribute → graph is three levels per nested graph; types and tensors end within eight more */
    scan s = {.limits = limits, .err = err, .depth_max = 3 * (limits->depth_max + 1) + 8};
    return scan_message(&s, root, data, len, 0);
}

int eng_onnx_take(eng_onnx_room *room, size_t bytes, const char *what, pst_err *err)
{
    if (bytes > room->left)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                           "%s: the model's tensors and texts take more than %zu bytes beside the file (file_bytes_max)", what, room->max);
    room->left -= bytes;
    return 0;
}

/* Digits and nothing else. */
static bool read_number(const char *s, uint64_t *ret)
{
    uint64_t v = 0;
    if (!*s)
        return false;
    for (; *s; s++)
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return false;
    *ret = v;
    return true;
}

typedef struct place {
    const char *location;
    uint64_t offset, length;
} place;

static int external_place(const PstOnnx__TensorProto *tp, const char *name, size_t want, place *ret, pst_err *err)
{
    *ret = (place){.length = want};
    for (size_t i = 0; i < tp->n_external_data; i++) {
        const char *k = tp->external_data[i]->key, *v = tp->external_data[i]->value;
        if (!k || !v)
            continue;
        if (!strcmp(k, "location"))
            ret->location = v;
        else if ((!strcmp(k, "offset") && !read_number(v, &ret->offset)) || (!strcmp(k, "length") && !read_number(v, &ret->length)))
            return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: external data with %s '%.40s', which is no number",
                               name, k, v);
    }
    if (!ret->location || !*ret->location)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: external data without a location", name);
    if (ret->length != want || ret->offset > INT64_MAX - want)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: external data of %" PRIu64 " bytes, its shape needs %zu",
                           name, ret->length, want);
    return 0;
}

/* External data: location, offset and length are texts; the file must lie beneath the model's folder, links are not followed, and
 * a named pipe in it does not make us wait. */
static int read_external(eng_zone *zone, PstOnnx__TensorProto *tp, eng_onnx_room *room, size_t want, pst_err *err)
{
    const char *name = tp->name ? tp->name : "";
    place at;
    int rc = external_place(tp, name, want, &at, err);
    if (rc < 0)
        return rc;
    if (room->base_dirfd < 0)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0,
                           "tensor %s keeps its data outside the file (%s); save the model as one file", name, at.location);
    rc = eng_onnx_take(room, want, "external data", err);
    if (rc < 0)
        return rc;
    int fd = pst_fs_open_beneath(room->base_dirfd, at.location, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", errno,
                           "tensor %s: external data %s cannot be opened inside the model's folder (links are not followed): %s", name,
                           at.location, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: external data %s is no file", name, at.location);
        goto out;
    }
    if ((uint64_t)st.st_size < at.offset + want) {
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: external data %s is shorter than offset + length", name,
                         at.location);
        goto out;
    }
    char *data = eng_zone_try(zone, want ? want : 1);
    if (!data) {
        rc = eng_heap_none(want, err);
        goto out;
    }
    for (size_t got = 0; got < want;) {
        ssize_t n = pread(fd, data + got, want - got, (off_t)(at.offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            rc = pst_err_set(err, PST_EIO, PST_CLASS_DATA, "onnx", errno, "tensor %s: reading external data %s failed", name, at.location);
            goto out;
        }
        got += (size_t)n;
    }
    /* From here on the tensor holds its data itself: whoever writes the model again (ort_model.c) needs no file. */
    tp->has_raw_data = 1;
    tp->raw_data = (ProtobufCBinaryData){.len = want, .data = (uint8_t *)data};
    tp->has_data_location = 0;
    tp->data_location = 0;
    tp->n_external_data = 0;
out:
    close(fd);
    return rc;
}

static int bits_of(int dtype)
{
    switch (dtype) {
    case ENG_U4:
    case ENG_I4:
    case ENG_F4E2M1: return 4;
    case ENG_U2:
    case ENG_I2: return 2;
    default: return (int)pst_dtype_size((pst_dtype)dtype) * 8;
    }
}

/* Several elements in a byte, low bits first, become one byte each. */
static void unpack_bits(const uint8_t *src, uint8_t *dst, int64_t n, int bits)
{
    int per = 8 / bits;
    for (int64_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(src[i / per] >> (i % per * bits)) & (uint8_t)((1 << bits) - 1);
}

/* Whether the typed list of this type holds exactly n values; asked before anything is allocated. */
static bool list_fits(const PstOnnx__TensorProto *tp, int dtype, size_t n)
{
    int bits = bits_of(dtype);
    switch (dtype) {
    case PST_F32: return tp->n_float_data == n;
    case ENG_C64: return tp->n_float_data == 2 * n;
    case PST_F64: return tp->n_double_data == n;
    case ENG_C128: return tp->n_double_data == 2 * n;
    case PST_I64: return tp->n_int64_data == n;
    case PST_U64:
    case PST_U32: return tp->n_uint64_data == n;
    case PST_STR: return tp->n_string_data == n;
    default: return tp->n_int32_data == (bits < 8 ? (n * (size_t)bits + 7) / 8 : n);
    }
}

/* Typed lists instead of raw bytes. Everything up to 32 bits sits in int32_data: halves as bit patterns, packed types as packed bytes. */
static void *from_lists(eng_zone *zone, const PstOnnx__TensorProto *tp, int dtype, size_t n)
{
    size_t size = pst_dtype_size((pst_dtype)dtype);
    int bits = bits_of(dtype);
    char *d = eng_zone_alloc(zone, n * size + 1);
    const void *same = dtype == PST_F32 || dtype == ENG_C64    ? (const void *)tp->float_data
                       : dtype == PST_F64 || dtype == ENG_C128 ? (const void *)tp->double_data
                       : dtype == PST_I64                      ? (const void *)tp->int64_data
                       : dtype == PST_U64                      ? (const void *)tp->uint64_data
                                                               : NULL;
    if (same && n)
        memcpy(d, same, n * size);
    if (same || !n)
        return d;
    for (size_t i = 0; i < n; i++) {
        if (dtype == PST_STR) {
            ((const char **)d)[i] = eng_zone_strdup(zone, (const char *)tp->string_data[i].data, tp->string_data[i].len);
        } else if (dtype == PST_U32) {
            ((uint32_t *)d)[i] = (uint32_t)tp->uint64_data[i];
        } else if (bits < 8) {
            size_t per = 8 / (size_t)bits;
            d[i] = (char)((uint8_t)tp->int32_data[i / per] >> (i % per * (size_t)bits) & ((1 << bits) - 1));
        } else {
            memcpy(d + i * size, &tp->int32_data[i], size); /* little endian: the low bytes */
        }
    }
    return d;
}

/* Before lists are copied. A text takes its own bytes and, in the zone, 64 at least. */
static int take_lists(const PstOnnx__TensorProto *tp, int dtype, size_t n, size_t size, eng_onnx_room *room, pst_err *err)
{
    size_t bytes = n * size;
    for (size_t i = 0; dtype == PST_STR && i < n; i++)
        bytes += 64 + tp->string_data[i].len;
    return eng_onnx_take(room, bytes, tp->name && *tp->name ? tp->name : "a tensor", err);
}

/* The data lie in one of three places: a file outside, raw_data (both stay where they are), or a list by type, which is copied. Elements of
 * less than a byte are spread to one each: no kernel knows packed ones. */
int eng_onnx_tensor(eng_zone *zone, PstOnnx__TensorProto *tp, eng_onnx_room *room, const pst_model_limits *limits, pst_tensor *ret,
                    pst_err *err)
{
    const char *name = tp->name ? tp->name : "";
    int dtype = tp->data_type;
    size_t size = dtype > 0 && dtype < ENG_DTYPE_END ? pst_dtype_size((pst_dtype)dtype) : 0;
    if (!size)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: unknown data type %d", name, dtype);
    if (tp->n_dims > PST_MAX_RANK)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "tensor %s has %zu dimensions; at most %d are supported", name,
                           tp->n_dims, PST_MAX_RANK);
    pst_tensor t = {.dtype = (pst_dtype)dtype, .rank = (int)tp->n_dims};
    for (int i = 0; i < t.rank; i++)
        t.dims[i] = tp->dims[i];
    int64_t n = eng_dims_count(t.dims, t.rank);
    if (n < 0 || (uint64_t)n > limits->tensor_bytes_max / size)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "tensor %s: bad shape or more than %zu bytes (tensor_bytes_max)",
                           name, limits->tensor_bytes_max);
    int bits = bits_of(dtype);
    size_t bytes = ((size_t)n * (size_t)bits + 7) / 8;
    void *raw = NULL;
    int rc = 0;
    bool external = tp->has_data_location && tp->data_location == 1;
    if (external) {
        if (dtype == PST_STR)
            return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: texts cannot be external", name);
        if ((rc = read_external(zone, tp, room, bytes, err)) < 0)
            return rc;
        raw = tp->raw_data.data;
    } else if (tp->has_raw_data && dtype != PST_STR) {
        if (tp->raw_data.len != bytes)
            return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: %zu bytes of data, its shape needs %zu", name,
                               tp->raw_data.len, bytes);
        raw = tp->raw_data.data;
    } else if (!list_fits(tp, dtype, (size_t)n)) {
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "tensor %s: the number of values does not match its shape", name);
    } else if ((rc = take_lists(tp, dtype, (size_t)n, size, room, err)) < 0) {
        return rc;
    } else {
        raw = from_lists(zone, tp, dtype, (size_t)n);
        bits = 8;
    }
    if (bits < 8) {
        if ((rc = eng_onnx_take(room, (size_t)n, "packed values", err)) < 0)
            return rc;
        uint8_t *wide = eng_zone_alloc(zone, (size_t)n + 1);
        unpack_bits(raw, wide, n, bits);
        raw = wide;
    }
    if (!raw)
        raw = eng_zone_alloc(zone, 1);
    t.data = raw;
    *ret = t;
    return 0;
}

/* Made dense, since no kernel knows another form; room for it is asked for first, because a few bytes can name a large shape. Indices are
 * places in the flattened tensor, or one row of coordinates per value. */
int eng_onnx_sparse(eng_zone *zone, PstOnnx__SparseTensorProto *sp, eng_onnx_room *room, const pst_model_limits *limits, pst_tensor *ret,
                    pst_err *err)
{
    pst_tensor v, ix, t = {.rank = (int)sp->n_dims};
    if (!sp->values || !sp->indices || sp->n_dims > PST_MAX_RANK)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0,
                           "a sparse tensor without values or indices, or of too many dimensions");
    int rc = eng_onnx_tensor(zone, sp->values, room, limits, &v, err);
    if (rc == 0)
        rc = eng_onnx_tensor(zone, sp->indices, room, limits, &ix, err);
    if (rc < 0)
        return rc;
    t.dtype = v.dtype;
    for (int i = 0; i < t.rank; i++)
        t.dims[i] = sp->dims[i];
    int64_t n = eng_dims_count(t.dims, t.rank), nnz = eng_count(&v), per = ix.rank == 2 ? ix.dims[1] : 1;
    size_t size = pst_dtype_size(t.dtype);
    bool shape_ok = ix.dtype == PST_I64 && v.rank == 1 && (ix.rank == 1 || (ix.rank == 2 && per == t.rank)) && ix.dims[0] == nnz;
    if (n < 0 || (uint64_t)n > limits->tensor_bytes_max / size || !shape_ok || t.dtype == PST_STR)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "a sparse tensor of bad shape, indices or type");
    if ((rc = eng_onnx_take(room, (size_t)n * size, "a sparse tensor", err)) < 0)
        return rc;
    char *d = eng_zone_alloc(zone, (size_t)n * size + 1);
    for (int64_t i = 0; i < nnz; i++) {
        int64_t at = 0;
        for (int64_t k = 0; k < per; k++) {
            int64_t x = ((const int64_t *)ix.data)[i * per + k], dim = ix.rank == 2 ? t.dims[k] : n;
            if (x < 0 || x >= dim)
                return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "onnx", 0, "a sparse tensor with an index outside its shape");
            at = ix.rank == 2 ? at * dim + x : x;
        }
        memcpy(d + (size_t)at * size, (const char *)v.data + (size_t)i * size, size);
    }
    t.data = d;
    *ret = t;
    return 0;
}
