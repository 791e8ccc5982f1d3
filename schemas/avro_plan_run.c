/* avro_plan_run.c - runs decode plans. One switch; recursion only for called programs and for items of arrays and maps, bounded. */
#include "schemas/avro_plan.h"

#include <stdlib.h>
#include <string.h>

#include <math.h>

static int run(av_vm *vm, uint32_t pc, char *obj, int depth);

/* Charges n bytes of memory. */
static int take(av_vm *vm, size_t n)
{
    if (n > vm->heap)
        return av_in_fail(&vm->in, PST_ELIMIT, "the record would need more than %u MiB of memory", PST_AVRO_HEAP_MAX >> 20);
    vm->heap -= n;
    return 0;
}

/* A copy of the text that comes next, with a NUL behind it. */
static int new_text(av_vm *vm, char **ret, size_t *ret_len)
{
    pst_slice s;
    int rc = av_in_bytes(&vm->in, &s);
    if (rc < 0 || (rc = take(vm, s.len + 1)) < 0)
        return rc;
    char *text = pst_realloc(NULL, s.len + 1);
    memcpy(text, s.data, s.len);
    text[s.len] = 0;
    *ret = text;
    *ret_len = s.len;
    return 0;
}

static inline int deeper(av_vm *vm, int depth)
{
    return depth < PST_AVRO_DEPTH_MAX ? 0 : av_in_fail(&vm->in, PST_ELIMIT, "nested deeper than %d", PST_AVRO_DEPTH_MAX);
}

/* Items are zeroed and counted before they are read, so that an event can be cleared after any failure. */
static int run_items(av_vm *vm, const av_op *o, uint32_t pc, char *obj, int depth)
{
    char **items = (char **)(void *)(obj + o->a);
    size_t *n = (size_t *)(void *)(obj + o->b), cap = 0, key_len;
    int64_t count;
    int rc = deeper(vm, depth);
    while (!rc && !(rc = av_in_block(&vm->in, &count)) && count)
        for (; count > 0; count--) {
            if (*n == cap) {
                size_t more = cap; /* twice as much; at first what is announced, which nobody need believe */
                if (!cap)
                    more = (size_t)count < 64 ? (size_t)count : 64;
                if ((rc = take(vm, more * o->n)) < 0)
                    return rc;
                cap += more;
                *items = pst_realloc(*items, cap * o->n);
            }
            char *item = *items + *n * o->n;
            memset(item, 0, o->n);
            ++*n;
            if (o->code == PST_OP_MAP)
                rc = new_text(vm, (char **)(void *)item, &key_len);
            if (rc == 0)
                rc = run(vm, pc + 1, item, depth + 1);
            if (rc < 0)
                return rc;
        }
    return rc;
}

static int skip_items(av_vm *vm, const av_op *o, uint32_t pc, int depth)
{
    bool map = o->code == PST_OP_SKIP_MAP;
    PST_ASSERT(o->n == SIZE_MAX || o->n <= SIZE_MAX / PST_AVRO_ITEMS_MAX); /* count * n below does not overflow */
    int64_t count;
    pst_slice key;
    int rc = deeper(vm, depth);
    while (!rc && !(rc = av_in_block_skip(&vm->in, &count)) && count) {
        if (count > 0 && !map && o->n != SIZE_MAX) {
            rc = av_in_skip(&vm->in, (size_t)count * o->n);
            continue;
        }
        for (; count > 0 && !rc; count--) {
            if (map && (rc = av_in_bytes(&vm->in, &key)) < 0)
                return rc;
            rc = o->n != SIZE_MAX ? av_in_skip(&vm->in, o->n) : run(vm, pc + 1, NULL, depth + 1);
        }
    }
    return rc;
}

static void widen(double *to, const uint8_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, from + i * sizeof f, sizeof f);
        to[i] = (double)f;
    }
}

/* Items of a fixed width that are wanted as they are, all of those that are left of the block at once. False: one by one, which also finds the one that is
 * cut off. */
