/* json.h - small helpers over Jansson; jansson.h may be used everywhere. */
#ifndef PST_BASE_JSON_H
#define PST_BASE_JSON_H

#include "common/base/buf.h"
#include "common/base/err.h"

#include <jansson.h>
#include <stdio.h>

/* Parses at most bytes_max (0 = 16 MiB); rejects duplicate keys; "what" names the text in errors. PST_EPARSE/DATA. */
int pst_json_parse(const char *text, size_t len, const char *what, json_t **ret_json, pst_err *err);
const char *pst_json_str(const json_t *obj, const char *key, const char *def);
int64_t pst_json_int(const json_t *obj, const char *key, int64_t def);
double pst_json_num(const json_t *obj, const char *key, double def);
bool pst_json_bool(const json_t *obj, const char *key, bool def);
char *pst_json_text(const json_t *j);             /* compact, key order kept; free() */
void pst_json_add(pst_buf *out, const json_t *j); /* numbers by their shortest text; NULL = null */
void pst_json_print(FILE *to, const json_t *j);   /* one line */
/* A number; JSON has neither NaN nor infinities: "NaN", "Infinity", "-Infinity". */
json_t *pst_json_real(double v);
/* Appends text as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD. */
void pst_json_quote(pst_buf *out, const char *text, size_t len);

#endif
