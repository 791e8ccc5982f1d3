/* regex.c - an expression becomes a tree, the tree a program, and a search runs all ways through the program at once.
 *
 * Why not the C library's: its classes follow the locale, its time may be exponential, and what a model's file means must not depend on the
 * computer. A way (thread) is a place in the program and where its match began; two ways at one place are one, the one that began first,
 * so a step costs at most the program's length (K. Thompson 1968; R. Cox, "Regular Expression Matching: the Virtual Machine Approach"). */
#include "engine/ops/regex.h"

#include "engine/plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    PATTERN_MAX = 16384,
    DEPTH_MAX = 100,
    REPEAT_MAX = 1000, /* RE2's */
    PROGRAM_MAX = 20000,
    EMIT_MAX = 200000,
    PAUSE_AT = 1 << 20,
    RUNE_MAX = 0x10ffff,
};

typedef enum { AT_TEXT_BEGIN, AT_TEXT_END, AT_LINE_BEGIN, AT_LINE_END, AT_WORD, AT_NO_WORD } place;

typedef struct range {
    int32_t lo, hi;
} range;

typedef struct rune_class {
    uint32_t first, n; /* in ranges */
    uint32_t low[4];   /* of the first 128 characters: a bit each */
} rune_class;

typedef enum { DO_CLASS, DO_ASSERT, DO_JUMP, DO_SPLIT, DO_MATCH } opcode;

typedef struct instruction {
    uint8_t op;
    uint32_t x, y; /* CLASS: which; ASSERT: place; JUMP: x; SPLIT: x and y */
} instruction;

struct eng_regex {
    const instruction *program;
    uint32_t n;
    const rune_class *classes;
    const range *ranges;
    bool one_class; /* [class]+ and nothing else */
};

struct eng_regex_thread {
    uint32_t pc;
    size_t from;
};

/* ---- UTF-8 ---- */

static int32_t rune_at(const char *s)
{
    const unsigned char *b = (const unsigned char *)s;
    if (b[0] < 0x80)
        return b[0];
    if (b[0] < 0xe0)
        return (b[0] & 31) << 6 | (b[1] & 63);
    if (b[0] < 0xf0)
        return (b[0] & 15) << 12 | (b[1] & 63) << 6 | (b[2] & 63);
    return (b[0] & 7) << 18 | (b[1] & 63) << 12 | (b[2] & 63) << 6 | (b[3] & 63);
}

int64_t eng_utf8_count(const char *s, size_t len)
{
    static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int64_t n = 0;
    for (size_t i = 0; i < len; n++) {
        unsigned char b = (unsigned char)s[i];
        size_t step = eng_utf8_step(s + i);
        if ((b >= 0x80 && b < 0xc2) || b > 0xf4 || step > len - i)
            return -1;
        for (size_t k = 1; k < step; k++)
            if (((unsigned char)s[i + k] & 0xc0) != 0x80)
                return -1;
        int32_t rune = rune_at(s + i);
        if (rune < least[step] || rune > RUNE_MAX || (rune >= 0xd800 && rune < 0xe000))
            return -1;
        i += step;
    }
    return n;
}

/* ---- reading ---- */

typedef enum { IS_EMPTY, IS_CLASS, IS_ASSERT, IS_SEQUENCE, IS_CHOICE, IS_REPEAT } node_kind;

typedef struct node {
    node_kind kind;
    uint32_t what;             /* CLASS: which; ASSERT: place */
    int32_t min, max;          /* REPEAT; max -1 = without end */
    struct node *child, *next; /* the first of its parts; the next part of the same whole */
} node;

enum { FOLD = 1, LINES = 2, DOT_ALL = 4 };

typedef struct reader {
    eng_op_ctx *c;
    const char *pattern, *p;
    int flags, depth, rc;
    node *nodes;
    rune_class *classes;
    range *ranges, *work; /* work: of the class that is being read */
    uint32_t n_nodes, n_classes, n_ranges, n_work, nodes_max, classes_max, ranges_max;
    instruction *program;
    uint32_t n, emitted;
} reader;

static void *bad(reader *r, const char *why)
{
    if (!r->rc)
        r->rc = eng_op_fail(r->c, PST_EINVAL, "the expression \"%.100s\" cannot be read at \"%.20s\": %s", r->pattern, r->p, why);
    return NULL;
}

