/* fuzz_multipart.c - a body that a client chose: parts lie inside it, one behind the other, and no two share a name. First line: the Content-Type. */
#include "common/loop/multipart.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *lf = memchr(data, '\n', size);
    size_t n = 0, head = lf ? (size_t)(lf - data) : size, len = lf ? size - head - 1 : 0;
    char *type = pst_strndup((const char *)data, head), *body = pst_strndup(lf ? (const char *)lf + 1 : "", 0);
    pst_part parts[4];
    pst_err err = {0};
    body = pst_realloc(body, len + 1); /* of its exact size, so that a sanitizer sees each byte beyond */
    memcpy(body, lf ? lf + 1 : data, len);
    if (pst_multipart_parse(type, (pst_slice){body, len}, parts, 4, &n, &err) == 0) {
        const char *from = body;
        for (size_t i = 0; i < n; i++) {
            const char *at = parts[i].data.data;
            PST_ASSERT(at > from && at + parts[i].data.len <= body + len && *parts[i].name);
            PST_ASSERT(pst_part_find(parts, n, parts[i].name) == &parts[i]);
            from = at + parts[i].data.len;
        }
    } else {
        PST_ASSERT(err.code && *err.text);
    }
    free(type);
    free(body);
    return 0;
}
