/* bearer.c - a token is weighed by the provider's keys, or by its subject's own, never by both: a name that has a key or a password in the users file is
 * that line's, so that a provider who calls somebody `olga` does not make him our operator. Roles: of the name's line; else those of ours that the token's claim
 * `roles`, `role` or `groups` holds; else what the operator of the gateway has said. But a token that speaks of roles (`roles`, `role`) and names none of ours is
 * refused: a guest elsewhere is no user here. */
#include "producers/gateway/bearer.h"

#include "common/base/fs.h"
#include "producers/gateway/key_url.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20 };

struct gw_bearer {
    char *path, *issuer, *audience;
    gw_key_url *url; /* in place of a file */
    bool adopted;    /* keys came from there, and gw_bearer_again has not said so yet */
    unsigned roles;
    pst_jwks *keys;
    struct stat seen;  /* of what was read to its end, whether it was taken or not */
    struct stat tried; /* of what could not be read, and */
    char *why;         /* what was said of it */
};

static int load(const char *path, struct stat *ret_seen, pst_jwks **ret_keys, pst_err *err)
{
    pst_buf text = {0};
    if (stat(path, ret_seen) < 0) {
        memset(ret_seen, 0, sizeof *ret_seen); /* gone: said once, and the keys stay */
        return pst_err_sys(err, errno, "cannot read the keys %s", path);
    }
    int rc = gw_users_check_writers(path, ret_seen, err);
    if (!rc)
        rc = pst_fs_read(path, FILE_MAX, &text, err);
    if (!rc)
        rc = pst_jwks_parse(text.data ? text.data : "", text.len, ret_keys, err);
    pst_buf_done(&text);
    return rc;
}

int gw_bearer_new(const gw_bearer_conf *conf, gw_bearer **ret_bearer, pst_err *err)
{
    gw_bearer *b = pst_alloc(sizeof *b);
    b->path = conf->path ? pst_strdup(conf->path) : NULL;
    b->issuer = conf->issuer ? pst_strdup(conf->issuer) : NULL;
    b->audience = conf->audience ? pst_strdup(conf->audience) : NULL;
    b->roles = conf->roles;
    int rc = 0;
    if (gw_key_url_is(b->path))
        rc = gw_key_url_open(&(gw_key_url_conf){.url = b->path, .ca_file = conf->ca_file}, &b->url, err);
    else if (b->path)
        rc = load(b->path, &b->seen, &b->keys, err);
    if (rc < 0)
        gw_bearer_free(b);
    else
        *ret_bearer = b;
    return rc;
}

void gw_bearer_free(gw_bearer *b)
{
    if (!b)
        return;
    gw_key_url_close(b->url);
    pst_jwks_free(b->keys);
    free(b->why);
    free(b->path);
    free(b->issuer);
    free(b->audience);
    free(b);
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_mode == b->st_mode;
}

/* As with users: only a slip in the file lasts until the file changes; anything else is tried again, and said again when it is another reason. */
static int refused(gw_bearer *b, const struct stat *now, int rc, const pst_err *err)
{
    bool said = b->why && !strcmp(b->why, err->text) && same(now, &b->tried);
    if (rc == PST_EPARSE || rc == PST_ELIMIT) {
        b->seen = *now;
        return rc;
    }
    free(b->why);
    b->why = pst_strdup(err->text);
    b->tried = *now;
    return said ? 0 : rc;
}

/* What the address has given meanwhile. */
static void adopt(gw_bearer *b)
{
    pst_jwks *fresh = b->url ? gw_key_url_take(b->url) : NULL;
    if (!fresh)
        return;
    pst_jwks_free(b->keys);
    b->keys = fresh;
    b->adopted = true;
}

int gw_bearer_again(gw_bearer *b, pst_err *err)
{
    struct stat now = {0}, read = {0};
    pst_jwks *keys = NULL;
    if (b->url) {
        adopt(b);
        bool adopted = b->adopted;
        b->adopted = false;
        return adopted;
    }
    if (!b->path)
        return 0;
    if (stat(b->path, &now) < 0)
        memset(&now, 0, sizeof now);
    if (same(&now, &b->seen))
        return 0;
    int rc = load(b->path, &read, &keys, err);
    if (rc < 0)
        return refused(b, &now, rc, err);
    b->seen = read;
    free(b->why);
    b->why = NULL;
    pst_jwks_free(b->keys);
    b->keys = keys;
    return 1;
}

static unsigned roles_of_text(const char *text)
{
    unsigned roles = 0;
    for (const char *p = text; *p;) {
        p += strspn(p, " ,");
        size_t n = strcspn(p, " ,");
        roles |= gw_role_parse(p, n);
        p += n;
    }
    return roles;
}

/* 0: none is named; ret_speaks: and yet roles are spoken of. */
static unsigned roles_of_claims(const json_t *claims, bool *ret_speaks)
{
    static const char *const names[] = {"roles", "role", "groups"};
    unsigned roles = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names && !roles; k++) {
        const json_t *v = json_object_get(claims, names[k]);
        size_t i;
        json_t *one;
        *ret_speaks |= v && strcmp(names[k], "groups") != 0;
        if (json_is_string(v))
            roles |= roles_of_text(json_string_value(v));
        json_array_foreach(v, i, one) if (json_is_string(one)) roles |=
            gw_role_parse(json_string_value(one), strlen(json_string_value(one)));
    }
    return roles;
}

static int refuse(pst_err *err, const char *why)
{
    return pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "users", 0, "%s", why);
}

int gw_bearer_weigh(gw_bearer *b, const gw_users *users, const char *token, int64_t now_s, gw_caller *ret_caller, pst_err *err)
{
    json_t *claims = NULL;
    char *name = pst_jwt_subject(token);
    if (!name || !gw_name_is_valid(name, strlen(name))) {
        free(name);
        return refuse(err, "that is no signed token (JWT) with a subject (sub) of letters, digits and . _ @ + -");
    }
    const gw_user *u = gw_users_find(users, name);
    pst_jwt_rules rules = {.now_s = now_s};
    int rc;
    if (u && u->keys)
        rc = pst_jwt_check(u->keys, token, &rules, &claims, err);
    else {
        rules.issuer = b->issuer;
        rules.audience = b->audience;
        adopt(b);
        rc = pst_jwt_check(b->keys, token, &rules, &claims, err);
        if (rc == PST_ENOTFOUND && b->url)
            gw_key_url_ask(b->url);
        if (!rc && u && strcmp(u->secret, "*") != 0) /* after the signature: who has none shall not learn who has a password */
            rc = refuse(err, "the subject of this token has a password here, and comes in by that alone");
    }
    if (!rc) {
        bool speaks = false;
        unsigned claimed = roles_of_claims(claims, &speaks);
        const json_t *exp = json_object_get(claims, "exp");
        *ret_caller = (gw_caller){.roles = u                   ? u->roles
                                           : claimed || speaks ? claimed
                                                               : b->roles,
                                  .via = "token",
                                  .until_s = json_number_value(exp) < 1e15 ? (int64_t)json_number_value(exp) + PST_JWT_SKEW_S : 0};
        memcpy(ret_caller->name, name, strlen(name) + 1);
        if (!ret_caller->roles)
            rc = refuse(
                err,
                "the token names no role of ours (claim roles: viewer, user or operator), and its subject is in no line of the users file");
    }
    json_decref(claims);
    free(name);
    return rc < 0 ? PST_EAUTH : 0;
}