static void *not_covered(reader *r, const char *what)
{
    if (!r->rc)
        r->rc = eng_op_fail(r->c, PST_EUNSUPPORTED, "the expression \"%.100s\" has %s, which is not covered here", r->pattern, what);
    return NULL;
}

static node *node_new(reader *r, node_kind kind, uint32_t what)
{
    PST_ASSERT(r->n_nodes < r->nodes_max);
    node *n = &r->nodes[r->n_nodes++];
    *n = (node){.kind = kind, .what = what};
    return n;
}

static void put_range(reader *r, int32_t lo, int32_t hi)
{
    PST_ASSERT(r->n_work < r->ranges_max);
    r->work[r->n_work++] = (range){lo, hi};
}

/* The other case of those letters of the alphabet from first on that lie in lo..hi. Two characters beyond ASCII are cases of ASCII letters:
 * U+017F of s and U+212A of k. */
static void put_other_case(reader *r, int32_t lo, int32_t hi, int32_t first, int32_t shift)
{
    lo = lo > first ? lo : first;
    hi = hi < first + 25 ? hi : first + 25;
    if (lo > hi)
        return;
    put_range(r, lo + shift, hi + shift);
    if (lo <= first + 18 && hi >= first + 18)
        put_range(r, 0x17f, 0x17f);
    if (lo <= first + 10 && hi >= first + 10)
        put_range(r, 0x212a, 0x212a);
}

/* With the other cases of its letters where case makes no difference. */
static void put_folded(reader *r, int32_t lo, int32_t hi)
{
    put_range(r, lo, hi);
    if (!(r->flags & FOLD))
        return;
    if (hi >= 0x80)
        not_covered(r, "letters beyond ASCII without regard to case");
    put_other_case(r, lo, hi, 'A', 32);
    put_other_case(r, lo, hi, 'a', -32);
}

static int by_begin(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return x->lo != y->lo ? (x->lo < y->lo ? -1 : 1) : (x->hi > y->hi) - (x->hi < y->hi);
}

/* work[from..] in order, without overlaps. */
static void merge(reader *r, uint32_t from)
{
    range *w = r->work + from;
    uint32_t n = r->n_work - from, kept = 0;
    if (!n)
        return;
    qsort(w, n, sizeof *w, by_begin);
    for (uint32_t i = 1; i < n; i++)
        if (w[i].lo <= w[kept].hi + 1)
            w[kept].hi = w[i].hi > w[kept].hi ? w[i].hi : w[kept].hi;
        else
            w[++kept] = w[i];
    r->n_work = from + kept + 1;
}

/* work[from..] becomes all other characters. */
static void negate(reader *r, uint32_t from)
{
    merge(r, from);
    uint32_t n = r->n_work - from, kept = 0;
    range *w = r->work + from;
    int32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        range at = w[i];
        if (at.lo > next)
            w[kept++] = (range){next, at.lo - 1};
        next = at.hi + 1;
    }
    r->n_work = from + kept;
    if (next <= RUNE_MAX)
        put_range(r, next, RUNE_MAX);
}

static node *class_done(reader *r, bool inverse)
{
    if (inverse)
        negate(r, 0);
    else
        merge(r, 0);
    PST_ASSERT(r->n_classes < r->classes_max && r->n_ranges + r->n_work <= r->ranges_max);
    rune_class *k = &r->classes[r->n_classes];
    *k = (rune_class){.first = r->n_ranges, .n = r->n_work};
    for (uint32_t i = 0; i < r->n_work; i++) {
        r->ranges[r->n_ranges++] = r->work[i];
        for (int32_t v = r->work[i].lo; v <= r->work[i].hi && v < 128; v++)
            k->low[v / 32] |= 1u << v % 32;
    }
    r->n_work = 0;
    return node_new(r, IS_CLASS, r->n_classes++);
}

typedef struct named_class {
    const char *name;
    range of[4]; /* up to one that is 0, 0 */
} named_class;

static const named_class letters[] = {
    {"d", {{'0', '9'}}}, {"s", {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}}, {"w", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}}};
