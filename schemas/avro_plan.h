/* avro_plan.h - decode plans: a linear list of operations that reads the writer's bytes in order and stores what the target wants; inside
 * schemas/ only. Everything that resolution decides (names, aliases, promotions, branches, defaults, what to skip) is decided while
 * compiling, so running is one pass without names, schemas or lookups.
 *
 *     [op][op]…[END]            one program a (writer record, target record); CALL runs another, bounded in depth
 *     ARRAY c=after [item ops][END]    loops keep their body behind them
 *     UNION ptr=targets [branch ops][JUMP c=end] [branch ops][JUMP] end:
 *
 * Fields not wanted next to each other melt into one SKIP where their size is constant; doubles next to each other into one DOUBLES. Floats next to each
 * other, and numbers that may be null, keep an op each, so that an error finds its field, and the first of a row does the work of all. */
#ifndef PST_SCHEMAS_AVRO_PLAN_H
#define PST_SCHEMAS_AVRO_PLAN_H

#include "schemas/avro_node.h"
#include "schemas/avro_read.h"
#include "schemas/type.h"

#define PST_AVRO_OPS_MAX  (1u << 18)
#define PST_AVRO_HEAP_MAX (64u << 20) /* bytes that one decoded event may hold */

/* PST_OP(NAME, what a, b, c, n and ptr mean) */
#define PST_OPS(X)                                                                 \
    X(END, "return")                                                               \
    X(JUMP, "to c")                                                                \
    X(CALL, "program b on the object at a")                                        \
    X(CALL_NEW, "program b on a new object of n bytes, its pointer at a")          \
    X(UNION, "b branches, ptr: their places")                                      \
    X(FAIL, "ptr: why this data cannot be taken")                                  \
    X(DEFAULT, "run what follows on the bytes in ptr, then go to c")               \
    X(FLAG, "bool at a = true")                                                    \
    X(MARK, "remember the place as a")                                             \
    X(REWIND, "back to place a")                                                   \
    X(SKIP, "n bytes")                                                             \
    X(SKIP_VARINT, "int, long, enum")                                              \
    X(SKIP_BYTES, "string, bytes")                                                 \
    X(SKIP_TEXT, "a string that goes on to others: it has to be UTF-8")            \
    X(SKIP_ARRAY, "items of n bytes, or by what follows if n is SIZE_MAX; then c") \
    X(SKIP_MAP, "the same after each key")                                         \
    X(BOOL, "to a")                                                                \
    X(INT, "to a")                                                                 \
    X(INT_LONG, "int to int64_t at a")                                             \
    X(INT_FLOAT, "")                                                               \
    X(INT_DOUBLE, "")                                                              \
    X(LONG, "")                                                                    \
    X(LONG_FLOAT, "")                                                              \
    X(LONG_DOUBLE, "")                                                             \
    X(FLOAT, "")                                                                   \
    X(FLOAT_DOUBLE, "")                                                            \
    X(DOUBLE, "")                                                                  \
    X(STRING, "char * at a, new")                                                  \
    X(BYTES, "pst_bytes at a, new")                                                \
    X(ENUM, "b symbols, ptr: value of each, -1 = none; int at a")                  \
    X(ARRAY, "pointer at a, count at b, items of n bytes by what follows; then c") \
    X(MAP, "the same with a key at the begin of each item")                        \
    X(COL_BOOL, "double at a, want b")                                             \
    X(COL_INT, "")                                                                 \
    X(COL_LONG, "")                                                                \
    X(COL_FLOATS, "this and the n - 1 behind it, each with an op of its own")      \
    X(COL_MAYBE_FLOATS, "the same, or null; c: the branch with the number")        \
    X(COL_MAYBE_DOUBLES, "")                                                       \
    X(COL_DOUBLES, "n of them from a, wants from b")                               \
    X(COL_DECIMAL, "n bytes (SIZE_MAX: as many as are told) over 10^c")            \
    X(COL_KEYS, "b keys of a map in ptr, each with its ops, then c")               \
    X(COL_ITEMS, "n numbers from slot a by what follows, want b; then c")          \
    X(COL_NULL, "an item is null")                                                 \
    X(COL_TEXT, "slice of want b, a = 1: it has to be UTF-8")                      \
    X(COL_FIXED, "n bytes as the slice of want b")                                 \
    X(COL_SYMBOL, "c symbols in ptr, slice of want b")                             \
    X(COL_TRUTH, "\"true\" or \"false\" as the slice of want b")                   \
    X(COL_RAW, "from mark a to here, want b")

