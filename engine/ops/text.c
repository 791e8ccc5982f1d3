/* text.c - operators on texts (UTF-8; case is changed as Unicode has it, one character for one) and TfIdfVectorizer. */
#include "engine/ops/kernels.h"
#include "engine/ops/regex.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <wctype.h>

/* Broadcasting repeats texts: the bytes of the result are held against the limit as they grow, not those of the inputs. */
int eng_op_string_concat(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), rank;
    if (rc < 0)
        return rc;
    pst_tensor a = *eng_in(c, 0), b = *eng_in(c, 1);
    int64_t dims[PST_MAX_RANK], sa[PST_MAX_RANK], sb[PST_MAX_RANK];
    if (a.dtype != PST_STR || b.dtype != PST_STR)
        return eng_op_type(c, a.dtype);
    if ((rc = eng_broadcast(c, &a, &b, &rank, dims)) < 0)
        return rc;
    const char **o = eng_out(c, 0, PST_STR, rank, dims);
    if (!o)
        return PST_ELIMIT;
    eng_broadcast_strides(&a, rank, sa);
    eng_broadcast_strides(&b, rank, sb);
    size_t total = 0, room = 0;
    char *both = NULL;
    for (int64_t i = 0, n = eng_dims_count(dims, rank); i < n; i++) {
        int64_t ia = 0, ib = 0, rest = i;
        for (int k = rank - 1; k >= 0; k--) {
            ia += rest % dims[k] * sa[k];
            ib += rest % dims[k] * sb[k];
            rest /= dims[k];
        }
        const char *x = ((const char *const *)a.data)[ia], *y = ((const char *const *)b.data)[ib];
        size_t nx = strlen(x), ny = strlen(y);
        total += nx + ny;
        if (total > c->plan->m->limits.tensor_bytes_max)
            return eng_op_fail(c, PST_ELIMIT, "texts of more than %zu bytes", c->plan->m->limits.tensor_bytes_max);
        if (nx + ny + 1 > room) {
            room = 2 * (nx + ny) + 64;
            both = eng_op_scratch(c, room);
            if (!both)
                return PST_ELIMIT;
        }
        memcpy(both, x, nx);
        memcpy(both + nx, y, ny);
        o[i] = eng_op_text(c, both, nx + ny);
    }
    return 0;
}

