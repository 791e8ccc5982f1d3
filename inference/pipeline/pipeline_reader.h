/* pipeline_reader.h - reading a YAML tree with refusals that say file:line, section and key. Inside of inference/: the pipeline file.
 * Limits, words and defaults come from the key's row. When a key is absent or null (or obj is NULL, for a section that is not there), *ret
 * becomes the row's default, or stays as it is where there is none. @thread any, one owner. */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_READER_H
#define PST_INFERENCE_PIPELINE_PIPELINE_READER_H

#include "common/base/keys.h"
#include "common/base/yaml.h"

typedef struct pipeline_reader {
    pst_yaml y;
    pst_err *err;
    const pst_keys *keys;
    bool (*may_see)(const char *name, size_t len); /* of a variable of the environment; NULL = all of them */
} pipeline_reader;

/* Writes "file:line: …" and returns PST_EINVAL (FATAL: a configuration error). */
int pipeline_reader_fail(pipeline_reader *r, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Every key of obj has a row in the section `where`. */
int pipeline_reader_check_keys(pipeline_reader *r, const json_t *obj, const char *where);
/* A mapping; absent gives NULL. */
int pipeline_reader_section(pipeline_reader *r, const json_t *root, const char *key, json_t **ret);
int pipeline_reader_str(pipeline_reader *r, const json_t *obj, const char *where, const char *key, char **ret); /* frees what *ret held */
/* A number, also as text (what comes from the environment is text). */
bool pipeline_reader_number(const json_t *v, double *ret);
int pipeline_reader_num(pipeline_reader *r, const json_t *obj, const char *where, const char *key, double *ret);
int pipeline_reader_whole(pipeline_reader *r, const json_t *obj, const char *where, const char *key, int64_t *ret);
/* "1MiB" (PST_KEY_BYTES) or "5ms" (PST_KEY_SPAN: microseconds). */
int pipeline_reader_unit(pipeline_reader *r, const json_t *obj, const char *where, const char *key, int64_t *ret);
/* One of the row's words: *ret = its index. */
int pipeline_reader_word(pipeline_reader *r, const json_t *obj, const char *where, const char *key, int *ret);
/* A list of names, or one name. */
int pipeline_reader_texts(pipeline_reader *r, const json_t *obj, const char *where, const char *key, char ***ret, size_t *ret_n);
/* ${NAME}, ${NAME:-default}, $${ in every text of the tree. */
int pipeline_reader_expand(pipeline_reader *r, json_t *node);

#endif
