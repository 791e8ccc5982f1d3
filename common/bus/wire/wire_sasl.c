/* wire_sasl.c - the four mechanisms, each a small machine of tokens. SCRAM proves both sides: the broker's signature is checked, so somebody who only stands at its address is
 * told nothing that helps him; his iteration count is bounded both ways, for one that is too low gives the password away, and a huge one is
 * a way to keep us busy. Names and passwords go as they are written (UTF-8), as librdkafka and Java send them.
 *
 * OAUTHBEARER reads its token anew at each login: whoever renews the file needs to tell nobody. */
#include "common/bus/wire/wire_sasl.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/bus/wire/wire_ssl_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS_MIN = 4096, ITERATIONS_MAX = 1000000, DIGEST_MAX = 64, TOKEN_MAX = 65536, NONCE = 24 };

struct wire_sasl {
    const wire_conf *conf;
    int step;
    /* SCRAM */
    char nonce[48];
    pst_buf first; /* our first message without its header, then what is signed */
    uint8_t server[DIGEST_MAX];
    size_t server_len;
};

const char *wire_sasl_name(const wire_conf *conf)
{
    static const char *const names[] = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"};
    return names[conf->mechanism];
}

int wire_sasl_open(const wire_conf *conf, pst_err *err)
{
    return conf->mechanism == WIRE_SCRAM_256 || conf->mechanism == WIRE_SCRAM_512 ? wire_ssl_lib_open(err) : 0;
}

wire_sasl *wire_sasl_new(const wire_conf *conf)
{
    wire_sasl *s = pst_alloc(sizeof *s);
    s->conf = conf;
    return s;
}

void wire_sasl_free(wire_sasl *s)
{
    if (!s)
        return;
    if (s->first.data)
        explicit_bzero(s->first.data, s->first.len);
    pst_buf_done(&s->first);
    explicit_bzero(s, sizeof *s);
    free(s);
}

static int refuse(pst_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(pst_err *err, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "sasl", 0, "%s", text);
}

/* ---- PLAIN ----------------------------------------------------------------------------------------------------------------------------- */

static int plain(wire_sasl *s, pst_buf *out)
{
    if (s->step++)
        return 0;
    pst_buf_addc(out, 0);
    pst_buf_adds(out, s->conf->username);
    pst_buf_addc(out, 0);
    pst_buf_adds(out, s->conf->password);
    return 1;
}

/* ---- SCRAM ----------------------------------------------------------------------------------------------------------------------------- */

static const EVP_MD *digest_of(const wire_sasl *s)
{
    return s->conf->mechanism == WIRE_SCRAM_256 ? EVP_sha256() : EVP_sha512();
}

static void hmac(const wire_sasl *s, const uint8_t *key, size_t n, const char *text, size_t len, uint8_t ret[DIGEST_MAX])
{
    unsigned size = 0;
    PST_ASSERT(HMAC(digest_of(s), key, (int)n, (const unsigned char *)text, len, ret, &size) && size == n);
}

static void scram_first(wire_sasl *s, pst_buf *out)
{
    uint8_t random[NONCE];
    pst_random(random, sizeof random);
    char *text = pst_base64(random, sizeof random);
    snprintf(s->nonce, sizeof s->nonce, "%s", text);
    free(text);
    pst_buf_adds(&s->first, "n=");
    for (const char *p = s->conf->username; *p; p++) {
        if (*p == ',' || *p == '=')
            pst_buf_adds(&s->first, *p == ',' ? "=2C" : "=3D");
        else
            pst_buf_addc(&s->first, *p);
    }
    pst_buf_printf(&s->first, ",r=%s", s->nonce);
    pst_buf_printf(out, "n,,%s", s->first.data);
}

/* The value of attribute `name` of "a=…,b=…"; NULL = not there, or too long. */
static char *attribute(const char *text, size_t len, char name)
{
    const char *end = text + len;
    for (const char *p = text; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;
        if (stop - p >= 2 && p[0] == name && p[1] == '=')
            return pst_strndup(p + 2, (size_t)(stop - p - 2));
        p = stop + 1;
    }
    return NULL;
}

/* RFC 5802, 3: proof of ours into out, and the signature that the broker has to show. */
static void prove(wire_sasl *s, const void *salt, size_t salt_len, int iterations, const char *final, pst_buf *out)
{
    size_t n = (size_t)EVP_MD_get_size(digest_of(s));
    uint8_t salted[DIGEST_MAX], key[DIGEST_MAX], stored[DIGEST_MAX], signature[DIGEST_MAX];
    PST_ASSERT(PKCS5_PBKDF2_HMAC(s->conf->password, (int)strlen(s->conf->password), salt, (int)salt_len, iterations, digest_of(s), (int)n,
                                 salted) == 1);
    hmac(s, salted, n, "Client Key", 10, key);
    PST_ASSERT(EVP_Digest(key, n, stored, NULL, digest_of(s), NULL) == 1);
    hmac(s, stored, n, s->first.data, s->first.len, signature);
    for (size_t i = 0; i < n; i++)
        key[i] ^= signature[i];
    char *proof = pst_base64(key, n);
    pst_buf_printf(out, "%s,p=%s", final, proof);
    explicit_bzero(proof, strlen(proof));
    free(proof);
    hmac(s, salted, n, "Server Key", 10, key);
    hmac(s, key, n, s->first.data, s->first.len, s->server);
    s->server_len = n;
    explicit_bzero(salted, sizeof salted);
    explicit_bzero(key, sizeof key);
    explicit_bzero(stored, sizeof stored);
}

