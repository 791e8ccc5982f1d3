/* wire_pack.c - the four codecs of batches, by their own libraries, which are opened by the first batch that needs one: most topics have one codec or none,
 * and a library that is not installed is missed only by whoever meets its bytes.
 *
 * How large something is unpacked is not believed where the codec says it, only used for the first guess; what is written is bounded by `max` at each step.
 * snappy has two forms: one block of the library's, as librdkafka sends it, and a row of them behind a head, as Java does ("\x82SNAPPY\0"). Both are read; the
 * first is written, which every client reads. Sources: Kafka's documentation, "Compression"; RFC 1952; the LZ4 frame format; RFC 8878; snappy's format. */
#include "common/bus/wire/lz4_lib.h"
#include "common/bus/wire/snappy_lib.h"
#include "common/bus/wire/wire_batch.h"
#include "common/bus/wire/zlib_lib.h"
#include "common/bus/wire/zstd_lib.h"

#include "common/base/err.h"

enum { FIRST_LEAST = 4096 };

/* What is unpacked grows in here, by doubling from a guess; room is how much of it may be written, max at most. */
typedef struct unpacked {
    pst_buf b;
    size_t room, max;
} unpacked;

static void make_room(unpacked *u, size_t room)
{
    u->room = room < u->max ? room : u->max;
    pst_buf_reserve(&u->b, u->room - u->b.len);
}

static uint8_t *end_of(const unpacked *u)
{
    return (uint8_t *)u->b.data + u->b.len;
}

/* false = it is as large as it may be. */
static bool grow(unpacked *u)
{
    if (u->room == u->max)
        return false;
    make_room(u, u->room * 2);
    return true;
}

static int not_of(wire_codec codec, pst_err *err, const char *why)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "kafka", 0, "these are no %s bytes, or cut ones: %s", wire_codec_names[codec], why);
}

static int too_large(wire_codec codec, size_t max, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "kafka", 0, "%s bytes that unpack to more than %zu: the limit",
                       wire_codec_names[codec], max);
}

/* ---- gzip ----------------------------------------------------------------------------------------------------------------------- */

enum { GZIP_FORMAT = 15 + 16 }; /* the largest window, and gzip's head in place of zlib's */

static int gunzip(z_stream *z, unpacked *u, pst_err *err)
{
    for (;;) {
        z->next_out = end_of(u);
        z->avail_out = (uInt)(u->room - u->b.len);
        int rc = inflate(z, Z_NO_FLUSH);
        u->b.len = u->room - z->avail_out;
        if (rc == Z_STREAM_END && !z->avail_in)
            return 0;
        if (rc == Z_STREAM_END) { /* several members make one text */
            if (inflateReset(z) != Z_OK)
                return not_of(WIRE_GZIP, err, "its second member");
            continue;
        }
        if (rc != Z_OK && rc != Z_BUF_ERROR)
            return not_of(WIRE_GZIP, err, z->msg ? z->msg : "zlib refuses them");
        if (z->avail_out)
            return not_of(WIRE_GZIP, err, "they end too early");
        if (!grow(u))
            return too_large(WIRE_GZIP, u->max, err);
    }
}

static int unpack_gzip(const void *data, size_t len, unpacked *u, pst_err *err)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len};
    if (inflateInit2(&z, GZIP_FORMAT) != Z_OK)
        return not_of(WIRE_GZIP, err, "zlib does not begin");
    int rc = gunzip(&z, u, err);
    inflateEnd(&z);
    return rc;
}

static int pack_gzip(int level, const void *data, size_t len, pst_buf *out, pst_err *err)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len};
    if (deflateInit2(&z, level < 0 || level > 9 ? Z_DEFAULT_COMPRESSION : level, Z_DEFLATED, GZIP_FORMAT, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "kafka", 0, "zlib has no memory to compress %zu bytes", len);
    size_t bound = deflateBound(&z, len);
    pst_buf_reserve(out, bound);
    z.next_out = (Bytef *)out->data + out->len;
    z.avail_out = (uInt)bound;
    int rc = deflate(&z, Z_FINISH);
    PST_ASSERT(rc == Z_STREAM_END); /* it had the room that it asked for */
    out->len += bound - z.avail_out;
    deflateEnd(&z);
    return 0;
}

/* ---- snappy --------------------------------------------------------------------------------------------------------------------- */

