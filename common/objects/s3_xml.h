/* s3_xml.h - the answers of an S3 server: a bounded reader of the little XML that they are made of, and what we take from it. They come from wherever a
 * manifest points, so they are hostile: no document type, no entities but the five and numbers, 16 levels, 8 KiB of text in one element.
 * Inside common/objects only. @thread any. */
#ifndef PST_OBJECTS_S3_XML_H
#define PST_OBJECTS_S3_XML_H

#include "common/base/err.h"
#include "common/objects/s3.h"

/* Tells of every element, at its end: the name of the one around it ("" = none), its own without prefix, and its own text. Not 0 ends it.
 * PST_EPARSE/DATA: it is no such text, or beyond a limit. */
int s3_xml_read(const char *text, size_t len, int (*fn)(void *arg, const char *parent, const char *name, const char *text), void *arg,
                pst_err *err);
/* ListBucketResult, version 2: appends its keys. *ret_next: where the next page begins, NULL = this was the last; free(). */
int s3_xml_list(const char *text, size_t len, pst_s3_list *list, char **ret_next, pst_err *err);
/* The text of the first element of that name; "" where there is none, or where it is no XML. free() */
char *s3_xml_value(const char *text, size_t len, const char *name);

#endif
