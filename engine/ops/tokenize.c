/* tokenize.c - what regular expressions are for: RegexFullMatch, and com.microsoft.Tokenizer: texts (C) or (N, C) to their tokens (…, D), short
 * rows filled up; what scikit-learn's text pipelines become. As ONNX Runtime 1.31 does it: one expression that finds tokens, or several that cut
 * texts, one after the other, or characters.
 *
 * What looks odd is so there too: a match that is too short is left by one character, not as a whole; a separator that matches nothing takes
 * a character with it; texts without any token give no column, not even the marks. */
#include "engine/ops/kernels.h"
#include "engine/ops/regex.h"

#include <string.h>

enum { SEPARATORS_MAX = 1000 };

typedef struct tokenizer {
    const char *pad;
    bool mark, characters;
    int64_t chars_min;
    const eng_regex *token; /* NULL: separators */
    const eng_regex **separators;
    size_t n_separators;
} tokenizer;

static int read_expressions(eng_op_ctx *c, tokenizer *t)
{
    const eng_attr *separators = eng_attr_find(c->node, "separators");
    const char *expression = eng_attr_str(c->node, "tokenexp", NULL);
    size_t n;
    const char *const *texts = eng_attr_strings(c->node, "separators", &n);
    int rc = 0;
    if (!separators && (!expression || !*expression))
        return eng_op_fail(c, PST_EINVAL, "separators or tokenexp is needed");
    if (separators && (!n || n > SEPARATORS_MAX))
        return eng_op_fail(c, PST_EINVAL, "%zu separators: 1 to %d are wanted", n, SEPARATORS_MAX);
    t->characters = separators ? n == 1 && !*texts[0] : !strcmp(expression, ".");
    if (t->characters)
        return t->chars_min < 2 ? 0 : eng_op_fail(c, PST_EINVAL, "single characters cannot have mincharnum %lld", (long long)t->chars_min);
    if (!separators)
        return eng_regex_new(c, expression, &t->token);
    t->separators = eng_op_keep(c, n * sizeof *t->separators);
    t->n_separators = n;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = eng_regex_new(c, texts[i], &t->separators[i]);
    return rc;
}

int eng_prepare_tokenizer(eng_op_ctx *c)
{
    tokenizer *t = *c->state = eng_op_keep(c, sizeof *t);
    static const char *const needed[] = {"mark", "pad_value", "mincharnum"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!eng_attr_find(c->node, needed[i]))
            return eng_op_fail(c, PST_EINVAL, "its attribute %s is missing", needed[i]);
    t->mark = eng_attr_int(c->node, "mark", 0) != 0;
    t->pad = eng_attr_str(c->node, "pad_value", "");
    t->chars_min = eng_attr_int(c->node, "mincharnum", 1);
    if (t->chars_min < 1)
        return eng_op_fail(c, PST_EINVAL, "mincharnum is %lld, not at least 1", (long long)t->chars_min);
    return read_expressions(c, t);
}

typedef struct token {
    const char *s;
    size_t len;
} token;

/* Tokens of all texts behind each other, in memory of the kernel's run that doubles. */
typedef struct tokens {
    eng_op_ctx *c;
    token *at;
    size_t n, cap;
} tokens;

static int put_token(tokens *t, const char *s, size_t len)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        token *more = eng_op_scratch(t->c, cap * sizeof *more);
        if (!more)
            return PST_ELIMIT;
        if (t->n)
            memcpy(more, t->at, t->n * sizeof *more);
        t->at = more;
        t->cap = cap;
    }
    t->at[t->n++] = (token){s, len};
    return 0;
}

static bool long_enough(const tokenizer *t, const char *s, size_t len)
{
    return t->chars_min == 1 ? len > 0 : eng_utf8_count(s, len) >= t->chars_min;
}

/* Where to look on when nothing was taken at this place: a character on, or behind the end. */
static size_t next_place(token text, size_t at)
{
    return at == text.len ? at + 1 : at + eng_utf8_step(text.s + at);
}

static int find_tokens(const tokenizer *t, eng_regex_run *r, token text, tokens *ret)
{
    size_t at, len;
    int rc = 0;
    for (size_t from = 0; from <= text.len && rc == 0;) {
        int found = eng_regex_find(r, text.s, text.len, from, &at, &len);
        if (found <= 0)
            return found;
        bool whole = long_enough(t, text.s + at, len);
        if (whole)
            rc = put_token(ret, text.s + at, len);
        from = whole ? at + len : next_place(text, at);
    }
    return rc;
}

static int cut_text(const tokenizer *t, eng_regex_run *r, token text, tokens *ret)
{
    size_t from = 0, at, len;
    int rc = 0;
    while (from <= text.len && rc == 0) {
        int found = eng_regex_find(r, text.s, text.len, from, &at, &len);
        if (found < 0)
            return found;
        size_t end = found ? at : text.len;
        if (long_enough(t, text.s + from, end - from))
            rc = put_token(ret, text.s + from, end - from);
        if (!found)
            break;
        from = len ? at + len : next_place(text, at);
    }
    return rc;
}

