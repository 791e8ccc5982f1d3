/* cat_file.c - values into an Avro container. A container file has one schema, in front: that of the first value. What was written with another one is left out
 * and reported, since a file of it can be made as well (-o, -c). Every value is read to its end before it goes in: in a file, records stand without
 * their lengths, and one that is broken takes all behind it along. */
#include "consumers/cat_file.h"

#include <string.h>

static int check(const cat_file *f, pst_codec *codec, const pst_record *r, int32_t id, pst_err *err)
{
    json_t *j = NULL;
    int32_t found;
    if (f->file && id != f->schema_id)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "avro", 0, "it is of schema %d, the file of %d", id, f->schema_id);
    int rc = pst_codec_to_json(codec, r->value, r->value_len, &j, &found, err);
    json_decref(j);
    return rc;
}

int cat_file_add(cat_file *f, const char *path, pst_codec *codec, const pst_record *r, pst_err *err)
{
    int32_t id;
    pst_slice body;
    const pst_schema *schema;
    if (!r->value)
        return 0;
    int rc = pst_frame_get(r->value, r->value_len, &id, &body, err);
    if (!rc)
        rc = check(f, codec, r, id, err);
    if (!rc && !f->file) { /* the first record's schema is the file's */
        rc = pst_codec_schema(codec, id, &schema, err);
        if (!rc) {
            rc = pst_avro_file_new(path, pst_schema_text(schema), &f->file, err);
            f->schema_id = id;
        }
    }
    PST_ASSERT(rc || (f->file && f->schema_id == id)); /* one schema a file */
    if (!rc)
        rc = pst_avro_file_add(f->file, body.data, body.len, err);
    f->records += !rc;
    return rc;
}