static int unpack_snappy_block(const void *data, size_t len, unpacked *u, pst_err *err)
{
    size_t more;
    if (snappy_uncompressed_length(data, len, &more) != SNAPPY_OK)
        return not_of(WIRE_SNAPPY, err, "their length is not to be read");
    if (more > u->max - u->b.len)
        return too_large(WIRE_SNAPPY, u->max, err);
    if (more / 64 > len) /* no element writes more than 64 bytes, and none takes less than one */
        return not_of(WIRE_SNAPPY, err, "they say a length that they cannot have");
    if (more > u->room - u->b.len)
        make_room(u, u->b.len + more > u->room * 2 ? u->b.len + more : u->room * 2);
    if (snappy_uncompress(data, len, (char *)end_of(u), &more) != SNAPPY_OK)
        return not_of(WIRE_SNAPPY, err, "snappy refuses them");
    u->b.len += more;
    return 0;
}

#define JAVAS_SNAPPY "\x82SNAPPY" /* with its NUL: 8 bytes; then two versions of 4 each, then blocks, each behind its length */

static int unpack_snappy(const void *data, size_t len, unpacked *u, pst_err *err)
{
    if (len < 16 || memcmp(data, JAVAS_SNAPPY, 8))
        return unpack_snappy_block(data, len, u, err);
    wire_in in = wire_in_of((const uint8_t *)data + 16, len - 16, false);
    int rc = 0;
    while (!rc && wire_in_left(&in)) {
        wire_str block = wire_get_blob(&in);
        if (!block.at)
            return not_of(WIRE_SNAPPY, err, "a block of Java's framing is longer than what is left");
        rc = unpack_snappy_block(block.at, block.len, u, err);
    }
    return rc;
}

static int pack_snappy(const void *data, size_t len, pst_buf *out)
{
    size_t bound = snappy_max_compressed_length(len);
    pst_buf_reserve(out, bound);
    snappy_status rc = snappy_compress(data, len, out->data + out->len, &bound);
    PST_ASSERT(rc == SNAPPY_OK);
    out->len += bound;
    return 0;
}

/* ---- lz4 ------------------------------------------------------------------------------------------------------------------------ */

static int unlz4(LZ4F_dctx *ctx, const uint8_t *data, size_t len, unpacked *u, pst_err *err)
{
    size_t hint = 1;
    while (len) {
        size_t took = len, gave = u->room - u->b.len;
        hint = LZ4F_decompress(ctx, end_of(u), &gave, data, &took, NULL);
        if (LZ4F_isError(hint))
            return not_of(WIRE_LZ4, err, LZ4F_getErrorName(hint));
        u->b.len += gave;
        data += took;
        len -= took;
        if (u->b.len == u->room && (len || hint) && !grow(u))
            return too_large(WIRE_LZ4, u->max, err);
        if (!took && !gave && u->b.len < u->room)
            return not_of(WIRE_LZ4, err, "nothing comes of them");
    }
    while (hint) { /* all was taken, and what it held back comes now */
        size_t took = 0, gave = u->room - u->b.len;
        hint = LZ4F_decompress(ctx, end_of(u), &gave, data, &took, NULL);
        if (LZ4F_isError(hint) || (hint && !gave && u->b.len < u->room))
            return not_of(WIRE_LZ4, err, "they end too early");
        u->b.len += gave;
        if (hint && u->b.len == u->room && !grow(u))
            return too_large(WIRE_LZ4, u->max, err);
    }
    return 0;
}

static int unpack_lz4(const void *data, size_t len, unpacked *u, pst_err *err)
{
    LZ4F_dctx *ctx;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&ctx, LZ4F_VERSION)))
        return not_of(WIRE_LZ4, err, "lz4 does not begin");
    int rc = unlz4(ctx, data, len, u, err);
    LZ4F_freeDecompressionContext(ctx);
    return rc;
}

static int pack_lz4(int level, const void *data, size_t len, pst_buf *out, pst_err *err)
{
    LZ4F_preferences_t how = {.frameInfo = {.blockMode = LZ4F_blockIndependent}, .compressionLevel = level < 0 ? 0 : level};
    size_t bound = LZ4F_compressFrameBound(len, &how);
    pst_buf_reserve(out, bound);
    size_t n = LZ4F_compressFrame(out->data + out->len, bound, data, len, &how);
    if (LZ4F_isError(n))
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "kafka", 0, "lz4 cannot compress %zu bytes: %s", len, LZ4F_getErrorName(n));
    out->len += n;
    return 0;
}

/* ---- zstd ----------------------------------------------------------------------------------------------------------------------- */

enum { ZSTD_LEVEL = 3 };

