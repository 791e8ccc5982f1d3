/* csv_columns.h - what the columns of a CSV file are in the records that `penstock source file` makes of it: their names, and how their texts are
 * read. The schema decides where there is one.
 *
 *     source_columns *c;
 *     if (source_columns_new(csv, "a.csv", &(source_columns_want){.schema = text, .key = "id"}, &c, &err) < 0) …   // said once, before any record
 *     while (pst_csv_next(csv, &err) == 1)
 *         json_t *record = source_columns_record(c, csv);
 *     source_columns_free(c);
 *
 * @thread any, one owner. */
#ifndef PST_SOURCES_CSV_COLUMNS_H
#define PST_SOURCES_CSV_COLUMNS_H

#include "common/base/csv.h"

#include <jansson.h>

typedef struct source_columns_want {
    const char *schema;                /* Avro schema, NULL = none: what looks like a number or a truth is one */
    const char *schema_name;           /* for messages */
    const char *key;                   /* a column that must be there; NULL = none */
    bool plain_names;                  /* `Basket Value (EUR)` becomes basket_value_eur */
    const char *const *decimal_commas; /* columns (by the names of the records) whose numbers are written 1.234,5 */
    size_t n_decimal_commas;
} source_columns_want;

typedef struct source_columns source_columns;

/* PST_EINVAL/FATAL: a column that the schema does not have, a field without a column and a default, an absent key; all of them are named. */
int source_columns_new(const pst_csv *csv, const char *file, const source_columns_want *want, source_columns **ret_columns, pst_err *err);
void source_columns_free(source_columns *c);
/* The row as an object, the caller's; NULL when it is not UTF-8. The row has as many fields as the header. */
json_t *source_columns_record(const source_columns *c, const pst_csv *csv);

#endif
