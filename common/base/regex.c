/* regex.c - libpcre2 behind regex.h. Its interpreter, not its compiler to machine code: that would want memory that is writable and executable in a
 * process that reads strangers' bytes. The bounds grow with the text, because a plain search over a long window takes steps by its length. */
#include "common/base/regex.h"

#include "common/base/buf.h"

#include "common/base/pcre_lib.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_LEAST    20000
#define STEPS_PER_BYTE 8
#define HEAP_KIB       2048

struct pst_regex {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
};

int pst_regex_new(const char *pattern, pst_regex **ret_regex, pst_err *err)
{
    size_t len = strlen(pattern), at;
    int native, rc = pcre_lib_open(err);
    if (rc < 0)
        return rc;
    if (len > PST_REGEX_BYTES_MAX)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "regex", 0, "has %zu bytes, at most %d are allowed", len, PST_REGEX_BYTES_MAX);
    pcre2_code *code = pcre2_compile_8((PCRE2_SPTR)pattern, len,
                                       PCRE2_ANCHORED | PCRE2_DOTALL | PCRE2_MULTILINE | PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                       &native, &at, NULL);
    if (!code) {
        char why[200] = "";
        pcre2_get_error_message_8(native, (PCRE2_UCHAR *)why, sizeof why);
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "pcre2", native, "does not compile: %s, at character %zu", why, at + 1);
    }
    pst_regex *x = pst_alloc(sizeof *x);
    x->code = code;
    x->data = pcre2_match_data_create_from_pattern_8(code, NULL);
    x->limits = pcre2_match_context_create_8(NULL);
    if (!x->data || !x->limits) {
        pst_regex_free(x);
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_FATAL, "pcre2", 0, "no memory for a regular expression");
    }
    pcre2_set_heap_limit_8(x->limits, HEAP_KIB);
    *ret_regex = x;
    return 0;
}

void pst_regex_free(pst_regex *x)
{
    if (!x)
        return;
    pcre2_match_context_free_8(x->limits);
    pcre2_match_data_free_8(x->data);
    pcre2_code_free_8(x->code);
    free(x);
}

bool pst_regex_has(const pst_regex *x, const char *group)
{
    return pcre2_substring_number_from_name_8(x->code, (PCRE2_SPTR)group) > 0;
}

int pst_regex_match(pst_regex *x, const char *text, size_t len, pst_regex_verdict *ret_verdict)
{
    PST_ASSERT(len < (1u << 30));
    pcre2_set_match_limit_8(x->limits, STEPS_LEAST + STEPS_PER_BYTE * (uint32_t)len);
    int rc = pcre2_match_8(x->code, (PCRE2_SPTR)text, len, 0, PCRE2_PARTIAL_SOFT, x->data, x->limits);
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_NOMEMORY)
        return PST_ELIMIT;
    *ret_verdict = rc > 0 ? PST_REGEX_YES : rc == PCRE2_ERROR_PARTIAL ? PST_REGEX_MORE : PST_REGEX_NO;
    return 0;
}

/* \K may set the start behind the end; the end is what counts. */
size_t pst_regex_end(const pst_regex *x)
{
    return pcre2_get_ovector_pointer_8(x->data)[1];
}

bool pst_regex_group(const pst_regex *x, const char *text, const char *group, const char **ret_at, size_t *ret_len)
{
    int n = pcre2_substring_number_from_name_8(x->code, (PCRE2_SPTR)group);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer_8(x->data);
    if (n <= 0 || at[2 * n] == PCRE2_UNSET)
        return false;
    *ret_at = text + at[2 * n];
    *ret_len = at[2 * n + 1] - at[2 * n];
    return true;
}
