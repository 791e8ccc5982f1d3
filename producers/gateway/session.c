/* session.c - "UNTIL.CODE.NAME". The name comes last because it may hold dots. The code covers lengths by separators that neither a number nor a name can
 * hold, so no two triples have the same text. */
#include "producers/gateway/session.h"

#include "common/base/buf.h"
#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, CODE_HEX = 64 };

static void mac(const gw_session_key *key, const char *text, size_t len, char ret_hex[CODE_HEX + 1])
{
    uint8_t pad[BLOCK], inner[32], outer[32];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < BLOCK; i++)
            pad[i] = (uint8_t)((i < sizeof key->bytes ? key->bytes[i] : 0) ^ (round ? 0x5c : 0x36));
        pst_sha256 *h = pst_sha256_new();
        pst_sha256_add(h, pad, BLOCK);
        if (round)
            pst_sha256_add(h, inner, sizeof inner);
        else
            pst_sha256_add(h, text, len);
        pst_sha256_end(h, round ? outer : inner);
    }
    pst_hex(outer, sizeof outer, ret_hex);
}

void gw_session_key_make(const char *secret, gw_session_key *ret_key)
{
    char *text = pst_sprintf("penstock: sessions of users: %s", secret);
    pst_sha256_sum(text, strlen(text), ret_key->bytes);
    explicit_bzero(text, strlen(text));
    free(text);
}

static void code_of(const gw_session_key *key, int64_t until_s, const char *name, const char *bound, char ret_hex[CODE_HEX + 1])
{
    char *text = pst_sprintf("session\n%lld\n%s\n%s", (long long)until_s, name, bound);
    mac(key, text, strlen(text), ret_hex);
    free(text);
}

char *gw_session_make(const gw_session_key *key, const char *name, const char *bound, int64_t until_s)
{
    char code[CODE_HEX + 1];
    code_of(key, until_s, name, bound, code);
    return pst_sprintf("%lld.%s.%s", (long long)until_s, code, name);
}

/* The parts of a value; false: it is none. */
static bool parts(const char *value, int64_t *ret_until_s, char ret_code[CODE_HEX + 1], const char **ret_name)
{
    size_t digits = value ? strspn(value, "0123456789") : 0;
    if (!digits || digits > 18 || value[digits] != '.')
        return false;
    const char *code = value + digits + 1;
    if (strspn(code, "0123456789abcdef") != CODE_HEX || code[CODE_HEX] != '.' || !code[CODE_HEX + 1])
        return false;
    *ret_until_s = strtoll(value, NULL, 10);
    memcpy(ret_code, code, CODE_HEX);
    ret_code[CODE_HEX] = 0;
    *ret_name = code + CODE_HEX + 1;
    return true;
}

char *gw_session_name(const char *value)
{
    int64_t until_s;
    char code[CODE_HEX + 1];
    const char *name;
    return parts(value, &until_s, code, &name) ? pst_strdup(name) : NULL;
}

int64_t gw_session_until(const char *value)
{
    int64_t until_s;
    char code[CODE_HEX + 1];
    const char *name;
    return parts(value, &until_s, code, &name) ? until_s : 0;
}

bool gw_session_is(const gw_session_key *key, const char *value, const char *bound, int64_t now_s)
{
    int64_t until_s;
    char code[CODE_HEX + 1], right[CODE_HEX + 1];
    const char *name;
    if (!parts(value, &until_s, code, &name) || until_s <= now_s)
        return false;
    code_of(key, until_s, name, bound, right);
    return pst_secret_equal(code, right);
}

char *gw_session_place(const gw_session_key *key, const char *name)
{
    char code[CODE_HEX + 1], *text = pst_sprintf("place\n%s", name);
    mac(key, text, strlen(text), code);
    free(text);
    return pst_strndup(code, 32);
}