static bool bulk_items(av_vm *vm, const av_op *item, double *to, size_t n)
{
    bool floats = item->code == PST_OP_COL_FLOATS;
    size_t width = floats ? sizeof(float) : sizeof(double);
    if ((!floats && item->code != PST_OP_COL_DOUBLES) || item->n != 1 || item[1].code != PST_OP_END ||
        n > (size_t)(vm->in.end - vm->in.p) / width)
        return false;
    if (floats)
        widen(to, vm->in.p, n);
    else
        memcpy(to, vm->in.p, n * width);
    vm->in.p += n * width;
    return true;
}

/* An array of numbers into n slots: exactly n items, or the record is bad. */
static int column_items(av_vm *vm, const av_op *o, uint32_t pc, int depth)
{
    size_t filled = 0, want = o->n;
    int64_t count;
    int rc = deeper(vm, depth);
    while (!rc && !(rc = av_in_block(&vm->in, &count)) && count) {
        if ((size_t)count > want - filled)
            return av_in_fail(&vm->in, PST_EINVAL, "the array has more than the %zu numbers wanted", want);
        if (bulk_items(vm, &vm->p->ops[pc + 1], vm->numbers + o->a + filled, (size_t)count)) {
            filled += (size_t)count;
            continue;
        }
        for (; count > 0 && !rc; count--)
            rc = run(vm, pc + 1, (char *)(vm->numbers + o->a + filled++), depth + 1);
    }
    if (!rc && filled != want)
        return av_in_fail(&vm->in, PST_EINVAL, "the array has %zu numbers, %zu are wanted", filled, want);
    vm->missing[o->b] = 0; /* a null item is a NaN in its slot, as in JSON: the others are there */
    return rc;
}

/* Chosen keys of a map; a key that comes twice counts as it came last. */
static int column_keys(av_vm *vm, const av_op *o, char *obj, int depth)
{
    const av_map_key *keys = o->ptr;
    int64_t count;
    int rc = deeper(vm, depth);
    while (!rc && !(rc = av_in_block(&vm->in, &count)) && count)
        for (; count > 0 && !rc; count--) {
            pst_slice key;
            if ((rc = av_in_bytes(&vm->in, &key)) < 0)
                return rc;
            size_t k = 0;
            while (k < o->b && (keys[k].len != key.len || memcmp(keys[k].key, key.data, key.len) != 0))
                k++;
            rc = run(vm, keys[k].start, obj, depth + 1);
        }
    return rc;
}

/* Avro's decimal: the unscaled number in two's complement, big-endian, over 10^scale. */
static int decimal(av_vm *vm, const av_op *o, double *at)
{
    pst_slice s = {.len = o->n};
    int rc = o->n == SIZE_MAX ? av_in_bytes(&vm->in, &s) : av_in_skip(&vm->in, o->n);
    if (rc < 0)
        return rc;
    const uint8_t *p = o->n == SIZE_MAX ? (const uint8_t *)s.data : vm->in.p - o->n;
    bool negative = s.len && p[0] & 0x80;
    long double v = 0, ten = 1; /* exact up to 64 bits and 10^27 */
    for (size_t i = 0; i < s.len; i++)
        v = v * 256 + (negative ? (uint8_t)~p[i] : p[i]);
    for (uint32_t i = 0; i < o->c; i++)
        ten *= 10;
    *at = (double)((negative ? -v - 1 : v) / ten);
    vm->missing[o->b] = 0;
    return 0;
}

typedef struct {
    const void *data;
    size_t len;
} constant;

static int run_default(av_vm *vm, const av_op *o, uint32_t pc, char *obj, int depth)
{
    const constant *c = o->ptr;
    av_in saved = vm->in;
    vm->in.p = vm->in.begin = c->data;
    vm->in.end = vm->in.begin + c->len;
    int rc = run(vm, pc + 1, obj, depth + 1);
    PST_ASSERT(rc < 0 || vm->in.p == vm->in.end); /* the compiler wrote exactly one value of the field's type */
    size_t items = vm->in.items;
    vm->in = saved;
    vm->in.items = items;
    return rc;
}

