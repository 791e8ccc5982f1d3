/* manifest_secrets.c - scalars are replaced where they stand in the text (pst_yaml_replace), not by printing the parsed tree:
 * what a user sees of the manifest is what the user wrote. */
#include "schemas/manifest_secrets.h"

#include "common/base/buf.h"
#include "common/base/secret.h"
#include "common/base/yaml.h"

#include <stdlib.h>
#include <string.h>

typedef struct sealing {
    const pst_seal_key *key;
    const char *context;
    bool failed;
} sealing;

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Of a connection only what names the kind and the place may be seen; an address only without credentials in it. */
static bool connection_secret(const char *key, const char *value)
{
    static const char *const open_keys[] = {"type", "name", "region", "path", "server_path", "host", "port"};
    for (size_t i = 0; i < sizeof open_keys / sizeof *open_keys; i++)
        if (!strcmp(key, open_keys[i]))
            return false;
    return strcmp(key, "auth_url") != 0 || strpbrk(value, "@?") != NULL || pst_is_sealed(value);
}

/* path: "data_stores[0].connection.password", "penstock.roles.ps.env.KEY" */
static bool is_secret(const char *path, const char *key, const char *value)
{
    const char *connection = strstr(path, "].connection.");
    if (begins(path, "data_stores[") && connection)
        return connection_secret(connection + strlen("].connection."), value);
    if (begins(path, "penstock.env."))
        return true;
    const char *env = begins(path, "penstock.roles.") ? strchr(path + strlen("penstock.roles."), '.') : NULL;
    return (env && begins(env, ".env.")) || pst_secret_key(key);
}

/* Keys stand in the text letter for letter, unless written with backslashes. */
bool pst_manifest_may_have_secrets(const char *text)
{
    return strstr(text, "data_stores") || strstr(text, "env") || strchr(text, '\\') || pst_secret_key(text);
}

static char *seal_one(void *arg, const char *path, const char *key, const char *value, const char *source, size_t len)
{
    sealing *s = arg;
    if (!*value || !is_secret(path, key, value))
        return NULL;
    char *sealed = pst_seal(s->key, s->context, source, len), *quoted = pst_sprintf("\"%s\"", sealed);
    free(sealed);
    return quoted;
}

static char *unseal_one(void *arg, const char *path, const char *key, const char *value, const char *source, size_t len)
{
    sealing *s = arg;
    size_t n;
    if (!pst_is_sealed(value) || !is_secret(path, key, value))
        return NULL;
    char *plain = pst_unseal(s->key, s->context, value, &n);
    s->failed |= !plain;
    return plain;
}

char *pst_manifest_unseal(const char *text, const pst_seal_key *key, const char *context)
{
    sealing s = {.key = key, .context = context};
    size_t n;
    char *out = NULL;
    if (pst_is_sealed(text))
        return pst_unseal(key, context, text, &n);
    if (!strstr(text, PST_SEALED) || pst_yaml_replace(text, strlen(text), unseal_one, &s, &out, NULL) < 0)
        return pst_strdup(text);
    if (s.failed) {
        free(out);
        return NULL;
    }
    return out;
}

static bool opens_to(const char *sealed, const char *text, const pst_seal_key *key, const char *context)
{
    char *back = pst_manifest_unseal(sealed, key, context);
    bool same = back && !strcmp(back, text);
    free(back);
    return same;
}

/* A quoted scalar may not stand wherever another kind of scalar may: where the text would not open again, all of it is sealed. */
char *pst_manifest_seal(const char *text, const pst_seal_key *key, const char *context)
{
    sealing s = {.key = key, .context = context};
    char *out = NULL;
    if (pst_yaml_replace(text, strlen(text), seal_one, &s, &out, NULL) == 0 && opens_to(out, text, key, context))
        return out;
    free(out);
    return pst_seal(key, context, text, strlen(text));
}
