/* manifest_read.h - reading one key of a manifest: its value as text, number, span, memory or mapping, or a complaint that names the key by its
 * dotted path, what was found and what would be right. Private to schemas/manifest*.c. @thread any. */
#ifndef PST_SCHEMAS_MANIFEST_READ_H
#define PST_SCHEMAS_MANIFEST_READ_H

#include "schemas/manifest.h"
#include "schemas/manifest_keys.h"

typedef struct pst_mf_reader {
    const pst_yaml *y;
    pst_complaints *errors, *warnings;
} pst_mf_reader;

typedef struct pst_mf_place { /* where a key stands: "framework" + "command" → "framework.command" */
    const json_t *obj;
    const char *path; /* "" at the top */
} pst_mf_place;

void pst_mf_field(const pst_mf_place *p, const char *key, char ret[160]);
void pst_mf_complain(pst_complaints *c, const char *field, int line, const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));
void pst_mf_wrong(pst_mf_reader *r, const pst_mf_place *p, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void pst_mf_warn(pst_mf_reader *r, const pst_mf_place *p, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* NULL where the key is absent or has no value: `gpus:` says nothing, as in FfDL. */
const json_t *pst_mf_value(const pst_mf_place *p, const char *key);
/* What was found, for a person: "many", a list, …; cut at 40 bytes. Returns buf. */
const char *pst_mf_found(const json_t *v, char buf[64]);
/* A scalar as text, free(): `version: 1` and `version: "1"` are the same version. NULL for lists and mappings. */
char *pst_mf_scalar(const json_t *v);
/* All of these go by the key's row in manifest_keys.c (limits, bytes at most), and give its default (or NULL, or 0) when the key is absent, and
 * after a complaint. Texts: free(). A text of the kind PST_KEY_TEXT is one line. */
char *pst_mf_text(pst_mf_reader *r, const pst_mf_place *p, const char *key);
/* Bytes or elements at most, by the row. */
size_t pst_mf_most(const pst_mf_place *p, const char *key);
/* Becomes part of names and paths: letters, digits, . _ - ; begins with a letter or digit. */
char *pst_mf_word(pst_mf_reader *r, const pst_mf_place *p, const char *key);
int64_t pst_mf_int(pst_mf_reader *r, const pst_mf_place *p, const char *key);
/* "must be <wanted> from … to …<hint>, found …" */
double pst_mf_number(pst_mf_reader *r, const pst_mf_place *p, const char *key, const char *wanted, const char *hint);
int64_t pst_mf_span(pst_mf_reader *r, const pst_mf_place *p, const char *key);
/* FfDL's grammar with decimals: a number, optional spaces, a unit in any case. MB is 10^6 and MiB 2^20 bytes. */
int64_t pst_mf_memory(pst_mf_reader *r, const pst_mf_place *p, const char *key);
const json_t *pst_mf_mapping(pst_mf_reader *r, const pst_mf_place *p, const char *key); /* borrowed */
/* A warning (FfDL's part) or a complaint (ours) for every key of the mapping that has no row, with the nearest one that has. */
void pst_mf_check_keys(pst_mf_reader *r, const pst_mf_place *p, bool ours);
/* Complaints from `from` on that have no line get that of the field they name, as far as the tree has it. */
void pst_mf_find_lines(const pst_mf_reader *r, const json_t *root, size_t from);

#endif