static int scram_final(wire_sasl *s, const char *theirs, size_t len, pst_buf *out, pst_err *err)
{
    char *r = attribute(theirs, len, 'r'), *salt = attribute(theirs, len, 's'), *i = attribute(theirs, len, 'i'),
         *e = attribute(theirs, len, 'e');
    char *m = attribute(theirs, len, 'm'); /* an extension that must be known */
    size_t salt_len = 0, own = strlen(s->nonce);
    void *raw = salt ? pst_base64_decode(salt, &salt_len) : NULL;
    char *end = NULL;
    long iterations = i ? strtol(i, &end, 10) : 0;
    int rc = 1;
    if (e)
        rc = refuse(err, "the broker refuses the login: %.100s", e);
    else if (!r || !raw || !salt_len || !i || *end || end == i || m)
        rc = refuse(err, "the broker's answer is none of SCRAM");
    else if (strncmp(r, s->nonce, own) != 0 || strlen(r) <= own)
        rc = refuse(err, "the broker's nonce does not begin with ours: it answers somebody else");
    else if (iterations < ITERATIONS_MIN || iterations > ITERATIONS_MAX)
        rc = refuse(err, "the broker asks for %ld iterations, from %d to %d are allowed", iterations, ITERATIONS_MIN, ITERATIONS_MAX);
    if (rc == 1) {
        char *final = pst_sprintf("c=biws,r=%s", r);
        pst_buf_addc(&s->first, ',');
        pst_buf_add(&s->first, theirs, len);
        pst_buf_printf(&s->first, ",%s", final);
        prove(s, raw, salt_len, (int)iterations, final, out);
        free(final);
    }
    free(r);
    free(m);
    free(salt);
    free(i);
    free(e);
    free(raw);
    return rc;
}

static int scram_verify(const wire_sasl *s, const char *theirs, size_t len, pst_err *err)
{
    char *v = attribute(theirs, len, 'v'), *e = attribute(theirs, len, 'e');
    size_t n = 0;
    void *raw = v ? pst_base64_decode(v, &n) : NULL;
    int rc = 0;
    if (e)
        rc = refuse(err, "the broker refuses the login: %.100s", e);
    else if (!raw || n != s->server_len || CRYPTO_memcmp(raw, s->server, n) != 0)
        rc = refuse(err, "the broker does not know the password itself: it is not the one it says");
    free(v);
    free(e);
    free(raw);
    return rc;
}

static int scram(wire_sasl *s, const char *theirs, size_t len, pst_buf *out, pst_err *err)
{
    switch (s->step++) {
    case 0: scram_first(s, out); return 1;
    case 1: return scram_final(s, theirs, len, out, err);
    case 2: return scram_verify(s, theirs, len, err);
    default: return refuse(err, "the broker goes on after the login is over");
    }
}

/* ---- OAUTHBEARER ------------------------------------------------------------------------------------------------------------------------- */

static void add_base64url(pst_buf *out, const char *text)
{
    char *b = pst_base64(text, strlen(text));
    for (const char *p = b; *p && *p != '='; p++)
        pst_buf_addc(out, *p == '+' ? '-' : *p == '/' ? '_' : *p);
    free(b);
}

static bool is_plain_word(const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == '"' || *s == '\\')
            return false;
    }
    return true;
}

typedef struct unsecured {
    const char *principal, *scope, *principal_claim, *scope_claim;
    long life_s;
} unsecured;

