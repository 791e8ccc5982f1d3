/* cat_file.h - `penstock cat --avro-file FILE`: values into an Avro container file as they are, in place of printing them. @thread one owner */
#ifndef PST_CONSUMERS_CAT_FILE_H
#define PST_CONSUMERS_CAT_FILE_H

#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro_file.h"

typedef struct cat_file {
    pst_avro_file *file; /* NULL until the first value */
    int32_t schema_id;   /* of all values in it */
    int64_t records;
} cat_file;

/* DATA: this record has no place in the file, and why; others end the verb. A tombstone is passed over. */
int cat_file_add(cat_file *f, const char *path, pst_codec *codec, const pst_record *r, pst_err *err);

#endif
