/* csv.h - records of a CSV file with a header line, one after another, bounded (RFC 4180, and what spreadsheets make of it: ; or tab as
 * delimiter, found from the header; a byte order mark; lines that end in CR LF, LF or CR).
 *
 *     pst_csv *c;
 *     if (pst_csv_open(file, "data.csv", &c, &err) < 0) …
 *     while ((rc = pst_csv_next(c, &err)) == 1)
 *         use(pst_csv_field(c, column));                    // until the next call
 *     pst_csv_close(c);
 *
 * The file is untrusted: a record of more than 1 MiB, more than 10,000 columns, a NUL byte or a quote without end is an error that names the
 * line. @thread any, one owner. */
#ifndef PST_BASE_CSV_H
#define PST_BASE_CSV_H

#include "common/base/err.h"

#include <stdio.h>

#define PST_CSV_RECORD_MAX  (1 << 20)
#define PST_CSV_COLUMNS_MAX 10000

typedef struct pst_csv pst_csv;

/* Takes file over (closed by pst_csv_close, and on failure). name is for messages. PST_EPARSE/DATA: no header, or a hostile one. */
int pst_csv_open(FILE *file, const char *name, pst_csv **ret_csv, pst_err *err);
void pst_csv_close(pst_csv *c);
size_t pst_csv_columns(const pst_csv *c); /* of the header */
const char *pst_csv_name(const pst_csv *c, size_t column);
int pst_csv_find(const pst_csv *c, const char *name); /* column, -1 = none */
/* 1: a record, 0: the end, PST_EPARSE/DATA: the file cannot be read further. Empty lines are passed over. */
int pst_csv_next(pst_csv *c, pst_err *err);
size_t pst_csv_fields(const pst_csv *c); /* of this record: other than pst_csv_columns() when the line is too short or too long */
const char *pst_csv_field(const pst_csv *c, size_t field); /* NULL beyond the record's fields */
int64_t pst_csv_line(const pst_csv *c);                    /* where this record begins */
/* The field as a number: true and false are 1 and 0; "", NA, null, nan: missing (NaN, returns 1). -1: no number. 0: *ret is one. */
int pst_csv_number(const char *text, double *ret);

#endif