static int add_scope(pst_buf *claims, const unsecured *u)
{
    char *list = pst_strdup(u->scope), *save = NULL, between = '[';
    pst_buf_printf(claims, ",\"%s\":", u->scope_claim);
    for (char *one = strtok_r(list, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        pst_buf_printf(claims, "%c\"%s\"", between, one);
        between = ',';
    }
    pst_buf_adds(claims, between == '[' ? "[]" : "]");
    free(list);
    return 0;
}

/* RFC 7515, "alg":"none": as librdkafka's, for brokers of tests (KIP-255). extension_k=v of the same list goes to `extensions`. */
static int make_token(const wire_conf *c, pst_buf *token, pst_buf *extensions, pst_err *err)
{
    char *list = pst_strdup(c->oauth_config ? c->oauth_config : ""), *save = NULL;
    unsecured u = {.scope_claim = "scope", .principal_claim = "sub", .life_s = 3600};
    int rc = 0;
    for (char *one = strtok_r(list, " ", &save); one && !rc; one = strtok_r(NULL, " ", &save)) {
        char *value = strchr(one, '=');
        if (!value || !is_plain_word(one)) {
            rc = refuse(err, "sasl.oauthbearer.config: \"%.60s\" is not name=value", one);
            break;
        }
        *value++ = 0;
        if (!strcmp(one, "principal"))
            u.principal = value;
        else if (!strcmp(one, "scope"))
            u.scope = value;
        else if (!strcmp(one, "principalClaimName"))
            u.principal_claim = value;
        else if (!strcmp(one, "scopeClaimName"))
            u.scope_claim = value;
        else if (!strcmp(one, "lifeSeconds"))
            u.life_s = atol(value);
        else if (!strncmp(one, "extension_", 10))
            pst_buf_printf(extensions, "%s=%s\x01", one + 10, value);
        else
            rc = refuse(err,
                        "sasl.oauthbearer.config has no \"%.60s\": principal, scope, principalClaimName, scopeClaimName, lifeSeconds, "
                        "extension_NAME",
                        one);
    }
    if (!rc && (!u.principal || !*u.principal || u.life_s < 1))
        rc = refuse(err, "sasl.oauthbearer.config: principal=NAME is needed, and lifeSeconds above 0");
    if (!rc) {
        pst_buf claims = {0};
        int64_t now = pst_now_us();
        pst_buf_printf(&claims, "{\"%s\":\"%s\",\"iat\":%lld.%03d,\"exp\":%lld.%03d", u.principal_claim, u.principal,
                       (long long)(now / 1000000), (int)(now / 1000 % 1000), (long long)(now / 1000000 + u.life_s),
                       (int)(now / 1000 % 1000));
        if (u.scope)
            add_scope(&claims, &u);
        pst_buf_addc(&claims, '}');
        add_base64url(token, "{\"alg\":\"none\"}");
        pst_buf_addc(token, '.');
        add_base64url(token, claims.data);
        pst_buf_addc(token, '.');
        pst_buf_done(&claims);
    }
    free(list);
    return rc;
}

static int read_token(const wire_conf *c, pst_buf *token, pst_err *err)
{
    const char *path = c->oauth_url + strlen("file://");
    pst_err why = {0};
    if (pst_fs_read(path, TOKEN_MAX, token, &why) < 0)
        return refuse(err, "the token of sasl.oauthbearer.token.endpoint.url: %.200s", why.text);
    while (token->len && strchr(" \t\r\n", token->data[token->len - 1]))
        token->data[--token->len] = 0;
    if (!token->len)
        return refuse(err, "the token of sasl.oauthbearer.token.endpoint.url: %.150s is empty", path);
    for (size_t i = 0; i < token->len; i++) { /* RFC 6750, 2.1 */
        char ch = token->data[i];
        bool fine = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || (ch && strchr("-._~+/=", ch));
        if (!fine)
            return refuse(err, "%.150s is no token: it has other characters than a bearer token may have", path);
    }
    return 0;
}

/* "k=v,k=v" (KIP-342) */
static void add_extensions(const char *list, pst_buf *to)
{
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        pst_buf_add(to, p, n);
        pst_buf_addc(to, 1);
        p += n;
        p += *p == ',';
    }
}

static int oauth(wire_sasl *s, const char *theirs, size_t len, pst_buf *out, pst_err *err)
{
    pst_buf token = {0}, extensions = {0};
    switch (s->step++) {
    case 0: break;
    case 1:
        if (!len)
            return 0;
        pst_buf_addc(out, 1); /* it says why in JSON; after this the refusal comes with a code */
        return 1;
    default: return refuse(err, "the broker refuses the token");
    }
    int rc = s->conf->oauth_method == 1 ? read_token(s->conf, &token, err) : make_token(s->conf, &token, &extensions, err);
    if (!rc) {
        add_extensions(s->conf->oauth_extensions, &extensions);
        pst_buf_printf(out,
                       "n,,\x01"
                       "auth=Bearer %s\x01",
                       token.data);
        pst_buf_add(out, extensions.data ? extensions.data : "", extensions.len);
        pst_buf_addc(out, 1);
        rc = 1;
    }
    if (token.data)
        explicit_bzero(token.data, token.len);
    pst_buf_done(&token);
    pst_buf_done(&extensions);
    return rc;
}

int wire_sasl_step(wire_sasl *s, const void *token, size_t len, pst_buf *out, pst_err *err)
{
    switch (s->conf->mechanism) {
    case WIRE_PLAIN: return plain(s, out);
    case WIRE_OAUTHBEARER: return oauth(s, token, len, out, err);
    default: return scram(s, token, len, out, err);
    }
}
