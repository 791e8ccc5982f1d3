/* seal.c - AES-256-GCM under the installation's key. Layout behind the word: base64 of nonce (12 bytes), ciphertext, tag (16 bytes). The nonce
 * is derived from key, context and secret (as in a synthetic-IV mode), so that states that did not change stay equal. */
#include "common/base/seal.h"

#include "common/base/buf.h"
#include "common/base/crypto_lib.h"
#include "common/base/fs.h"
#include "common/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONCE = 12, TAG = 16, SECRET_MAX = 1 << 20 };

static const char base64_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

/* Several services may start at once in a new folder: only one key comes to stand there. */
static int draw_key(const char *path, pst_err *err)
{
    pst_seal_key key;
    char *draft = pst_sprintf("%s.%d", path, (int)getpid());
    pst_random(key.bytes, sizeof key.bytes);
    int rc = pst_fs_write_atomic(draft, key.bytes, sizeof key.bytes, 0600, err);
    if (!rc && link(draft, path) < 0 && errno != EEXIST)
        rc = pst_err_sys(err, errno, "cannot make %s", path);
    unlink(draft);
    explicit_bzero(&key, sizeof key);
    free(draft);
    return rc;
}

void pst_seal_key_id(const pst_seal_key *key, char ret_id[PST_SEAL_ID_MAX])
{
    static const char what[] = "which key this is";
    uint8_t digest[32];
    pst_sha256 *h = pst_sha256_new();
    pst_sha256_add(h, what, sizeof what);
    pst_sha256_add(h, key->bytes, sizeof key->bytes);
    pst_sha256_end(h, digest);
    pst_hex(digest, (PST_SEAL_ID_MAX - 1) / 2, ret_id);
}

/* libcrypto is opened with the key: who has one can seal. */
int pst_seal_key_make(const char *state_dir, pst_seal_key *ret_key, pst_err *err)
{
    int missing = crypto_lib_open(err);
    if (missing < 0)
        return missing;
    char *path = pst_fs_join(state_dir, "seal.key");
    pst_seal_key key;
    struct stat st;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        rc = draw_key(path, err);
        fd = rc ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    }
    if (rc) {
        /* err says why */
    } else if (fd < 0) {
        rc = pst_err_sys(err, errno, "cannot read %s", path);
    } else if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 077) || st.st_size != sizeof key.bytes ||
               read(fd, key.bytes, sizeof key.bytes) != sizeof key.bytes) {
        rc = pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "seal", 0,
                         "%s is not a key that only its user can read (32 bytes, mode 0600); secrets of manifests in jobs.state need it",
                         path);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    if (rc == 0)
        *ret_key = key;
    return rc;
}

static void make_nonce(const pst_seal_key *key, const char *context, const char *secret, size_t len, uint8_t ret[NONCE])
{
    uint8_t digest[32];
    pst_sha256 *h = pst_sha256_new();
    pst_sha256_add(h, key->bytes, sizeof key->bytes);
    pst_sha256_add(h, context, strlen(context) + 1);
    pst_sha256_add(h, secret, len);
    pst_sha256_end(h, digest);
    memcpy(ret, digest, NONCE);
}

char *pst_seal(const pst_seal_key *key, const char *context, const char *secret, size_t len)
{
    PST_ASSERT(len <= SECRET_MAX && crypto_lib_open(NULL) == 0); /* it is open, unless a test made the key by hand */
    uint8_t *out = pst_alloc(NONCE + len + TAG);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n = 0, last = 0;
    make_nonce(key, context, secret, len, out);
    bool ok = c && EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, out) == 1 &&
              EVP_EncryptUpdate(c, NULL, &n, (const uint8_t *)context, (int)strlen(context)) == 1 &&
              EVP_EncryptUpdate(c, out + NONCE, &n, (const uint8_t *)secret, (int)len) == 1 &&
              EVP_EncryptFinal_ex(c, out + NONCE + n, &last) == 1 &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, out + NONCE + len) == 1;
    PST_ASSERT(ok && (size_t)(n + last) == len); /* the tag stands right behind the ciphertext */
    EVP_CIPHER_CTX_free(c);
    char *text = pst_base64(out, NONCE + len + TAG), *marked = pst_sprintf(PST_SEALED "%s", text);
    free(text);
    free(out);
    return marked;
}

char *pst_unseal(const pst_seal_key *key, const char *context, const char *sealed, size_t *ret_len)
{
    size_t size = 0;
    uint8_t *in = pst_is_sealed(sealed) ? pst_base64_decode(sealed + strlen(PST_SEALED), &size) : NULL;
    if (!in || size < NONCE + TAG || size > SECRET_MAX + NONCE + TAG) {
        free(in);
        return NULL;
    }
    PST_ASSERT(crypto_lib_open(NULL) == 0);
    size_t len = size - NONCE - TAG;
    char *out = pst_alloc(len + 1);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n = 0, last = 0;
    bool ok = c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, in) == 1 &&
              EVP_DecryptUpdate(c, NULL, &n, (const uint8_t *)context, (int)strlen(context)) == 1 &&
              EVP_DecryptUpdate(c, (uint8_t *)out, &n, in + NONCE, (int)len) == 1 &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, in + NONCE + len) == 1 &&
              EVP_DecryptFinal_ex(c, (uint8_t *)out + n, &last) == 1;
    EVP_CIPHER_CTX_free(c);
    free(in);
    if (!ok) {
        free(out);
        return NULL;
    }
    out[len] = 0;
    *ret_len = len;
    return out;
}

bool pst_is_sealed(const char *text)
{
    return text && !strncmp(text, PST_SEALED, strlen(PST_SEALED));
}

void pst_sealed_mask(char *text)
{
    char *to = text;
    for (const char *p = text; p && *p;) {
        size_t n = pst_is_sealed(p) ? strspn(p + strlen(PST_SEALED), base64_chars) : 0;
        if (n >= NONCE + TAG) {
            memcpy(to, "***", 3);
            to += 3;
            p += strlen(PST_SEALED) + n;
        } else
            *to++ = *p++;
    }
    if (to)
        *to = 0;
}
