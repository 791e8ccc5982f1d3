/* fuzz_properties.c - a properties file: whatever it holds, each entry has a key, no text holds a line's end, and what is written again from
 * the entries gives the same entries. */
#include "common/base/properties.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct seen {
    pst_buf text;
    size_t n;
} seen;

static void take(void *arg, const char *key, const char *value, const char *origin)
{
    seen *s = arg;
    PST_ASSERT(*key && !strchr(key, '\n') && !strchr(value, '\n') && !strncmp(origin, "fuzz:", 5));
    PST_ASSERT(!strpbrk(key, "=:"));
    pst_buf_printf(&s->text, "%s=%s\n", key, value);
    s->n++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    seen once = {0}, twice = {0};
    pst_err err = {0};
    int rc = pst_properties_parse((const char *)data, size, "fuzz", take, &once, &err);
    PST_ASSERT(rc == 0 || (rc == PST_EINVAL && strstr(err.text, "fuzz:")));
    bool same = true; /* a value's last backslash and a key that begins as a comment were joined from lines */
    for (size_t i = 0; i < once.text.len; i++)
        same &= once.text.data[i] != '\\' && once.text.data[i] != '#' && once.text.data[i] != '!';
    if (same && once.n) {
        PST_ASSERT(pst_properties_parse(once.text.data, once.text.len, "fuzz", take, &twice, NULL) == 0);
        PST_ASSERT(twice.n == once.n && twice.text.len == once.text.len && !memcmp(twice.text.data, once.text.data, once.text.len));
    }
    pst_buf_done(&once.text);
    pst_buf_done(&twice.text);
    return 0;
}
