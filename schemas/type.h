/* type.h - descriptors of the generated event structs. schemas/avrogen.c writes one pst_type per record of *.avsc into events.c;
 * everything that touches an event (clear, copy, compare, encode, JSON, decode plans) walks these tables, so no struct has code of its own.
 *
 * A struct field is `kind` in one of four shapes (the table in avro.h says which C members that gives). Records never contain
 * themselves: avrogen refuses recursive events, so a walk over a descriptor ends by construction. @thread any: all tables are const. */
#ifndef PST_SCHEMAS_TYPE_H
#define PST_SCHEMAS_TYPE_H

#include "schemas/avro.h"

typedef enum {
    PST_KIND_BOOL,
    PST_KIND_INT,
    PST_KIND_LONG,
    PST_KIND_FLOAT,
    PST_KIND_DOUBLE,
    PST_KIND_STRING,
    PST_KIND_BYTES,
    PST_KIND_ENUM,
    PST_KIND_RECORD
} pst_kind;

typedef enum {
    PST_SHAPE_ONE,      /* T f */
    PST_SHAPE_NULLABLE, /* bool has_f; T f (numbers, enums) or a pointer that may be NULL (string, bytes.data, record) */
    PST_SHAPE_ARRAY,    /* T *f; size_t n_f */
    PST_SHAPE_MAP       /* pst_str_pair or pst_dbl_pair *f; size_t n_f */
} pst_shape;

struct pst_enum_type {
    const char *name;           /* "JobAction" */
    const char *const *symbols; /* the value is the index */
    int n;
    int def; /* the enum's default symbol, -1 = none */
};

typedef struct pst_field_type {
    const char *name; /* as in the schema */
    pst_kind kind;    /* of the value, the item, the map value */
    pst_shape shape;
    uint8_t null_branch; /* NULLABLE: place of "null" in the union, 0 or 1 */
    bool time;           /* logicalType timestamp-micros: JSON text may be RFC 3339 */
    uint32_t offset;     /* of f */
    uint32_t aux;        /* of has_f (NULLABLE number or enum) or of n_f (ARRAY, MAP) */
    const pst_enum_type *enumeration;
    const pst_type *record;
    const char *def;            /* default as JSON text; NULL = the field is required */
    const char *const *aliases; /* what it was called before, up to NULL, so that JSON of that time is read as Avro is; NULL = none */
} pst_field_type;

struct pst_type {
    const char *name;      /* "JobRequest" */
    const char *full_name; /* "penstock.JobRequest" */
    const char *schema;    /* self-contained JSON text */
    size_t size;           /* of the struct */
    const pst_field_type *fields;
    size_t n_fields;
};

/* All generated records (events.c), for pst_type_find. */
extern const pst_type *const pst_types[];
extern const size_t pst_types_n;

/* True for kinds that need a has_ flag when nullable. */
static inline bool pst_kind_flagged(pst_kind k)
{
    return k <= PST_KIND_DOUBLE || k == PST_KIND_ENUM;
}

/* Bytes of one item of this field in an array (a record is held by value there). */
size_t pst_field_item_size(const pst_field_type *f);

#endif
