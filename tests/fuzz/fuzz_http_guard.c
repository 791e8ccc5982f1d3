/* fuzz_http_guard.c - the head of a request that a page chose: what the guard lets pass has a Host that is this computer's own by its letters. */
#include "common/loop/http_guard.h"

#include "common/base/buf.h"
#include "common/base/err.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"here.example", NULL};
    char *host = pst_strndup((const char *)data, size), *p = host;
    bool yes = http_guard_host(host, names, "192.0.2.7");
    if (yes) { /* said again in another way: strip the port, then a literal or a name of ours */
        size_t n = *p == '[' ? strcspn(p, "]") + 1 : strcspn(p, ":");
        PST_ASSERT(n <= strlen(p) && (!p[n] || p[n] == ':'));
        for (const char *port = p[n] ? p + n + 1 : ""; *port; port++)
            PST_ASSERT(isdigit((unsigned char)*port));
        p[n] = 0;
        bool four = !strncmp(p, "127.", 4) && strspn(p, "0123456789.") == strlen(p);
        PST_ASSERT(four || !strcasecmp(p, "localhost") || (*p == '[' && strspn(p, "[]:0.1") == strlen(p)) ||
                   !strcasecmp(p, "here.example") || !strcmp(p, "192.0.2.7"));
    }
    free(host);
    return 0;
}