/* Reads a number of the writer's kind and stores it as the reader's. */
static inline int number(av_vm *vm, uint32_t code, char *at)
{
    int64_t v;
    float f;
    int rc;
    switch (code) {
    case PST_OP_FLOAT: return av_in_raw(&vm->in, at, sizeof(float));
    case PST_OP_DOUBLE: return av_in_raw(&vm->in, at, sizeof(double));
    case PST_OP_FLOAT_DOUBLE:
        if ((rc = av_in_raw(&vm->in, &f, sizeof f)) == 0)
            *(double *)(void *)at = (double)f;
        return rc;
    case PST_OP_LONG:
    case PST_OP_LONG_FLOAT:
    case PST_OP_LONG_DOUBLE: rc = av_in_long(&vm->in, &v); break;
    default: rc = av_in_int(&vm->in, &v); break;
    }
    if (rc < 0)
        return rc;
    if (code == PST_OP_INT)
        *(int32_t *)(void *)at = (int32_t)v;
    else if (code == PST_OP_INT_LONG || code == PST_OP_LONG)
        *(int64_t *)(void *)at = v;
    else if (code == PST_OP_INT_FLOAT || code == PST_OP_LONG_FLOAT)
        *(float *)(void *)at = (float)v;
    else
        *(double *)(void *)at = (double)v;
    return 0;
}

/* Of a row of ops the ones behind the first: how many were done before something failed, which is the number of the one that did; n - 1 = all. */
static size_t floats(av_vm *vm, const av_op *o, char *obj, int *ret_rc)
{
    size_t fit = (size_t)(vm->in.end - vm->in.p) / sizeof(float), n = o->n < fit ? o->n : fit;
    widen((double *)(void *)(obj + o->a), vm->in.p, n);
    memset(vm->missing + o->b, 0, n);
    vm->in.p += n * sizeof(float);
    if (n == o->n)
        return n - 1;
    av_in_short(&vm->in, sizeof(float));
    *ret_rc = PST_EPARSE;
    return n;
}

/* Branches of one byte, with room behind them for the number, are what nearly all are; the rest goes through the cursor's own reads. */
static inline size_t maybe(av_vm *vm, const av_op *o, char *obj, size_t width, int *ret_rc)
{
    double *at = (double *)(void *)(obj + o->a);
    uint8_t *missing = vm->missing + o->b, number = (uint8_t)(o->c << 1), null = (uint8_t)(number ^ 2);
    const uint8_t *p = vm->in.p, *end = vm->in.end;
    size_t i = 0;
    for (; i < o->n && (size_t)(end - p) > width && (*p == number || *p == null); i++) {
        if (*p++ == null)
            continue;
        if (width == sizeof(float))
            widen(&at[i], p, 1);
        else
            memcpy(&at[i], p, sizeof *at);
        missing[i] = 0;
        p += width;
    }
    vm->in.p = p;
    for (; i < o->n; i++) {
        int64_t branch;
        uint8_t raw[sizeof(double)];
        if ((*ret_rc = av_in_index(&vm->in, 2, "branch", &branch)) < 0)
            return i;
        if (branch != o->c)
            continue;
        if ((*ret_rc = av_in_raw(&vm->in, raw, width)) < 0)
            return i;
        if (width == sizeof(float))
            widen(&at[i], raw, 1);
        else
            memcpy(&at[i], raw, sizeof *at);
        missing[i] = 0;
    }
    return o->n - 1;
}

static inline int column(av_vm *vm, const av_op *o, char *obj)
{
    int64_t v;
    bool t;
    int rc;
    double *at = (double *)(void *)(obj + o->a);
    switch (o->code) {
    case PST_OP_COL_DOUBLES:
        if ((rc = av_in_raw(&vm->in, at, o->n * sizeof *at)) == 0)
            memset(vm->missing + o->b, 0, o->n);
        return rc;
    case PST_OP_COL_BOOL:
        if ((rc = av_in_bool(&vm->in, &t)) == 0)
            *at = t;
        break;
    default:
        rc = o->code == PST_OP_COL_INT ? av_in_int(&vm->in, &v) : av_in_long(&vm->in, &v);
        if (!rc)
            *at = (double)v;
    }
    if (!rc)
        vm->missing[o->b] = 0;
    return rc;
}

