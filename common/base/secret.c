/* secret.c - secrets hidden from what others can read. Texts of argv are overwritten in place: the kernel shows a process's own memory in /proc/<pid>/cmdline. */
#include "common/base/secret.h"

#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_BYTES = 32, TOKEN_MIN = 16, TOKEN_MAX = 512 };

/* What stands before the host: [*ret_from, *ret_to) with its "@"; false when the address at p names no user. */
static bool credentials(const char *p, const char **ret_from, const char **ret_to)
{
    size_t authority = strcspn(p, "/?#, ");
    const char *at = memrchr(p, '@', authority);
    *ret_from = p;
    *ret_to = at ? at + 1 : p;
    return at != NULL;
}

char *pst_url_public(const char *url)
{
    pst_buf b = {0};
    const char *p = url ? url : "";
    for (const char *mark; (mark = strstr(p, "://"));) {
        const char *from, *to;
        pst_buf_add(&b, p, (size_t)(mark + 3 - p));
        credentials(mark + 3, &from, &to);
        p = to;
    }
    pst_buf_adds(&b, p);
    if (b.len)
        return pst_buf_steal(&b);
    pst_buf_done(&b); /* nothing was added, but there may be room */
    return pst_strdup("");
}

bool pst_secret_key(const char *key)
{
    static const char *const words[] = {"password",    "passphrase",         "secret",   "token", "key.pem", "jaas",
                                        "private.key", "oauthbearer.config", "user.info"};
    for (size_t i = 0; key && i < sizeof words / sizeof *words; i++)
        if (strcasestr(key, words[i]))
            return true;
    return false;
}

static void hide(const char *from, size_t n)
{
    volatile char *p =
        (volatile char *)(uintptr_t)from; /* argv's texts are ours to write (C17 5.1.2.2.1); volatile: nobody reads them again */
    while (n--)
        *p++ = '*';
}

void pst_secret_hide(const char *text)
{
    if (text)
        hide(text, strlen(text));
}

void pst_secret_hide_url(const char *url)
{
    for (const char *mark = url; mark && (mark = strstr(mark, "://"));) {
        const char *from, *to;
        mark += 3;
        if (credentials(mark, &from, &to))
            hide(from, (size_t)(to - from - 1));
    }
}

void pst_secret_hide_property(const char *key_value)
{
    size_t n = strcspn(key_value, "=");
    char *key = pst_strndup(key_value, n);
    if (key_value[n] && pst_secret_key(key))
        pst_secret_hide(key_value + n + 1);
    else if (key_value[n])
        pst_secret_hide_url(key_value + n + 1);
    free(key);
}

/* ---- the token ---- */

char *pst_token_path(const char *state_dir)
{
    return pst_fs_join(state_dir, "token");
}

/* What needs no escape in an address, a header or a cookie. */
static bool fit(const char *token)
{
    size_t n = strlen(token);
    return n >= TOKEN_MIN && n <= TOKEN_MAX && !token[strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")];
}

int pst_token_read(const char *path, char **ret_token, pst_err *err)
{
    char text[TOKEN_MAX + 4] = "";
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "token", 0, "there is no %s; `penstock up` makes it", path);
    if (fd < 0)
        return pst_err_sys(err, errno, "cannot read %s", path);
    int rc = 0;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 077) || (st.st_uid != geteuid() && st.st_uid != 0))
        rc = pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "token", 0,
                         "%s may be read or written by others; remove it, and the next `penstock up` makes another", path);
    ssize_t n = rc ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    if (rc)
        return rc;
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\r\n")] = 0;
    if (!fit(text))
        return pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "token", 0,
                           "%s holds no token (%d to %d letters, digits, - _ . ~); remove it, and the next `penstock up` makes another",
                           path, TOKEN_MIN, TOKEN_MAX);
    *ret_token = pst_strdup(text);
    return 0;
}

static char *draw(void)
{
    uint8_t random[TOKEN_BYTES];
    pst_random(random, sizeof random);
    char *text = pst_base64(random, sizeof random);
    for (char *p = text; *p; p++)
        if (*p == '+')
            *p = '-';
        else if (*p == '/')
            *p = '_';
    text[strcspn(text, "=")] = 0;
    return text;
}

int pst_token_make(const char *state_dir, const char *wanted, char **ret_token, pst_err *err)
{
    if (wanted && !fit(wanted))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "token", 0, "PENSTOCK_TOKEN: a token has %d to %d letters, digits, - _ . ~",
                           TOKEN_MIN, TOKEN_MAX);
    char *path = pst_token_path(state_dir), *there = NULL;
    int rc = pst_token_read(path, &there, NULL);
    if (rc == 0 && (!wanted || pst_secret_equal(wanted, there))) {
        *ret_token = there;
        there = NULL;
    } else { /* none, another one, or one that others may know */
        char *token = wanted ? pst_strdup(wanted) : draw();
        char *line = pst_sprintf("%s\n", token);
        rc = pst_fs_write_atomic(path, line, strlen(line), 0600, err);
        free(line);
        if (rc == 0)
            *ret_token = token;
        else
            free(token);
    }
    free(there);
    free(path);
    return rc;
}
