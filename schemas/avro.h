/* avro.h - Avro schemas and data by our own bounded reader, since these are strangers' bytes: parse, compare, decode, encode, print.
 * Schemas and data are untrusted: nesting, names, items and bytes have limits; nothing here aborts or recurses on data without bound.
 * Source: Avro 1.11 specification (schema resolution, binary encoding, parsing canonical form, 64-bit Rabin fingerprint).
 *
 * Three targets of a decode plan, each compiled once per (writer schema, target):
 *   struct    our events: generated C structs (events.h) — defaults, aliases, promotions, unions, enums resolved at compile time
 *   columns   user records: chosen fields → doubles, texts, raw spans (the scorer, the learner)
 *   JSON      anything → jansson value (cat, SSE)
 * Plans are immutable: @thread any. */
#ifndef PST_SCHEMAS_AVRO_H
#define PST_SCHEMAS_AVRO_H

#include "common/base/buf.h"
#include "common/base/err.h"

#include <jansson.h>

#define PST_AVRO_DEPTH_MAX  64          /* nesting of schema and of data */
#define PST_AVRO_SCHEMA_MAX (1 << 20)   /* bytes of schema text */
#define PST_AVRO_NODES_MAX  20000       /* types in one schema */
#define PST_AVRO_ITEMS_MAX  1000000     /* array items and map entries in one record, all together */
#define PST_AVRO_BYTES_MAX  (16u << 20) /* one record, or one string */

typedef struct pst_schema pst_schema;

int pst_schema_parse(const char *text, size_t len, pst_schema **ret_schema, pst_err *err); /* PST_EPARSE/DATA: what and where */
/* For schemas that data was written with: a default that does not fit its type, an unknown sort order or enum default is passed over
 * instead of refused, since reading does not need it (registries hold such schemas). */
int pst_schema_parse_writer(const char *text, size_t len, pst_schema **ret_schema, pst_err *err);
void pst_schema_free(pst_schema *s);
const char *pst_schema_text(const pst_schema *s);                  /* the original JSON text */
const char *pst_schema_name(const pst_schema *s);                  /* full name of a named type, else the type's word */
void pst_schema_canonical(const pst_schema *s, pst_buf *ret_text); /* parsing canonical form */
uint64_t pst_schema_fingerprint(const pst_schema *s);              /* CRC-64-AVRO of it */
/* May `reader` read all data of `writer`? 1 yes, 0 no with the reasons (one a line, with paths) in why if given. */
int pst_schema_can_read(const pst_schema *reader, const pst_schema *writer, pst_buf *why);

/* Of a schema as Jansson reads it, for who asks what a field is without reading data by it. "null", or {"type": "null"}: */
bool pst_avro_is_null(const json_t *type);
/* T of null|T, in either order; any other type as it is, also a union that is wider, or of null alone. */
const json_t *pst_avro_but_null(const json_t *type);

/* ---- generated structs (events.h comes from *.avsc by schemas/avrogen.c) -------------------------------------------------- */
/* Avro            C
 * string          char *f              never NULL after decode; "" by default (NUL inside: cut there)
 * null|string     char *f              NULL = null
 * bytes           pst_bytes f          data NULL = null for null|bytes
 * int long float double boolean        int32_t int64_t float double bool f
 * null|number     bool has_f; T f
 * enum E          pst_e f              PST_E_SYMBOL; text by pst_enum_text()
 * record R        pst_r f              null|R: pst_r *f, NULL = null
 * array<T>        T *f; size_t n_f
 * map<string>     pst_str_pair *f; size_t n_f       map<double>: pst_dbl_pair
 * Names: record JobRequest → struct pst_job_request, type descriptor pst_job_request_type; enum JobAction → pst_job_action,
 * PST_JOB_ACTION_SUBMIT. An enum whose name is a record's plus Type (JobEventType) has no typedef, since pst_job_event_type is the
 * record's descriptor: write `enum pst_job_event_type`. All memory of a struct is malloc'ed and owned by it. */
typedef struct pst_bytes {
    void *data;
    size_t len;
} pst_bytes;
typedef struct pst_str_pair {
    char *key, *value;
} pst_str_pair;
typedef struct pst_dbl_pair {
    char *key;
    double value;
} pst_dbl_pair;

typedef struct pst_type pst_type;           /* descriptor of a generated record: name, size, schema text, fields (type.h) */
typedef struct pst_enum_type pst_enum_type; /* descriptor of a generated enum */

/* The symbol of a value ("?" if out of range), the value of a symbol (-1 if unknown; case-sensitive). Generated wrappers per enum:
 * pst_job_action_text(v), pst_job_action_parse(text); descriptor pst_job_action_enum. */
const char *pst_enum_text(const pst_enum_type *e, int value);
int pst_enum_parse(const pst_enum_type *e, const char *text);

const char *pst_type_name(const pst_type *t);   /* "JobRequest" */
const char *pst_type_schema(const pst_type *t); /* the .avsc text, as registered */
size_t pst_type_size(const pst_type *t);
const pst_type *pst_type_find(const char *name); /* by record name; NULL if unknown */

typedef struct pst_decode_plan pst_decode_plan;
/* PST_EINCOMPAT/DATA with the reason when the writer's data cannot fill the struct. */
int pst_decode_plan_new(const pst_schema *writer, const pst_type *target, pst_decode_plan **ret_plan, pst_err *err);
void pst_decode_plan_free(pst_decode_plan *p);
char *pst_decode_plan_explain(const pst_decode_plan *p); /* the op list as text; free() */
/* bytes: Avro binary without framing. ret_event is zeroed first; after an error it is empty. Trailing bytes are an error. */
int pst_decode_run(const pst_decode_plan *p, const void *bytes, size_t len, void *ret_event, pst_err *err);

