/* fuzz_registry.c - the registry's core: each line is a record of the topic (key TAB value) or, without TAB, the body of a request. Whatever the
 * topic holds, what the core writes itself must be understood by it, and a spelling of a spelling is the same spelling. */
#include "deploy/registry/registry_canon.h"
#include "deploy/registry/registry_core.h"

#include <stdlib.h>
#include <string.h>

static void ask(rcore *core, rcore_request q)
{
    rcore_reply r;
    q.limit = -1;
    rcore_handle(core, &q, &r);
    for (size_t i = 0; i < r.n_writes; i++) {
        pst_err err = {0};
        const rcore_write *w = &r.writes[i];
        int rc = rcore_apply(core, w->key, strlen(w->key), w->value, w->value ? strlen(w->value) : 0, &err);
        PST_ASSERT(rc == PST_OK);
    }
    rcore_reply_done(&r);
}

static void body(rcore *core, const char *text, size_t len)
{
    static const rcore_op ops[] = {PST_ROP_REGISTER,   PST_ROP_LOOKUP,   PST_ROP_COMPATIBLE,
                                   PST_ROP_CONFIG_PUT, PST_ROP_MODE_PUT, PST_ROP_REGISTER};
    char *canon = registry_canon(text, len);
    if (canon) {
        char *again = registry_canon(canon, strlen(canon));
        PST_ASSERT(again && !strcmp(canon, again));
        free(again);
    }
    free(canon);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        ask(core, (rcore_request){.op = ops[i], .subject = "s", .body = text, .body_len = len, .verbose = true, .force = len & 1});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rcore *core = rcore_new();
    const char *p = (const char *)data, *end = p + size;
    for (int lines = 0; p < end && lines < 40; lines++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        const char *tab = memchr(p, '\t', len);
        pst_err err = {0};
        if (tab)
            rcore_apply(core, p, (size_t)(tab - p), tab + 1 < p + len ? tab + 1 : NULL, len - (size_t)(tab - p) - 1, &err);
        else
            body(core, p, len);
        p += len + 1;
    }
    static const rcore_op reads[] = {PST_ROP_SUBJECTS, PST_ROP_SCHEMAS,  PST_ROP_VERSIONS, PST_ROP_VERSION,     PST_ROP_CONFIG_GET,
                                     PST_ROP_MODE_GET, PST_ROP_CONTEXTS, PST_ROP_ID,       PST_ROP_ID_VERSIONS, PST_ROP_DELETE_SUBJECT};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        ask(core, (rcore_request){.op = reads[i], .subject = "s", .version = "latest", .id = "1", .deleted = true});
    ask(core, (rcore_request){.op = PST_ROP_DELETE_SUBJECT, .subject = "s", .permanent = true});
    rcore_free(core);
    return 0;
}
