/* avro_node.h - a parsed schema as a graph of nodes; inside schemas/ only. Named types that are used again are the same node, so the graph
 * may have cycles: walkers bound their depth (PST_AVRO_DEPTH_MAX) and, where breadth can multiply, their steps. Immutable after parsing. */
#ifndef PST_SCHEMAS_AVRO_NODE_H
#define PST_SCHEMAS_AVRO_NODE_H

#include "schemas/avro.h"

#include "common/base/map.h"

typedef enum {
    PST_AVRO_NULL,
    PST_AVRO_BOOLEAN,
    PST_AVRO_INT,
    PST_AVRO_LONG,
    PST_AVRO_FLOAT,
    PST_AVRO_DOUBLE,
    PST_AVRO_BYTES,
    PST_AVRO_STRING,
    PST_AVRO_FIXED,
    PST_AVRO_ENUM,
    PST_AVRO_RECORD,
    PST_AVRO_ARRAY,
    PST_AVRO_MAP,
    PST_AVRO_UNION
} av_kind;

typedef struct av_node av_node;

typedef struct av_field {
    char *name;
    char **aliases;
    size_t n_aliases;
    av_node *type;
    const json_t *def;  /* NULL = none; borrowed from the schema's JSON */
    const json_t *json; /* the field as written */
} av_field;

struct av_node {
    av_kind kind;
    uint32_t id;      /* place in pst_schema.nodes */
    char *name;       /* full name; NULL for unnamed types */
    const char *base; /* the part of name after the last dot */
    char **aliases;   /* full names */
    size_t n_aliases;
    const json_t *json; /* as written: an object, or NULL for a bare word or a union */
    size_t size;        /* FIXED */
    char **symbols;     /* ENUM */
    size_t n_symbols;
    int def;          /* ENUM: index of the default symbol, -1 = none */
    av_field *fields; /* RECORD */
    size_t n_fields;
    av_node **branches; /* UNION */
    size_t n_branches;
    av_node *item;   /* ARRAY, MAP */
    pst_map index;   /* RECORD, ENUM: name of a field or symbol → its place + 1 */
    size_t min_size; /* bytes of the shortest encoding (a lower bound) */
    bool constant;   /* every encoding has exactly min_size bytes */
};

struct pst_schema {
    char *text;
    json_t *json;
    av_node *root;
    av_node **nodes;
    size_t n_nodes, cap_nodes;
};

const char *av_word(av_kind kind);          /* "string" */
const char *av_node_name(const av_node *n); /* full name, else the word */
/* Self-contained JSON text of a node: names written out at first use, docs and defaults kept. */
void av_node_text(const pst_schema *s, const av_node *n, pst_buf *out);

/* Does reader's name (or an alias) stand for the named type writer? Unqualified names count, as the specification says. */
bool av_node_names_match(const av_node *reader, const av_node *writer);
/* Place of a field (RECORD) or symbol (ENUM) by its exact name; -1 = none. */
int av_node_find(const av_node *n, const char *name);
/* Field of writer that fills reader field f: by name, then by the aliases of f; -1 = none. */
int av_node_find_source(const av_node *writer, const av_field *f);
/* May values of kind w be read as kind r by promotion (or equality of primitives)? */
bool av_promotes(av_kind r, av_kind w);
/* Can some data of writer be read? Laxer than pst_schema_can_read: of a writer's union one branch is enough, and enums always pass; what
 * remains impossible is found when such data is met. */
bool av_node_may_read(const av_node *reader, const av_node *writer);
/* Branch of the reader's union that takes data of writer (no union): exact matches first, then promotions; -1 = none. */
int av_node_match_branch(const av_node *reader_union, const av_node *writer);

/* Does json fit node as a default value? Bytes and fixed are text of code points 0-255; a union's default fits any of its branches.
 * steps: budget, counted down (nested unions can ask for exponential work); when it is spent nothing fits. */
bool av_node_default_fits(const av_node *n, const json_t *json, size_t *steps);

typedef struct av_json_writer { /* state of writing JSON as Avro */
    pst_buf *out;
    pst_err *err;
    size_t steps;  /* left; bounds defaults that multiply and unions that are tried again and again */
    bool defaults; /* bytes are code points 0-255 and unknown keys are ignored, as in a schema's default */
    char path[160];
    size_t n_path;
} av_json_writer;
int av_node_write_json(av_json_writer *w, const av_node *n, const json_t *json, int depth);
/* Encodes the default of a field. PST_EINCOMPAT/DATA if it does not fit or is endless. */
int av_node_write_default(const av_field *f, pst_buf *out, pst_err *err);

/* Length of the UTF-8 text at p (the whole of len bytes is valid)? */
bool av_utf8_valid(const void *p, size_t len);

#endif