/* What one separator leaves is cut by the next; the tokens of this text replace each other from first on. */
static int cut_by_all(const tokenizer *t, eng_regex_run *runs, token text, tokens *ret)
{
    size_t first = ret->n;
    int rc = put_token(ret, text.s, text.len);
    for (size_t k = 0; k < t->n_separators && rc == 0; k++) {
        size_t before = ret->n;
        for (size_t i = first; i < before && rc == 0; i++)
            rc = cut_text(t, &runs[k], ret->at[i], ret);
        if (rc == 0)
            memmove(ret->at + first, ret->at + before, (ret->n - before) * sizeof *ret->at);
        ret->n = first + (ret->n - before);
    }
    return rc;
}

static int characters_of(token text, tokens *ret)
{
    int rc = 0;
    for (size_t i = 0; i < text.len && rc == 0; i += eng_utf8_step(text.s + i))
        rc = put_token(ret, text.s + i, eng_utf8_step(text.s + i));
    return rc;
}

static int tokens_of(const tokenizer *t, eng_regex_run *runs, token text, tokens *ret)
{
    int64_t chars = eng_utf8_count(text.s, text.len);
    if (chars < 0)
        return eng_op_fail(ret->c, PST_EINVAL, "a text is no UTF-8");
    if (t->characters)
        return characters_of(text, ret);
    if (!t->token)
        return cut_by_all(t, runs, text, ret);
    return chars < t->chars_min ? 0 : find_tokens(t, runs, text, ret);
}

/* ends[i]: where the tokens of text i end in the list; widest: of one text. */
static int write_tokens(eng_op_ctx *c, const tokenizer *t, const tokens *all, const size_t *ends, int64_t widest)
{
    pst_tensor x = *eng_in(c, 0);
    int64_t n = eng_count(&x), marks = t->mark && widest ? 2 : 0, dims[3] = {x.dims[0], x.dims[1], 0};
    bool none = n == 0; /* as there: the shape of no texts loses a dimension */
    int rank = none ? x.rank : x.rank + 1;
    dims[rank - 1] = none ? 0 : widest + marks;
    const char **o = eng_out(c, 0, PST_STR, rank, dims);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n && widest; i++) {
        size_t k = i ? ends[i - 1] : 0;
        const char **end = o + widest + marks;
        if (marks)
            *o++ = "\x02";
        for (; k < ends[i]; k++)
            *o++ = eng_op_text(c, all->at[k].s, all->at[k].len);
        if (marks)
            *o++ = "\x03";
        while (o < end)
            *o++ = t->pad;
    }
    return 0;
}

int eng_op_tokenizer(eng_op_ctx *c)
{
    const tokenizer *t = *c->state;
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    if (x.dtype != PST_STR || x.rank < 1 || x.rank > 2)
        return eng_op_fail(c, PST_EINVAL, "texts of shape (C) or (N, C) are needed");
    int64_t n = eng_count(&x), widest = 0;
    size_t n_runs = t->token ? 1 : t->n_separators;
    eng_regex_run *runs = eng_op_scratch(c, n_runs * sizeof *runs);
    size_t *ends = eng_op_scratch(c, (size_t)n * sizeof *ends);
    tokens all = {.c = c};
    if (!runs || !ends)
        return PST_ELIMIT;
    for (size_t k = 0; k < n_runs; k++)
        if ((rc = eng_regex_begin(c, t->token ? t->token : t->separators[k], &runs[k])) < 0)
            return rc;
    for (int64_t i = 0; i < n; i++) {
        size_t before = all.n;
        const char *s = ((const char *const *)x.data)[i];
        if ((rc = tokens_of(t, runs, (token){s, strlen(s)}, &all)) < 0 || (rc = eng_op_pause(c)) < 0)
            return rc;
        ends[i] = all.n;
        widest = (int64_t)(all.n - before) > widest ? (int64_t)(all.n - before) : widest;
    }
    return write_tokens(c, t, &all, ends, widest);
}

int eng_prepare_regex_full_match(eng_op_ctx *c)
{
    const char *pattern = eng_attr_str(c->node, "pattern", NULL);
    if (!pattern)
        return eng_op_fail(c, PST_EINVAL, "its attribute pattern is missing");
    return eng_regex_new(c, pattern, (const eng_regex **)c->state);
}

/* The longest match that begins where the text does is the text, or no match is. */
int eng_op_regex_full_match(eng_op_ctx *c)
{
    eng_regex_run r;
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    if (x.dtype != PST_STR)
        return eng_op_type(c, x.dtype);
    uint8_t *o = eng_out_typed(c, 0, PST_BOOL, &x);
    if (!o)
        return PST_ELIMIT;
    if ((rc = eng_regex_begin(c, *c->state, &r)) < 0)
        return rc;
    for (int64_t i = 0, n = eng_count(&x); i < n; i++) {
        const char *s = ((const char *const *)x.data)[i];
        size_t len = strlen(s), at, matched;
        if (eng_utf8_count(s, len) < 0)
            return eng_op_fail(c, PST_EINVAL, "a text is no UTF-8");
        if ((rc = eng_regex_find(&r, s, len, 0, &at, &matched)) < 0)
            return rc;
        o[i] = rc && at == 0 && matched == len;
    }
    return 0;
}
