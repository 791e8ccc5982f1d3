/* avro_file.h - writing Avro object container files, by avro-c (opened at first use): the schema in front, then blocks of records, deflated.
 *
 *     pst_avro_file_new("out.avro", schema_text, &f, &err);
 *     pst_avro_file_add(f, body, len, &err);                 // one record's Avro bytes, of that schema, known to be sound
 *     rc = pst_avro_file_end(f, &err);                       // what could not be written is said here at the latest
 *
 * For data that has been through our own reader or writer. Files of strangers are read by inference/offline/ocf.h.
 * Source: Avro 1.11 specification, "Object Container Files". @thread one owner */
#ifndef PST_SCHEMAS_AVRO_FILE_H
#define PST_SCHEMAS_AVRO_FILE_H

#include "common/base/err.h"

typedef struct pst_avro_file pst_avro_file;

/* Replaces what is at path. PST_EUNSUPPORTED/FATAL with the cure where avro-c is missing. */
int pst_avro_file_new(const char *path, const char *schema, pst_avro_file **ret_file, pst_err *err);
int pst_avro_file_add(pst_avro_file *f, const void *body, size_t len, pst_err *err);
int pst_avro_file_end(pst_avro_file *f, pst_err *err); /* writes the rest, closes and frees; NULL-safe */

#endif