/* Letters of all scripts, whatever the process's locale is; NULL where the system has no such locale. */
static locale_t letters;
static pthread_once_t letters_once = PTHREAD_ONCE_INIT;
static void find_letters(void)
{
    letters = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

static uint32_t read_char(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    uint32_t v = n == 1 ? u[0] : u[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        v = v << 6 | (u[i] & 0x3f);
    return v;
}

static size_t write_char(uint32_t v, char *to)
{
    if (v < 0x80) {
        *to = (char)v;
        return 1;
    }
    size_t n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, v >>= 6)
        to[i] = (char)(0x80 | (v & 0x3f));
    to[0] = (char)((0xf00u >> n & 0xff) | v);
    return n;
}

/* s with its letters in the case `how` begins with (U, L; else unchanged), one character for one. to: 4 bytes for each of s, and one. */
static size_t change_case(const char *s, char how, char *to)
{
    size_t n = 0;
    for (size_t step; *s; s += step) {
        step = eng_utf8_step(s);
        uint32_t v = read_char(s, step);
        if (v < 0x80)
            v = how == 'U' && v >= 'a' && v <= 'z' ? v - 32 : how == 'L' && v >= 'A' && v <= 'Z' ? v + 32 : v;
        else if (how == 'U' || how == 'L')
            v = (uint32_t)(how == 'U' ? towupper_l((wint_t)v, letters) : towlower_l((wint_t)v, letters));
        n += write_char(v, to + n);
    }
    to[n] = 0;
    return n;
}

/* Room that grows; for one text at a time. */
typedef struct text_room {
    char *at;
    size_t bytes;
} text_room;

static bool text_room_for(eng_op_ctx *c, text_room *r, size_t bytes)
{
    if (bytes > r->bytes) {
        r->bytes = 2 * bytes;
        r->at = eng_op_scratch(c, r->bytes);
    }
    return r->at != NULL;
}

/* Letters beyond ASCII: valid UTF-8, of a language whose case is that of Unicode. */
static int check_letters(eng_op_ctx *c, const char *s)
{
    size_t len = strlen(s), i = 0;
    while (i < len && !(s[i] & 0x80))
        i++;
    if (i == len)
        return 0;
    pthread_once(&letters_once, find_letters);
    if (eng_utf8_count(s, len) < 0)
        return eng_op_fail(c, PST_EINVAL, "a text is no UTF-8");
    return letters ? 0 : eng_op_fail(c, PST_EUNSUPPORTED, "letters beyond ASCII: this system has no locale C.UTF-8");
}

/* In Turkish and Azerbaijani, i and I are not one letter. */
static int check_language(eng_op_ctx *c)
{
    const char *locale = eng_attr_str(c->node, "locale", "en_US");
    bool other = (!strncasecmp(locale, "tr", 2) || !strncasecmp(locale, "az", 2)) && (!locale[2] || strchr("_-.@", locale[2]));
    return other ? eng_op_fail(c, PST_EUNSUPPORTED, "case as in the locale %s is not covered", locale) : 0;
}

/* s in another case, in room. */
static int in_case(eng_op_ctx *c, const char *s, char how, text_room *room, size_t *ret_len)
{
    int rc = check_letters(c, s);
    if (rc < 0 || !text_room_for(c, room, 4 * strlen(s) + 1))
        return rc < 0 ? rc : PST_ELIMIT;
    *ret_len = change_case(s, how, room->at);
    return 0;
}

/* The texts that are no stop words, and how many. */
static int keep_texts(eng_op_ctx *c, const pst_tensor *x, const char **kept, int64_t *ret)
{
    size_t n_stop;
    const char *const *stop = eng_attr_strings(c->node, "stopwords", &n_stop);
    bool exact = eng_attr_int(c->node, "is_case_sensitive", 0);
    const char **words = eng_op_scratch(c, (n_stop + 1) * sizeof *words);
    text_room room = {0};
    size_t len;
    int rc = 0;
    *ret = 0;
    if (!words)
        return PST_ELIMIT;
    for (size_t k = 0; k < n_stop; k++) {
        text_room own = {0};
        if (!exact && (rc = in_case(c, stop[k], 'L', &own, &len)) < 0)
            return rc;
        words[k] = exact ? stop[k] : own.at;
    }
    for (int64_t i = 0, n = eng_count(x); i < n; i++) {
        const char *s = ((const char *const *)x->data)[i];
        bool folded = !exact && n_stop, drop = false;
        if (folded && (rc = in_case(c, s, 'L', &room, &len)) < 0)
            return rc;
        for (size_t k = 0; k < n_stop && !drop; k++)
            drop = !strcmp(folded ? room.at : s, words[k]);
        if (!drop)
            kept[(*ret)++] = s;
    }
    return 0;
}

/* Stop words out, then case: (C) or (1, C). Nothing left gives one empty text. */
int eng_op_string_normalizer(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0 || (rc = check_language(c)) < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    char how = *eng_attr_str(c->node, "case_change_action", "NONE");
    if (x.dtype != PST_STR || x.rank < 1 || x.rank > 2 || (x.rank == 2 && x.dims[0] != 1))
        return eng_op_fail(c, PST_EINVAL, "texts of shape (C) or (1, C) are needed");
    int64_t left;
    const char **kept = eng_op_scratch(c, (size_t)(eng_count(&x) + 1) * sizeof *kept);
    if (!kept)
        return PST_ELIMIT;
    if ((rc = keep_texts(c, &x, kept, &left)) < 0)
        return rc;
    if (!left)
        kept[left++] = "";
    int64_t dims[2] = {x.rank == 2 ? 1 : left, left};
    const char **o = eng_out(c, 0, PST_STR, x.rank, dims);
    text_room room = {0};
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < left; i++) {
        const char *s = kept[i];
        size_t len = strlen(s);
        bool change = how == 'U' || how == 'L';
        if (change && (rc = in_case(c, s, how, &room, &len)) < 0)
            return rc;
        o[i] = eng_op_text(c, change ? room.at : s, len);
    }
    return 0;
}

/* The next part of *at: ended by the delimiter, or by white space when there is none. NULL at the end. */
static const char *next_part(const char **at, const char *delim, bool last, size_t *ret_len)
{
    const char *s = *at, *end;
    if (!s)
        return NULL;
    if (!*delim) {
        s += strspn(s, " \t\n\r\f\v");
        if (!*s)
            return NULL;
        *ret_len = strcspn(s, " \t\n\r\f\v");
        if (last) { /* the rest, without spaces at its end */
            *ret_len = strlen(s);
            while (*ret_len && strchr(" \t\n\r\f\v", s[*ret_len - 1]))
                --*ret_len;
        }
        *at = s + *ret_len;
        return s;
    }
    end = last ? NULL : strstr(s, delim);
    *ret_len = end ? (size_t)(end - s) : strlen(s);
    *at = end ? end + strlen(delim) : NULL;
    return s;
}