static const named_class words[] = {{"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
                                    {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
                                    {"ascii", {{0, 127}}},
                                    {"blank", {{'\t', '\t'}, {' ', ' '}}},
                                    {"cntrl", {{0, 31}, {127, 127}}},
                                    {"digit", {{'0', '9'}}},
                                    {"graph", {{'!', '~'}}},
                                    {"lower", {{'a', 'z'}}},
                                    {"print", {{' ', '~'}}},
                                    {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
                                    {"space", {{'\t', '\r'}, {' ', ' '}}},
                                    {"upper", {{'A', 'Z'}}},
                                    {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
                                    {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}}};

static void put_named(reader *r, const named_class *k, bool inverse)
{
    uint32_t from = r->n_work;
    for (int i = 0; i < 4 && (k->of[i].lo || k->of[i].hi); i++)
        put_folded(r, k->of[i].lo, k->of[i].hi);
    if (inverse)
        negate(r, from);
}

/* \d \D \s \S \w \W at p: taken. */
static bool take_letter_class(reader *r)
{
    for (size_t i = 0; r->p[0] == '\\' && r->p[1] && i < sizeof letters / sizeof *letters; i++)
        if ((r->p[1] | 32) == letters[i].name[0] && r->p[1] >= 'A') {
            put_named(r, &letters[i], r->p[1] < 'a');
            r->p += 2;
            return true;
        }
    return false;
}

/* [:name:] and [:^name:] at p. */
static bool take_word_class(reader *r)
{
    const char *end = r->p[0] == '[' && r->p[1] == ':' ? strstr(r->p + 2, ":]") : NULL;
    if (!end)
        return false;
    bool inverse = r->p[2] == '^';
    const char *name = r->p + 2 + inverse;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].name) == (size_t)(end - name) && !strncmp(words[i].name, name, (size_t)(end - name))) {
            put_named(r, &words[i], inverse);
            r->p = end + 2;
            return true;
        }
    bad(r, "no class has this name");
    return true;
}

static int digit_of(char c, int base)
{
    int v = 99, lower = c | 32;
    if (c >= '0' && c <= '9')
        v = c - '0';
    else if (lower >= 'a' && lower <= 'f')
        v = lower - 'a' + 10;
    return v < base ? v : -1;
}

/* What follows \x: two digits, or up to eight in braces. */
static int32_t hex_rune(reader *r)
{
    int32_t v = 0;
    bool braces = *r->p == '{';
    const char *from = r->p += braces;
    while (digit_of(*r->p, 16) >= 0 && r->p - from < (braces ? 8 : 2) && v <= RUNE_MAX)
        v = v * 16 + digit_of(*r->p++, 16);
    bool whole = braces ? r->p > from && *r->p == '}' : r->p - from == 2;
    if (!whole || v > RUNE_MAX) {
        bad(r, "no character has this number");
        return 0;
    }
    r->p += braces;
    return v;
}

/* A backslash and what it makes a single character of. */
static int32_t escaped_rune(reader *r)
{
    static const char names[] = "afnrtv", values[] = "\a\f\n\r\t\v";
    char c = *++r->p;
    const char *at = c ? strchr(names, c) : NULL;
    if (c == 'p' || c == 'P' || c == 'Q' || c == 'E' || c == 'C') {
        not_covered(r, "\\p, \\P, \\Q, \\E or \\C");
        return 0;
    }
    if (c == 'x') {
        r->p++;
        return hex_rune(r);
    }
    if (c == '0' || (digit_of(c, 8) > 0 && digit_of(r->p[1], 8) >= 0)) { /* octal; one digit alone would refer back */
        int32_t v = 0;
        for (int i = 0; i < 3 && digit_of(*r->p, 8) >= 0; i++)
            v = v * 8 + digit_of(*r->p++, 8);
        return v;
    }
    bool word = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
    if (!at && (!c || (unsigned char)c >= 0x80 || word)) {
        bad(r, "this means nothing behind a backslash");
        return 0;
    }
    r->p++;
    return at ? values[at - names] : c;
}

static int32_t take_rune(reader *r)
{
    if (*r->p == '\\')
        return escaped_rune(r);
    int32_t v = rune_at(r->p);
    r->p += eng_utf8_step(r->p);
    return v;
}

