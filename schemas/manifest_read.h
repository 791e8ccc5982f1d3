/* manifest_read.h - reading one key of a manifest: its value as text, number, span, memory or mapping, or a complaint that names the key by its
 * dotted path, what was found and what would be right. Private to schemas/manifest*.c. @thread any. */
#ifndef PST_SCHEMAS_MANIFEST_READ_H
#define PST_SCHEMAS_MANIFEST_READ_H

#include "schemas/manifest.h"

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
/* All of these: def (or NULL) when the key is absent, and after a complaint. Texts: free(). */
char *pst_mf_text(pst_mf_reader *r, const pst_mf_place *p, const char *key, size_t bytes_max, bool one_line);
/* Becomes part of names and paths: letters, digits, . _ - ; begins with a letter or digit. */
char *pst_mf_word(pst_mf_reader *r, const pst_mf_place *p, const char *key, size_t bytes_max);
int64_t pst_mf_int(pst_mf_reader *r, const pst_mf_place *p, const char *key, int64_t min, int64_t max, int64_t def);
int64_t pst_mf_span(pst_mf_reader *r, const pst_mf_place *p, const char *key, int64_t min_us, int64_t max_us, int64_t def);
/* FfDL's grammar with decimals: a number, optional spaces, a unit in any case. MB is 10^6 and MiB 2^20 bytes. */
int64_t pst_mf_memory(pst_mf_reader *r, const pst_mf_place *p, const char *key, int64_t def);
const json_t *pst_mf_mapping(pst_mf_reader *r, const pst_mf_place *p, const char *key); /* borrowed */
/* A warning (FfDL's part) or a complaint (ours) for every key of the mapping that is not among known, with the nearest one. */
void pst_mf_check_keys(pst_mf_reader *r, const pst_mf_place *p, bool ours, const char *const *known, size_t n);
#define PST_MF_CHECK_KEYS(r, p, ours, ...)                                     \
    do {                                                                       \
        static const char *const known_[] = {__VA_ARGS__};                     \
        pst_mf_check_keys(r, p, ours, known_, sizeof known_ / sizeof *known_); \
    } while (0)
#define PST_MF_WARN_UNKNOWN(r, p, ...)   PST_MF_CHECK_KEYS(r, p, false, __VA_ARGS__)
#define PST_MF_REFUSE_UNKNOWN(r, p, ...) PST_MF_CHECK_KEYS(r, p, true, __VA_ARGS__)
/* Complaints from `from` on that have no line get that of the field they name, as far as the tree has it. */
void pst_mf_find_lines(const pst_mf_reader *r, const json_t *root, size_t from);

#endif