/* Twice over the input: the result is as wide as the text with the most parts, which is known after the first. */
int eng_op_string_split(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    const char *delim = eng_attr_str(c->node, "delimiter", "");
    int64_t most = eng_attr_int(c->node, "maxsplit", INT64_MAX - 1), n = eng_count(&x), widest = 0, dims[PST_MAX_RANK + 1];
    if (x.dtype != PST_STR || x.rank >= PST_MAX_RANK)
        return eng_op_type(c, x.dtype);
    most = most < 0 ? INT64_MAX - 1 : most;
    int64_t *count = eng_out_typed(c, 1, PST_I64, &x);
    if (!count)
        return PST_ELIMIT;
    const char **o = NULL;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i++) {
            const char *at = ((const char *const *)x.data)[i], *part;
            size_t len;
            int64_t k = 0;
            for (; (part = next_part(&at, delim, k >= most, &len)); k++)
                if (pass)
                    o[i * widest + k] = eng_op_text(c, part, len);
            count[i] = k;
            widest = k > widest ? k : widest;
            for (; pass && k < widest; k++)
                o[i * widest + k] = "";
        }
        if (!pass) {
            memcpy(dims, x.dims, sizeof x.dims);
            dims[x.rank] = widest;
            o = eng_out(c, 0, PST_STR, x.rank + 1, dims);
            if (!o)
                return PST_ELIMIT;
        }
    }
    return 0;
}

/* Whether the n-gram g of the pool stands at position i of the row with the given gap. */
static bool gram_at(const pst_tensor *x, int64_t row, int64_t i, int64_t gap, int n, const char *const *texts, const int64_t *ints)
{
    for (int k = 0; k < n; k++) {
        int64_t at = row + i + k * gap;
        if (texts ? strcmp(((const char *const *)x->data)[at], texts[k]) != 0
                  : (x->dtype == PST_I64 ? ((const int64_t *)x->data)[at] : ((const int32_t *)x->data)[at]) != ints[k])
            return false;
    }
    return true;
}

int eng_op_tfidf(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    size_t n_counts, n_index, n_weights, n_texts, n_ints;
    const int64_t *starts = eng_attr_ints(c->node, "ngram_counts", &n_counts), *index = eng_attr_ints(c->node, "ngram_indexes", &n_index),
                  *ints = eng_attr_ints(c->node, "pool_int64s", &n_ints);
    const float *weights = eng_attr_floats(c->node, "weights", &n_weights);
    const char *const *texts = eng_attr_strings(c->node, "pool_strings", &n_texts);
    const char *mode = eng_attr_str(c->node, "mode", "TF");
    int64_t min = eng_attr_int(c->node, "min_gram_length", 1), max = eng_attr_int(c->node, "max_gram_length", 1),
            skips = eng_attr_int(c->node, "max_skip_count", 0);
    int64_t rows = x.rank == 2 ? x.dims[0] : 1, cols = x.rank ? x.dims[x.rank - 1] : 0, width = 0,
            pool = (int64_t)(x.dtype == PST_STR ? n_texts : n_ints);
    if ((x.dtype != PST_STR && x.dtype != PST_I64 && x.dtype != PST_I32) || x.rank < 1 || x.rank > 2 || min < 1 || max < min || max > 64 ||
        skips < 0 || skips > 1000000 || (n_weights && n_weights != n_index))
        return eng_op_fail(c, PST_EINVAL, "its input or attributes do not fit");
    for (size_t i = 0; i < n_index; i++) {
        if (index[i] < 0 || index[i] > 100000000)
            return eng_op_fail(c, PST_EINVAL, "bad ngram_indexes");
        width = index[i] >= width ? index[i] + 1 : width;
    }
    for (size_t i = 0; i < n_counts; i++)
        if (starts[i] < (i ? starts[i - 1] : 0) || starts[i] > pool)
            return eng_op_fail(c, PST_EINVAL, "bad ngram_counts");
    int64_t dims[2] = {x.rank == 2 ? rows : width, width};
    float *o = eng_out(c, 0, PST_F32, x.rank, dims);
    if (!o)
        return PST_ELIMIT;
    memset(o, 0, (size_t)(rows * width) * sizeof *o);
    size_t gram = 0; /* counts through the pool: one index per n-gram */
    for (int64_t n = 1; n <= (int64_t)n_counts; n++) {
        int64_t from = starts[n - 1], to = n < (int64_t)n_counts ? starts[n] : pool;
        if ((to - from) % n)
            return eng_op_fail(c, PST_EINVAL, "the pool of %lld-grams is cut", (long long)n);
        for (; from < to; from += n, gram++) {
            if (gram >= n_index)
                return eng_op_fail(c, PST_EINVAL, "more n-grams than indexes");
            if (n < min || n > max)
                continue;
            for (int64_t gap = 1; gap <= skips + 1 && (n > 1 || gap == 1); gap++)
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t i = 0; i + (n - 1) * gap < cols; i++)
                        if (gram_at(&x, r * cols, i, gap, (int)n, x.dtype == PST_STR ? texts + from : NULL, ints ? ints + from : NULL))
                            o[r * width + index[gram]] += 1;
        }
    }
    for (size_t g = 0; g < n_index && *mode == 'I'; g++)
        for (int64_t r = 0; r < rows; r++) {
            float *v = &o[r * width + index[g]];
            *v = *v > 0 ? (n_weights ? weights[g] : 1) : 0;
        }
    for (size_t g = 0; g < n_index && !strcmp(mode, "TFIDF"); g++)
        for (int64_t r = 0; r < rows && n_weights; r++)
            o[r * width + index[g]] *= weights[g];
    return 0;
}
