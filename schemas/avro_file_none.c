/* avro_file_none.c - in place of avro_file.c where avro-c was not found: the one way in refuses, so that the others are never reached with a file. */
#include "schemas/avro_file.h"

int pst_avro_file_new(const char *path, const char *schema, pst_avro_file **ret_file, pst_err *err)
{
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "config", 0,
                       "this penstock was built without avro-c and writes no Avro files: install libavro-dev and build again");
}

int pst_avro_file_add(pst_avro_file *f, const void *body, size_t len, pst_err *err)
{
    return PST_EUNSUPPORTED;
}

int pst_avro_file_end(pst_avro_file *f, pst_err *err)
{
    return 0;
}
