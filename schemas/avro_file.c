/* avro_file.c - Avro container files, written through avro-c. avro-c counts, compresses and separates the blocks. Two things it is kept from:
 *
 * It prints a schema without what it does not know (logical types, defaults, aliases, documentation: its 1.11.1), so a reader elsewhere would
 * get numbers for times. The header is therefore written here, with the schema's own text, in place of the one that avro-c has just written;
 * only the sync marker at its end is taken over, which the blocks repeat.
 * And it never sees that text: it may come from a registry, and avro-c has crashed on hostile ones. To it every record is bytes, which it does
 * not look at, since they are handed over encoded. */
#include "schemas/avro_file.h"

#include "common/base/buf.h"
#include "schemas/avro.h"
#include "schemas/avroc_lib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYNC = 16, BLOCK_BYTES = 1 << 20 };

static const char opaque[] = "{\"type\":\"bytes\"}";

struct pst_avro_file {
    char *path;
    FILE *out;
    avro_file_writer_t writer; /* NULL until its header is written */
    size_t pending;            /* bytes of the block that is being filled */
};

static int failed(const pst_avro_file *f, int errnum, pst_err *err)
{
    return pst_err_sys(err, errnum ? errnum : EIO, "cannot write %s", f->path);
}

/* Magic, a map with one block of two entries, its end, the marker. */
static void make_header(const char *schema, const char sync[SYNC], pst_buf *ret)
{
    pst_buf_add(ret, "Obj\x01", 4);
    pst_avro_put_long(ret, 2);
    pst_avro_put_bytes(ret, "avro.codec", 10);
    pst_avro_put_bytes(ret, "deflate", 7);
    pst_avro_put_bytes(ret, "avro.schema", 11);
    pst_avro_put_bytes(ret, schema, strlen(schema));
    pst_avro_put_long(ret, 0);
    pst_buf_add(ret, sync, SYNC);
}

/* What is in the file so far is avro-c's header and nothing else. */
static int replace_header(pst_avro_file *f, const char *schema, pst_err *err)
{
    char sync[SYNC];
    pst_buf header = {0};
    int rc = 0;
    if (fflush(f->out) || fseek(f->out, -SYNC, SEEK_END) || fread(sync, SYNC, 1, f->out) != 1)
        return failed(f, errno, err);
    make_header(schema, sync, &header);
    rewind(f->out);
    if (ftruncate(fileno(f->out), 0) < 0 || fwrite(header.data, header.len, 1, f->out) != 1 || fflush(f->out))
        rc = failed(f, errno, err);
    pst_buf_done(&header);
    return rc;
}

/* A block must have room for the largest record; it is ended long before that (BLOCK_BYTES), so that readers need little memory. */
static int begin(pst_avro_file *f, const char *schema, pst_err *err)
{
    avro_schema_t bytes = NULL;
    int rc = avro_schema_from_json_length(opaque, sizeof opaque - 1, &bytes);
    if (!rc)
        rc = avro_file_writer_create_with_codec_fp(f->out, f->path, 0, bytes, &f->writer, "deflate", PST_AVRO_BYTES_MAX + BLOCK_BYTES);
    if (bytes)
        avro_schema_decref(bytes);
    if (rc) {
        f->writer = NULL;
        return pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "avro", rc, "cannot write %s: %s", f->path, avro_strerror());
    }
    return replace_header(f, schema, err);
}

int pst_avro_file_new(const char *path, const char *schema, pst_avro_file **ret_file, pst_err *err)
{
    int rc = avroc_lib_open(err);
    if (rc < 0)
        return rc;
    pst_avro_file *f = pst_alloc(sizeof *f);
    f->path = pst_strdup(path);
    f->out = fopen(path, "w+be");
    rc = f->out ? begin(f, schema, err) : failed(f, errno, err);
    if (rc < 0) {
        pst_avro_file_end(f, NULL);
        return rc;
    }
    *ret_file = f;
    return 0;
}

int pst_avro_file_add(pst_avro_file *f, const void *body, size_t len, pst_err *err)
{
    if (len > PST_AVRO_BYTES_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "avro", 0, "a record of %zu bytes is larger than %u", len, PST_AVRO_BYTES_MAX);
    int rc = avro_file_writer_append_encoded(f->writer, body, (int64_t)len);
    f->pending += len;
    if (!rc && f->pending >= BLOCK_BYTES) {
        rc = avro_file_writer_sync(f->writer);
        f->pending = 0;
    }
    return rc ? failed(f, rc, err) : 0;
}

int pst_avro_file_end(pst_avro_file *f, pst_err *err)
{
    int rc = 0;
    if (!f)
        return 0;
    int native = f->writer ? avro_file_writer_close(f->writer) : 0;
    if (native)
        rc = failed(f, native, err);
    if (f->out && fclose(f->out) && !rc)
        rc = failed(f, errno, err);
    free(f->path);
    free(f);
    return rc;
}