/* A string whose bytes are used, or passed on, as they are: what is no text here is none for whoever reads it next. */
static int utf8(av_vm *vm, pst_slice *ret)
{
    int rc = av_in_bytes(&vm->in, ret);
    return rc || av_utf8_valid(ret->data, ret->len) ? rc : av_in_fail(&vm->in, PST_EPARSE, "a string is no UTF-8 text");
}

static inline int text(av_vm *vm, const av_op *o)
{
    int64_t v;
    int rc;
    if (o->code == PST_OP_COL_TEXT) {
        rc = o->a ? utf8(vm, &vm->texts[o->b]) : av_in_bytes(&vm->in, &vm->texts[o->b]);
    } else if (o->code == PST_OP_COL_FIXED) {
        if ((rc = av_in_skip(&vm->in, o->n)) == 0)
            vm->texts[o->b] = (pst_slice){vm->in.p - o->n, o->n};
    } else if (o->code == PST_OP_COL_TRUTH) {
        bool t;
        if ((rc = av_in_bool(&vm->in, &t)) == 0)
            vm->texts[o->b] = t ? (pst_slice){"true", 4} : (pst_slice){"false", 5};
    } else {
        if ((rc = av_in_index(&vm->in, o->c, "symbol", &v)) == 0)
            vm->texts[o->b] = ((const pst_slice *)o->ptr)[v];
    }
    if (!rc)
        vm->missing[o->b] = 0;
    return rc;
}

static int symbol(av_vm *vm, const av_op *o, char *obj)
{
    const int32_t *values = o->ptr;
    int64_t v;
    int rc = av_in_index(&vm->in, o->b, "symbol", &v);
    if (rc < 0)
        return rc;
    if (values[v] < 0)
        return av_in_fail(&vm->in, PST_EINCOMPAT, "the writer's symbol %lld is not known and there is no default symbol", (long long)v);
    *(int *)(void *)(obj + o->a) = values[v];
    return 0;
}

static int call_new(av_vm *vm, const av_op *o, char *obj, int depth)
{
    int rc = take(vm, o->n);
    if (rc < 0)
        return rc;
    char *inner = *(char **)(void *)(obj + o->a) = pst_alloc(o->n);
    return run(vm, vm->p->starts[o->b], inner, depth + 1);
}

/* The first failing op, in the innermost program, names the place. */
static int failed(av_vm *vm, uint32_t pc, int rc)
{
    if (!vm->placed) {
        vm->placed = true;
        pst_err_prefix(vm->in.err, "%s", vm->p->places[pc]);
    }
    return rc;
}

/* Every op was checked when the plan was compiled: offsets lie within the target's struct, jumps within the program. What is checked here is the
 * input alone, by the cursor. Ops with a body of their own (arrays, maps, defaults) run it themselves and go on at c. */