typedef enum {
#define X(name, doc) PST_OP_##name,
    PST_OPS(X)
#undef X
} av_op_code;

typedef struct av_op {
    uint32_t code, a, b, c;
    union {
        size_t n;
        const void *ptr;
    };
} av_op;

typedef struct av_map_key { /* COL_KEYS: b of them, and one with key NULL for what is not wanted */
    char *key;
    size_t len;
    uint32_t start;
} av_map_key;

typedef struct av_program { /* compiled; immutable */
    av_op *ops;
    const char **places; /* one per op: the field, for errors */
    size_t n, cap_ops, cap_places;
    uint32_t *starts; /* program → its first op */
    size_t n_starts;
    void **owned; /* what ops and places point into */
    size_t n_owned, cap_owned;
} av_program;

void av_program_done(av_program *p);
char *av_program_text(const av_program *p); /* one op a line; free() */

/* ---- compiling -------------------------------------------------------------------------------------------------------------- */

typedef struct av_sub { /* a program that was called and is or will be compiled */
    const av_node *writer, *reader;
    const pst_type *target; /* NULL: skip only */
} av_sub;

typedef struct av_builder {
    av_program *p;
    av_sub *subs;
    size_t n_subs, cap_subs;
    size_t barrier; /* ops before this one may not be melted with later ones: something jumps to here */
    uint32_t marks; /* places in use */
    bool looks;     /* what is skipped is passed on: its strings have to be such (those in records of varying size are not looked at) */
    char place[160];
    size_t n_place;
    int rc; /* the first failure */
    pst_err *err;
} av_builder;

void *av_build_own(av_builder *b, void *memory);
av_op *av_build_op(av_builder *b, av_op_code code, uint32_t a, uint32_t bb); /* valid until the next one */
void av_build_label(av_builder *b);                                          /* something jumps to the next op */
size_t av_build_push(av_builder *b, const char *name);                       /* place for errors; returns the old length */
void av_build_pop(av_builder *b, size_t old);
__attribute__((format(printf, 3, 4))) int av_build_fail(av_builder *b, int code, const char *fmt, ...);
/* FAIL op with a message. */
__attribute__((format(printf, 2, 3))) void av_build_stop(av_builder *b, const char *fmt, ...);
uint32_t av_build_mark(av_builder *b);
/* Number of the program for this pair; compiled later by the loop of whoever builds. */
uint32_t av_build_sub(av_builder *b, const av_node *writer, const av_node *reader, const pst_type *target);
void av_build_skip(av_builder *b, const av_node *writer);
void av_build_skip_sub(av_builder *b, const av_node *writer); /* body of a program that skips a record */
/* UNION with the code that branch() writes for each. */
void av_build_union(av_builder *b, const av_node *writer, void (*branch)(av_builder *b, const av_node *branch, void *arg), void *arg);

/* ---- running ---------------------------------------------------------------------------------------------------------------- */

typedef struct av_vm {
    av_in in;
    const av_program *p;
    size_t heap; /* bytes left */
    uint8_t *missing;
    pst_slice *texts;
    double *numbers;
    const uint8_t *marks[PST_AVRO_DEPTH_MAX];
    bool placed; /* the error names its field already */
} av_vm;

/* Runs program 0 on obj; the whole input must be used. */
int av_vm_run(av_vm *vm, void *obj);

#endif