void pst_event_encode(const pst_type *t, const void *event, pst_buf *out); /* appends Avro binary of the type's own schema */
void pst_event_clear(const pst_type *t, void *event);                      /* frees what it holds, zeroes; NULL-safe */
/* PST_EPARSE/DATA names the field whose text, or key of a map, is not UTF-8. Of decoded events: JSON text cannot hold such. */
int pst_event_check_text(const pst_type *t, const void *event, pst_err *err);
void pst_event_copy(const pst_type *t, const void *event, void *ret_copy); /* deep */
json_t *pst_event_to_json(const pst_type *t, const void *event); /* plain JSON: unions unwrapped, bytes as base64, enums as text */
/* JSON text, as people publish it by hand: nullable and defaulted fields may be left out; unknown fields are an error naming the nearest known one. */
int pst_event_from_json(const pst_type *t, const json_t *json, void *ret_event, pst_err *err);
bool pst_event_equal(const pst_type *t, const void *a, const void *b);
/* Sets a map<string> entry (replaces); value NULL removes. Generic for struct fields `pst_str_pair *f; size_t n_f`. */
void pst_str_map_set(pst_str_pair **map, size_t *n, const char *key, const char *value);
const char *pst_str_map_get(const pst_str_pair *map, size_t n, const char *key);
void pst_dbl_map_set(pst_dbl_pair **map, size_t *n, const char *key, double value);

/* ---- columns of user records ------------------------------------------------------------------------------------------------ */

typedef enum {
    PST_WANT_NUMBER, /* int long float double boolean (0/1) decimal, or an array of them → `slots` doubles */
    PST_WANT_TEXT,   /* string, enum symbol, or bytes as text: borrowed slice */
    PST_WANT_WORD,   /* the same, a boolean as "true" or "false"; or a number → one double, its slice then has data NULL */
    PST_WANT_RAW     /* the field's encoded bytes as they stand (pass-through): borrowed slice */
} pst_want_kind;

typedef struct pst_want {
    const char
        *path; /* dotted: "cpu.user"; through nullable records, "tags.rack" through maps; a field's name may contain dots itself (exact
                       * match wins), and so may a map's key unless the values are records or maps */
    pst_want_kind kind;
    uint32_t slots; /* NUMBER: doubles it fills, ≥ 1 */
} pst_want;

typedef struct pst_columns pst_columns;
/* A field the writer does not have is no error: its wants are always missing (see pst_columns_absent). A field of a type that can
 * never fit (a record wanted as number, say) is PST_EINCOMPAT/DATA naming path, wanted and found type. */
int pst_columns_new(const pst_schema *writer, const pst_want *wants, size_t n_wants, pst_columns **ret_columns, pst_err *err);
void pst_columns_free(pst_columns *c);
bool pst_columns_absent(const pst_columns *c, size_t want);
/* Type of a RAW want as schema text (self-contained: named types written out); NULL when absent. Owned by c. */
const char *pst_columns_schema(const pst_columns *c, size_t want);
/* One record. ret_numbers: sum of slots (NUMBER as it says, WORD 1), in the order of the wants, untouched where missing; NaN where an item of an array is null. ret_missing[i]: 1 = null or absent (RAW: 1 = absent;
 * an encoded null is a value to pass through).
 * ret_texts[i]: TEXT, WORD and RAW wants. An array of another length than slots: PST_EINVAL/DATA. No heap use. */
int pst_columns_run(const pst_columns *c, const void *bytes, size_t len, double *ret_numbers, uint8_t *ret_missing, pst_slice *ret_texts,
                    pst_err *err);
char *pst_columns_explain(const pst_columns *c); /* the op list as text; free() */

/* ---- any data ↔ JSON -------------------------------------------------------------------------------------------------------- */

/* Plain JSON (as kcat and people expect): unions unwrapped, enums as text, NaN and infinities as text. Bytes and fixed are the text itself
 * if they are printable UTF-8, else "base64:…"; what is text but begins so is written in base64 too, so reading back is never in doubt. */
int pst_avro_to_json(const pst_schema *s, const void *bytes, size_t len, json_t **ret_json, pst_err *err);
/* The same in about room bytes of memory, else PST_ELIMIT/DATA: values that take no bytes (null, empty records) multiply by the schema alone.
 * pst_avro_to_json allows what honest data of that length needs at most. */
int pst_avro_to_json_within(const pst_schema *s, const void *bytes, size_t len, size_t room, json_t **ret_json, pst_err *err);
/* The reverse; missing fields take their defaults, unions take the first branch that fits (an object with one key that names a branch,
 * Avro's own JSON encoding, is understood where no branch fits plainly). Unknown keys are an error naming the nearest. Appends to out. */
int pst_avro_from_json(const pst_schema *s, const json_t *json, pst_buf *out, pst_err *err);

/* Primitives for writers of dynamic schemas (the scorer's output). */
void pst_avro_put_long(pst_buf *out, int64_t v);
void pst_avro_put_double(pst_buf *out, double v);
void pst_avro_put_float(pst_buf *out, float v);
void pst_avro_put_bytes(pst_buf *out, const void *data, size_t len); /* also string */

/* Confluent framing: 0x00, big-endian id; then the body. */
#define PST_FRAME_BYTES 5
void pst_frame_put(pst_buf *out, int32_t schema_id);
/* 0 and id/body, or PST_EPARSE/DATA (bad-envelope). */
int pst_frame_get(const void *value, size_t len, int32_t *ret_id, pst_slice *ret_body, pst_err *err);

#endif