static int unzstd(ZSTD_DCtx *ctx, const void *data, size_t len, unpacked *u, pst_err *err)
{
    ZSTD_inBuffer in = {data, len, 0};
    for (;;) {
        ZSTD_outBuffer out = {u->b.data, u->room, u->b.len};
        size_t before = in.pos;
        size_t hint = ZSTD_decompressStream(ctx, &out, &in);
        if (ZSTD_isError(hint))
            return not_of(WIRE_ZSTD, err, ZSTD_getErrorName(hint));
        bool moved = out.pos != u->b.len || in.pos != before;
        u->b.len = out.pos;
        if (!hint && in.pos == in.size)
            return 0;
        if (u->b.len == u->room) {
            if (!grow(u))
                return too_large(WIRE_ZSTD, u->max, err);
        } else if (in.pos == in.size || !moved) {
            return not_of(WIRE_ZSTD, err, "they end too early");
        }
    }
}

static int unpack_zstd(const void *data, size_t len, unpacked *u, pst_err *err)
{
    ZSTD_DCtx *ctx = ZSTD_createDCtx();
    PST_ASSERT(ctx);
    int rc = unzstd(ctx, data, len, u, err);
    ZSTD_freeDCtx(ctx);
    return rc;
}

static int pack_zstd(int level, const void *data, size_t len, pst_buf *out, pst_err *err)
{
    size_t bound = ZSTD_compressBound(len);
    pst_buf_reserve(out, bound);
    size_t n = ZSTD_compress(out->data + out->len, bound, data, len, level == -1 ? ZSTD_LEVEL : level);
    if (ZSTD_isError(n))
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "kafka", 0, "zstd cannot compress %zu bytes: %s", len, ZSTD_getErrorName(n));
    out->len += n;
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------------------------------------------ */

int wire_pack_open(wire_codec codec, pst_err *err)
{
    switch (codec) {
    case WIRE_NONE: return 0;
    case WIRE_GZIP: return zlib_lib_open(err);
    case WIRE_SNAPPY: return snappy_lib_open(err);
    case WIRE_LZ4: return lz4_lib_open(err);
    case WIRE_ZSTD: return zstd_lib_open(err);
    }
    PST_ASSERT(!"a codec");
    return PST_EINVAL;
}

static int unpack(wire_codec codec, const void *data, size_t len, unpacked *u, pst_err *err)
{
    switch (codec) {
    case WIRE_GZIP: return unpack_gzip(data, len, u, err);
    case WIRE_SNAPPY: return unpack_snappy(data, len, u, err);
    case WIRE_LZ4: return unpack_lz4(data, len, u, err);
    case WIRE_ZSTD: return unpack_zstd(data, len, u, err);
    case WIRE_NONE: break;
    }
    PST_ASSERT(!"a codec");
    return PST_EINVAL;
}

int wire_unpack(wire_codec codec, const void *data, size_t len, size_t max, wire_block **ret, pst_err *err)
{
    PST_ASSERT(codec != WIRE_NONE && max && max <= INT32_MAX);
    int rc = wire_pack_open(codec, err);
    if (rc < 0)
        return rc;
    if (!len || len > INT32_MAX)
        return not_of(codec, err, "there are none");
    unpacked u = {.max = max};
    make_room(&u, codec == WIRE_SNAPPY || len < FIRST_LEAST / 4 ? FIRST_LEAST
                                                                : len * 4); /* snappy says how much comes, and is believed within reason */
    rc = unpack(codec, data, len, &u, err);
    if (rc < 0) {
        pst_buf_done(&u.b);
        return rc;
    }
    size_t unpacked_len = u.b.len, cap = u.b.cap;
    *ret = wire_block_take((uint8_t *)pst_buf_steal(&u.b), unpacked_len, cap);
    return 0;
}

int wire_pack(wire_codec codec, int level, const void *data, size_t len, pst_buf *out, pst_err *err)
{
    PST_ASSERT(len <= INT32_MAX);
    int rc = wire_pack_open(codec, err);
    if (rc < 0)
        return rc;
    switch (codec) {
    case WIRE_GZIP: return pack_gzip(level, data, len, out, err);
    case WIRE_SNAPPY: return pack_snappy(data, len, out);
    case WIRE_LZ4: return pack_lz4(level, data, len, out, err);
    case WIRE_ZSTD: return pack_zstd(level, data, len, out, err);
    case WIRE_NONE: pst_buf_add(out, data, len); return 0;
    }
    PST_ASSERT(!"a codec");
    return PST_EINVAL;
}
