/* manifest_read.h - reading one key of a manifest: its value as text, number, span, memory or mapping, or a complaint that names the key by its
 * dotted path, what was found and what would be right. Private to schemas/manifest*.c. @thread any. */
#ifndef PST_SCHEMAS_MANIFEST_READ_H
#define PST_SCHEMAS_MANIFEST_READ_H

#include "schemas/manifest.h"
#include "schemas/manifest_keys.h"

typedef struct mf_reader {
    const pst_yaml *y;
    pst_complaints *errors, *warnings;
} mf_reader;

typedef struct mf_place { /* where a key stands: "framework" + "command" → "framework.command" */
    const json_t *obj;
    const char *path; /* "" at the top */
} mf_place;

void mf_field(const mf_place *p, const char *key, char ret[160]);
void mf_complain(pst_complaints *c, const char *field, int line, const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));
void mf_wrong(mf_reader *r, const mf_place *p, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void mf_warn(mf_reader *r, const mf_place *p, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* NULL where the key is absent or has no value: `gpus:` says nothing, as in FfDL. */
const json_t *mf_value(const mf_place *p, const char *key);
/* What was found, for a person: "many", a list, …; cut at 40 bytes. Returns buf. */
const char *mf_found(const json_t *v, char buf[64]);
const char *mf_kind(const json_t *v, char buf[64]); /* the same without the value, which may be a secret in the wrong place */
/* A scalar as text, free(): `version: 1` and `version: "1"` are the same version. NULL for lists and mappings. */
char *mf_scalar(const json_t *v);
/* All of these go by the key's row in manifest_keys.c (limits, bytes at most), and give its default (or NULL, or 0) when the key is absent, and
 * after a complaint. Texts: free(). A text of the kind PST_KEY_TEXT is one line. */
char *mf_text(mf_reader *r, const mf_place *p, const char *key);
/* Bytes or elements at most, by the row. */
size_t mf_most(const mf_place *p, const char *key);
/* Becomes part of names and paths: letters, digits, . _ - ; begins with a letter or digit. */
char *mf_word(mf_reader *r, const mf_place *p, const char *key);
int64_t mf_int(mf_reader *r, const mf_place *p, const char *key);
/* "must be <wanted> from … to …<hint>, found …" */
double mf_number(mf_reader *r, const mf_place *p, const char *key, const char *wanted, const char *hint);
int64_t mf_span(mf_reader *r, const mf_place *p, const char *key);
/* FfDL's grammar with decimals: a number, optional spaces, a unit in any case. MB is 10^6 and MiB 2^20 bytes. */
int64_t mf_memory(mf_reader *r, const mf_place *p, const char *key);
const json_t *mf_mapping(mf_reader *r, const mf_place *p, const char *key); /* borrowed */
/* A warning (FfDL's part) or a complaint (ours) for every key of the mapping that has no row, with the nearest one that has. */
void mf_check_keys(mf_reader *r, const mf_place *p, bool ours);
/* The mapping `env` of a place: names and texts; NULL where there is none. path: of the mapping itself. (manifest.c) */
json_t *mf_env(mf_reader *r, const mf_place *p, const char *path, const pst_manifest *m);
/* penstock.roles (own.obj may be NULL): always fills m->roles; what is left out is taken from m, which has been read. (manifest_roles.c) */
void mf_roles(mf_reader *r, const mf_place *own, pst_manifest *m);
void mf_roles_done(pst_manifest *m);
void mf_retries(mf_reader *r, const mf_place *own, pst_manifest *m); /* penstock.retries: a number, or a mapping */
/* Complaints from `from` on that have no line get that of the field they name, as far as the tree has it. */
void mf_find_lines(const mf_reader *r, const json_t *root, size_t from);

#endif