static int run(av_vm *vm, uint32_t pc, char *obj, int depth)
{
    const av_op *ops = vm->p->ops;
    int64_t v;
    pst_slice skipped;
    size_t len;
    int rc;
    for (;; pc++) {
        const av_op *o = &ops[pc];
        rc = 0;
        switch ((av_op_code)o->code) {
        case PST_OP_END: return 0;
        case PST_OP_JUMP: pc = o->c - 1; break;
        case PST_OP_CALL:
            if ((rc = deeper(vm, depth)) == 0)
                rc = run(vm, vm->p->starts[o->b], obj ? obj + o->a : NULL, depth + 1);
            break;
        case PST_OP_CALL_NEW:
            if ((rc = deeper(vm, depth)) == 0)
                rc = call_new(vm, o, obj, depth);
            break;
        case PST_OP_UNION:
            if ((rc = av_in_index(&vm->in, o->b, "branch", &v)) == 0)
                pc = ((const uint32_t *)o->ptr)[v] - 1;
            break;
        case PST_OP_FAIL: rc = av_in_fail(&vm->in, PST_EINCOMPAT, "%s", (const char *)o->ptr); break;
        case PST_OP_DEFAULT:
            rc = run_default(vm, o, pc, obj, depth);
            pc = rc ? pc : o->c - 1;
            break;
        case PST_OP_FLAG: *(bool *)(obj + o->a) = true; break;
        case PST_OP_MARK: vm->marks[o->a] = vm->in.p; break;
        case PST_OP_REWIND: vm->in.p = vm->marks[o->a]; break;
        case PST_OP_SKIP: rc = av_in_skip(&vm->in, o->n); break;
        case PST_OP_SKIP_VARINT: rc = av_in_long(&vm->in, &v); break;
        case PST_OP_SKIP_BYTES: rc = av_in_bytes(&vm->in, &skipped); break;
        case PST_OP_SKIP_TEXT: rc = utf8(vm, &skipped); break;
        case PST_OP_SKIP_ARRAY:
        case PST_OP_SKIP_MAP:
            rc = skip_items(vm, o, pc, depth);
            pc = rc ? pc : o->c - 1;
            break;
        case PST_OP_BOOL: rc = av_in_bool(&vm->in, (bool *)(obj + o->a)); break;
        case PST_OP_INT:
        case PST_OP_INT_LONG:
        case PST_OP_INT_FLOAT:
        case PST_OP_INT_DOUBLE:
        case PST_OP_LONG:
        case PST_OP_LONG_FLOAT:
        case PST_OP_LONG_DOUBLE:
        case PST_OP_FLOAT:
        case PST_OP_FLOAT_DOUBLE:
        case PST_OP_DOUBLE: rc = number(vm, o->code, obj + o->a); break;
        case PST_OP_STRING: rc = new_text(vm, (char **)(void *)(obj + o->a), &len); break;
        case PST_OP_BYTES: {
            pst_bytes *at = (pst_bytes *)(void *)(obj + o->a);
            rc = new_text(vm, (char **)&at->data, &at->len);
            break;
        }
        case PST_OP_ENUM: rc = symbol(vm, o, obj); break;
        case PST_OP_ARRAY:
        case PST_OP_MAP:
            rc = run_items(vm, o, pc, obj, depth);
            pc = rc ? pc : o->c - 1;
            break;
        case PST_OP_COL_BOOL:
        case PST_OP_COL_INT:
        case PST_OP_COL_LONG:
        case PST_OP_COL_DOUBLES: rc = column(vm, o, obj); break;
        case PST_OP_COL_FLOATS: pc += (uint32_t)floats(vm, o, obj, &rc); break;
        case PST_OP_COL_MAYBE_FLOATS: pc += (uint32_t)maybe(vm, o, obj, sizeof(float), &rc); break;
        case PST_OP_COL_MAYBE_DOUBLES: pc += (uint32_t)maybe(vm, o, obj, sizeof(double), &rc); break;
        case PST_OP_COL_ITEMS:
            rc = column_items(vm, o, pc, depth);
            pc = rc ? pc : o->c - 1;
            break;
        case PST_OP_COL_DECIMAL: rc = decimal(vm, o, (double *)(void *)(obj + o->a)); break;
        case PST_OP_COL_KEYS: {
            uint32_t end = o->c;
            rc = column_keys(vm, o, obj, depth);
            pc = rc ? pc : end - 1;
            break;
        }
        case PST_OP_COL_NULL: *(double *)(void *)(obj + o->a) = NAN; break;
        case PST_OP_COL_TEXT:
        case PST_OP_COL_FIXED:
        case PST_OP_COL_SYMBOL:
        case PST_OP_COL_TRUTH: rc = text(vm, o); break;
        case PST_OP_COL_RAW:
            vm->texts[o->b] = (pst_slice){vm->marks[o->a], (size_t)(vm->in.p - vm->marks[o->a])};
            vm->missing[o->b] = 0;
            break;
        }
        if (rc < 0)
            return failed(vm, pc, rc);
    }
}

int av_vm_run(av_vm *vm, void *obj)
{
    int rc = run(vm, vm->p->starts[0], obj, 0);
    if (!rc && vm->in.p != vm->in.end)
        rc = av_in_fail(&vm->in, PST_EPARSE, "%zu bytes too many after the record", (size_t)(vm->in.end - vm->in.p));
    return rc;
}
