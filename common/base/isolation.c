/* isolation.c - the words of a manifest for the grades of isolation.h, in one list for reading and for printing. */
#include "common/base/isolation.h"

#include "common/base/err.h"

#include <string.h>

static const char *const words[] = {"default", "none", "user", "sandbox"};

int pst_isolation_parse(const char *word, pst_isolation *ret)
{
    for (int i = PST_ISOLATION_NONE; i <= PST_ISOLATION_SANDBOX; i++)
        if (!strcmp(word, words[i])) {
            *ret = (pst_isolation)i;
            return 0;
        }
    return PST_EPARSE;
}

const char *pst_isolation_name(pst_isolation i)
{
    return words[i];
}