static node *read_class(reader *r)
{
    bool inverse = *++r->p == '^';
    r->p += inverse;
    for (bool first = true; !r->rc && (first || *r->p != ']'); first = false) {
        if (!*r->p)
            return bad(r, "a class without its ]");
        if (take_word_class(r) || take_letter_class(r))
            continue;
        int32_t lo = take_rune(r), hi = lo;
        if (!r->rc && r->p[0] == '-' && r->p[1] && r->p[1] != ']') {
            r->p++;
            hi = take_rune(r);
        }
        if (hi < lo)
            return bad(r, "a range that ends before it begins");
        if (!r->rc)
            put_folded(r, lo, hi);
    }
    r->p++;
    return r->rc ? NULL : class_done(r, inverse);
}

static node *read_choice(reader *r);

/* (?flags) or (?flags: at p; false = it is a group, which goes on at p. */
static bool take_flags(reader *r)
{
    bool on = true, any = false;
    for (r->p += 2; *r->p != ')' && *r->p != ':'; r->p++) {
        int flag = *r->p == 'i' ? FOLD : *r->p == 'm' ? LINES : *r->p == 's' ? DOT_ALL : 0;
        if (*r->p == '-' && on)
            on = any = false;
        else if (flag || *r->p == 'U') /* the longest match is the same either way */
            r->flags = on ? r->flags | flag : r->flags & ~flag, any = true;
        else
            return bad(r, "no such flag") != NULL;
    }
    if (!on && !any)
        return bad(r, "no flag behind the -") != NULL;
    return *r->p++ == ')';
}

