/* yaml.h - YAML text → Jansson tree with line numbers, bounded (libyaml; depth 32, 100,000 nodes, no aliases, no tags).
 *
 *     pst_yaml y;
 *     if (pst_yaml_parse(text, len, "pipeline.yml", &y, &err) < 0) …          // "pipeline.yml:3: …"
 *     int line = pst_yaml_line(&y, json_object_get(y.root, "input"));
 *     pst_yaml_done(&y);
 *
 * Plain scalars become null, booleans, integers, reals by YAML 1.2's core schema; quoted ones stay strings. @thread any. */
#ifndef PST_BASE_YAML_H
#define PST_BASE_YAML_H

#include "common/base/err.h"
#include "common/base/map.h"

#include <jansson.h>

typedef struct pst_yaml_mark {
    const json_t *node;
    int line;
} pst_yaml_mark;

typedef struct pst_yaml {
    json_t *root; /* a mapping, sequence or scalar; empty text: JSON null */
    char *file;
    pst_yaml_mark *marks;
    size_t n_marks;
} pst_yaml;

int pst_yaml_parse(const char *text, size_t len, const char *file, pst_yaml *ret_yaml, pst_err *err);
void pst_yaml_done(pst_yaml *y);
int pst_yaml_line(const pst_yaml *y, const json_t *node); /* 0 = unknown */
/* Line of the value of key inside obj (scalars included). */
int pst_yaml_key_line(const pst_yaml *y, const json_t *obj, const char *key);
/* PST_EINVAL naming file, line and the nearest known key if obj has a key outside known. */
int pst_yaml_check_keys(const pst_yaml *y, const json_t *obj, const char *where, const char *const *known, size_t n, pst_err *err);

/* Replaces scalars where they stand, the rest stays byte for byte. fn: path "a.b[2].c", its last key, the value, the bytes in the text (quotes
 * and all, line breaks at the end left out); returns what stands there instead (free()d here), or NULL. Same limits as pst_yaml_parse. */
typedef char *(*pst_yaml_fn)(void *arg, const char *path, const char *key, const char *value, const char *source, size_t len);
int pst_yaml_replace(const char *text, size_t len, pst_yaml_fn fn, void *arg, char **ret_text, pst_err *err);

#endif
