/* regex.h - regular expressions over UTF-8, in RE2's syntax: of all matches the one that begins first, of these the longest (so greedy or
 * not makes no difference, as in RE2 with longest_match). Not installed.
 *
 * The expression and the text are untrusted: a search takes time proportional to text times expression, whatever they are, and the run's
 * bounds (eng_op_pause) are asked on the way. What RE2 has and this has not (\p{…}, \C, \Q…\E, letters beyond ASCII without regard to case)
 * is PST_EUNSUPPORTED, what RE2 refuses is PST_EINVAL. */
#ifndef PST_ENGINE_REGEX_H
#define PST_ENGINE_REGEX_H

#include "engine/ops/ops.h"

typedef struct eng_regex eng_regex;

/* For prepare: the compiled expression lives as long as what eng_op_keep gives. */
int eng_regex_new(eng_op_ctx *c, const char *pattern, const eng_regex **ret);

/* Room for searches, from the scratch memory of one run of a kernel. */
typedef struct eng_regex_run {
    eng_op_ctx *c;
    const eng_regex *re;
    uint32_t *mark, *stack, generation, n_stack;
    struct eng_regex_thread *now, *next;
    uint32_t n_now, n_next;
    uint64_t work; /* done since the run's bounds were asked */
} eng_regex_run;
int eng_regex_begin(eng_op_ctx *c, const eng_regex *re, eng_regex_run *ret);

/* text[0..len) is valid UTF-8, from ≤ len the start of a character; anchors and word boundaries see the text before it. 1 = found, 0 = not,
 * negative after an error. */
int eng_regex_find(eng_regex_run *r, const char *text, size_t len, size_t from, size_t *ret_at, size_t *ret_len);

/* Characters of s[0..len), -1 where it is no UTF-8. */
int64_t eng_utf8_count(const char *s, size_t len);
/* Bytes of the character at s, by its first byte. */
static inline size_t eng_utf8_step(const char *s)
{
    unsigned char b = (unsigned char)*s;
    return b < 0xc0 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

#endif