static node *read_group(reader *r)
{
    int flags = r->flags;
    if (r->p[1] == '?' && (r->p[2] == '<' || (r->p[2] == 'P' && r->p[3] == '<'))) {
        r->p += r->p[2] == '<' ? 3 : 4;
        size_t len = strspn(r->p, "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (!len || r->p[len] != '>')
            return bad(r, "a group's name is needed");
        r->p += len + 1;
    } else if (r->p[1] == '?') {
        bool alone = take_flags(r);
        if (r->rc || alone) /* flags alone hold to the end of the group around them */
            return r->rc ? NULL : node_new(r, IS_EMPTY, 0);
    } else {
        r->p++;
    }
    if (++r->depth > DEPTH_MAX)
        return not_covered(r, "more groups in groups than 100");
    node *n = read_choice(r);
    r->depth--;
    if (!r->rc && *r->p++ != ')')
        return bad(r, "a group without its )");
    r->flags = flags;
    return n;
}

static node *read_assertion(reader *r)
{
    static const char names[] = "AzbB";
    static const place places[] = {AT_TEXT_BEGIN, AT_TEXT_END, AT_WORD, AT_NO_WORD};
    const char *at = r->p[0] == '\\' && r->p[1] ? strchr(names, r->p[1]) : NULL;
    if (at) {
        r->p += 2;
        return node_new(r, IS_ASSERT, places[at - names]);
    }
    if (*r->p != '^' && *r->p != '$')
        return NULL;
    bool lines = r->flags & LINES;
    if (*r->p++ == '^')
        return node_new(r, IS_ASSERT, lines ? AT_LINE_BEGIN : AT_TEXT_BEGIN);
    return node_new(r, IS_ASSERT, lines ? AT_LINE_END : AT_TEXT_END);
}

static node *read_one(reader *r)
{
    if (*r->p == '(')
        return read_group(r);
    if (*r->p == '[')
        return read_class(r);
    node *n = read_assertion(r);
    if (n)
        return n;
    if (*r->p == '.') {
        r->p++;
        if (!(r->flags & DOT_ALL))
            put_range(r, '\n', '\n');
        return class_done(r, true);
    }
    if (take_letter_class(r))
        return r->rc ? NULL : class_done(r, false);
    int32_t v = take_rune(r);
    if (!r->rc)
        put_folded(r, v, v);
    return r->rc ? NULL : class_done(r, false);
}

static bool take_count(const char **p, int32_t *ret)
{
    int32_t v = 0;
    const char *from = *p;
    for (; digit_of(**p, 10) >= 0; ++*p)
        v = v > REPEAT_MAX ? v : v * 10 + digit_of(**p, 10);
    *ret = v;
    return *p > from && (*from != '0' || *p == from + 1);
}

/* {n}, {n,} or {n,m} at *p; anything else in braces is text. */
static bool take_braces(const char **p, int32_t *min, int32_t *max)
{
    const char *q = *p + 1;
    if (!take_count(&q, min))
        return false;
    *max = *min;
    if (*q == ',') {
        q++;
        *max = -1;
        if (*q != '}' && !take_count(&q, max))
            return false;
    }
    if (*q != '}')
        return false;
    *p = q + 1;
    return true;
}

static bool take_repeat(reader *r, int32_t *min, int32_t *max)
{
    switch (*r->p) {
    case '*': *min = 0, *max = -1; break;
    case '+': *min = 1, *max = -1; break;
    case '?': *min = 0, *max = 1; break;
    case '{': return take_braces(&r->p, min, max);
    default: return false;
    }
    r->p++;
    return true;
}

static node *read_repeated(reader *r)
{
    int32_t min, max;
    if (*r->p == '*' || *r->p == '+' || *r->p == '?' || (*r->p == '{' && take_braces(&(const char *){r->p}, &min, &max)))
        return bad(r, "nothing stands before the repetition");
    node *n = read_one(r);
    if (r->rc || !take_repeat(r, &min, &max))
        return n;
    r->p += *r->p == '?'; /* the longest match is the same either way */
    int32_t again;
    if (min > REPEAT_MAX || max > REPEAT_MAX || (max >= 0 && max < min) || take_repeat(r, &again, &again))
        return bad(r, "a repetition that cannot be");
    node *whole = node_new(r, IS_REPEAT, 0);
    whole->min = min;
    whole->max = max;
    whole->child = n;
    return whole;
}

static node *read_sequence(reader *r)
{
    node *whole = node_new(r, IS_SEQUENCE, 0), **last = &whole->child;
    while (!r->rc && *r->p && *r->p != '|' && *r->p != ')') {
        *last = read_repeated(r);
        if (*last)
            last = &(*last)->next;
    }
    return whole;
}

static node *read_choice(reader *r)
{
    node *whole = node_new(r, IS_CHOICE, 0), **last = &whole->child;
    for (;;) {
        *last = read_sequence(r);
        if (r->rc || *r->p != '|')
            return whole;
        last = &(*last)->next;
        r->p++;
    }
}

/* ---- the program ---- */

static uint32_t emit(reader *r, opcode op, uint32_t x, uint32_t y)
{
    if (r->n >= PROGRAM_MAX) {
        not_covered(r, "more parts and repetitions than a search is allowed");
        return 0;
    }
    r->program[r->n] = (instruction){(uint8_t)op, x, y};
    return r->n++;
}

static void emit_node(reader *r, const node *n);

/* Of alternatives all but the last end with a jump behind them all. Until that place is known each jump names the jump before it. */
static void emit_choice(reader *r, const node *n)
{
    uint32_t jumps = 0;
    for (const node *k = n->child; k && !r->rc; k = k->next) {
        if (!k->next) {
            emit_node(r, k);
            break;
        }
        uint32_t split = emit(r, DO_SPLIT, r->n + 1, 0);
        emit_node(r, k);
        jumps = emit(r, DO_JUMP, jumps, 0);
        r->program[split].y = r->n;
    }
    for (uint32_t j = jumps, before; !r->rc && j; j = before) {
        before = r->program[j].x;
        r->program[j].x = r->n;
    }
}

static void emit_repeat(reader *r, const node *n)
{
    uint32_t begin = r->n, ways = 0;
    for (int32_t i = 0; i < n->min && !r->rc; i++) {
        begin = r->n;
        emit_node(r, n->child);
    }
    if (n->max < 0 && n->min) {
        emit(r, DO_SPLIT, begin, r->n + 1);
    } else if (n->max < 0) {
        uint32_t split = emit(r, DO_SPLIT, r->n + 1, 0);
        emit_node(r, n->child);
        emit(r, DO_JUMP, split, 0);
        r->program[split].y = r->n;
    }
    for (int32_t i = n->min; i < n->max && !r->rc; i++) { /* each may be the last: its way out, kept as jumps are above */
        ways = emit(r, DO_SPLIT, r->n + 1, ways);
        emit_node(r, n->child);
    }
    for (uint32_t j = ways, before; !r->rc && j; j = before) {
        before = r->program[j].y;
        r->program[j].y = r->n;
    }
}

static void emit_node(reader *r, const node *n)
{
    if (r->rc)
        return;
    if (++r->emitted > EMIT_MAX) {
        not_covered(r, "more parts and repetitions than a search is allowed");
        return;
    }
    switch (n->kind) {
    case IS_EMPTY: break;
    case IS_CLASS: emit(r, DO_CLASS, n->what, 0); break;
    case IS_ASSERT: emit(r, DO_ASSERT, n->what, 0); break;
    case IS_SEQUENCE:
        for (const node *k = n->child; k; k = k->next)
            emit_node(r, k);
        break;
    case IS_CHOICE: emit_choice(r, n); break;
    case IS_REPEAT: emit_repeat(r, n); break;
    }
}

static void *copy_of(eng_op_ctx *c, const void *from, size_t bytes)
{
    void *p = eng_op_keep(c, bytes + 1);
    memcpy(p, from, bytes);
    return p;
}

static void finish(reader *r, const eng_regex **ret)
{
    if (!eng_plan_room_take(r->c->plan, r->n * sizeof *r->program + r->n_classes * sizeof *r->classes + r->n_ranges * sizeof *r->ranges)) {
        r->rc = eng_op_fail(r->c, PST_ELIMIT, "its expressions need more than the model's memory (arena_bytes_max)");
        return;
    }
    eng_regex *re = eng_op_keep(r->c, sizeof *re);
    const instruction *p = r->program;
    re->one_class = r->n == 4 && p[1].op == DO_CLASS && p[2].op == DO_SPLIT && p[2].x == 1 && p[3].op == DO_MATCH;
    re->program = copy_of(r->c, r->program, r->n * sizeof *r->program);
    re->n = r->n;
    re->classes = copy_of(r->c, r->classes, r->n_classes * sizeof *r->classes);
    re->ranges = copy_of(r->c, r->ranges, r->n_ranges * sizeof *r->ranges);
    *ret = re;
}

int eng_regex_new(eng_op_ctx *c, const char *pattern, const eng_regex **ret)
{
    size_t len = strlen(pattern), pool = 16 * len + 64; /* of a character no more than 16 ranges are made, [^\W] and folded ones included */
    reader r = {.c = c, .pattern = pattern, .p = pattern, .ranges_max = (uint32_t)pool};
    r.nodes_max = (uint32_t)(4 * len + 16);
    r.classes_max = (uint32_t)len + 1;
    if (len > PATTERN_MAX)
        return eng_op_fail(c, PST_ELIMIT, "an expression of %zu bytes: at most %d are read", len, PATTERN_MAX);
    if (eng_utf8_count(pattern, len) < 0)
        return eng_op_fail(c, PST_EINVAL, "the expression is no UTF-8");
    r.nodes = eng_op_scratch(c, r.nodes_max * sizeof *r.nodes);
    r.classes = eng_op_scratch(c, r.classes_max * sizeof *r.classes);
    r.ranges = eng_op_scratch(c, pool * sizeof *r.ranges);
    r.work = eng_op_scratch(c, pool * sizeof *r.work);
    r.program = eng_op_scratch(c, PROGRAM_MAX * sizeof *r.program);
    if (!r.nodes || !r.classes || !r.ranges || !r.work || !r.program)
        return PST_ELIMIT;
    const node *whole = read_choice(&r);
    if (!r.rc && *r.p)
        bad(&r, "a ) without its (");
    if (!r.rc) {
        emit(&r, DO_JUMP, 1, 0); /* so that no jump to be filled in later is number 0 */
        emit_node(&r, whole);
        emit(&r, DO_MATCH, 0, 0);
    }
    if (!r.rc)
        finish(&r, ret);
    return r.rc;
}

/* ---- searching ---- */

int eng_regex_begin(eng_op_ctx *c, const eng_regex *re, eng_regex_run *ret)
{
    *ret = (eng_regex_run){.c = c, .re = re};
    ret->mark = eng_op_scratch(c, re->n * sizeof *ret->mark);
    ret->stack = eng_op_scratch(c, (2 * (size_t)re->n + 1) * sizeof *ret->stack);
    ret->now = eng_op_scratch(c, re->n * sizeof *ret->now);
    ret->next = eng_op_scratch(c, re->n * sizeof *ret->next);
    if (!ret->mark || !ret->stack || !ret->now || !ret->next)
        return PST_ELIMIT;
    memset(ret->mark, 0, re->n * sizeof *ret->mark);
    return 0;
}

static bool in_class(const eng_regex *re, uint32_t which, int32_t v)
{
    const rune_class *k = &re->classes[which];
    if (v < 128)
        return k->low[v / 32] >> v % 32 & 1;
    const range *at = re->ranges + k->first;
    uint32_t lo = 0, hi = k->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (at[mid].hi < v)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < k->n && at[lo].lo <= v;
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
}

static bool holds(place what, const char *text, size_t len, size_t at)
{
    bool before = at > 0 && is_word(text[at - 1]), after = at < len && is_word(text[at]);
    switch (what) {
    case AT_TEXT_BEGIN: return at == 0;
    case AT_TEXT_END: return at == len;
    case AT_LINE_BEGIN: return at == 0 || text[at - 1] == '\n';
    case AT_LINE_END: return at == len || text[at] == '\n';
    case AT_WORD: return before != after;
    case AT_NO_WORD: return before == after;
    }
    return false;
}

/* All places that a way can be at without another character, from pc on; those that are taken were reached by a way that began earlier. */
static void follow(eng_regex_run *r, uint32_t pc, size_t from, const char *text, size_t len, size_t at)
{
    r->n_stack = 0;
    r->stack[r->n_stack++] = pc;
    while (r->n_stack) {
        pc = r->stack[--r->n_stack];
        const instruction *i = &r->re->program[pc];
        if (r->mark[pc] == r->generation)
            continue;
        r->mark[pc] = r->generation;
        switch ((opcode)i->op) {
        case DO_JUMP: r->stack[r->n_stack++] = i->x; break;
        case DO_SPLIT:
            r->stack[r->n_stack++] = i->y;
            r->stack[r->n_stack++] = i->x;
            break;
        case DO_ASSERT:
            if (holds((place)i->x, text, len, at))
                r->stack[r->n_stack++] = pc + 1;
            break;
        case DO_CLASS:
        case DO_MATCH: r->next[r->n_next++] = (struct eng_regex_thread){pc, from}; break;
        }
    }
}

static int one_class_find(const eng_regex *re, const char *text, size_t len, size_t from, size_t *ret_at, size_t *ret_len)
{
    uint32_t which = re->program[1].x;
    size_t at = from;
    while (at < len && !in_class(re, which, rune_at(text + at)))
        at += eng_utf8_step(text + at);
    size_t end = at;
    while (end < len && in_class(re, which, rune_at(text + end)))
        end += eng_utf8_step(text + end);
    *ret_at = at;
    *ret_len = end - at;
    return end > at;
}

static void next_place(eng_regex_run *r)
{
    struct eng_regex_thread *t = r->now;
    r->now = r->next;
    r->n_now = r->n_next;
    r->next = t;
    r->n_next = 0;
    if (++r->generation == 0) { /* after four thousand million places marks could lie */
        memset(r->mark, 0, r->re->n * sizeof *r->mark);
        r->generation = 1;
    }
}

/* Between two places of the text next holds the ways that have come to the later one, in the order in which they began. */
int eng_regex_find(eng_regex_run *r, const char *text, size_t len, size_t from, size_t *ret_at, size_t *ret_len)
{
    if (r->re->one_class)
        return one_class_find(r->re, text, len, from, ret_at, ret_len);
    bool found = false;
    size_t best = 0, end = 0;
    r->n_next = 0;
    next_place(r);
    r->n_next = 0;
    for (size_t at = from;;) {
        if (!found)
            follow(r, 0, at, text, len, at);
        next_place(r);
        for (uint32_t k = 0; k < r->n_now && (!found || r->now[k].from <= best); k++)
            if (r->re->program[r->now[k].pc].op == DO_MATCH) {
                found = true;
                best = r->now[k].from;
                end = at;
            }
        if (at >= len || (found && !r->n_now))
            break;
        int32_t rune = rune_at(text + at);
        at += eng_utf8_step(text + at);
        for (uint32_t k = 0; k < r->n_now && (!found || r->now[k].from <= best); k++) {
            const instruction *i = &r->re->program[r->now[k].pc];
            if (i->op == DO_CLASS && in_class(r->re, i->x, rune))
                follow(r, r->now[k].pc + 1, r->now[k].from, text, len, at);
        }
        r->work += r->n_now + 1;
        if (r->work >= PAUSE_AT) {
            r->work = 0;
            int rc = eng_op_pause(r->c);
            if (rc < 0)
                return rc;
        }
    }
    *ret_at = best;
    *ret_len = end - best;
    return found;
}
