/* users.c - the file of users, read whole and taken whole or not at all: a half-written file, or one with a slip in a line, must neither let somebody in
 * nor lock everybody out, so what was read before stays until a file can be read to its end. */
#include "producers/gateway/users.h"

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/password.h"
#include "producers/gateway/caller.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 4 << 20, SECRET_MAX = 4096 };

struct gw_users {
    char *path;
    pst_map table;     /* name → gw_user */
    struct stat seen;  /* of what was read to its end, whether it was taken or not */
    struct stat tried; /* of what could not be read, and */
    char *why;         /* what was said of it */
};

static void user_free(void *arg)
{
    gw_user *u = arg;
    free(u->name);
    if (u->secret)
        explicit_bzero(u->secret, strlen(u->secret));
    free(u->secret);
    pst_jwks_free(u->keys);
    free(u);
}

/* ---- one line ---- */

static int roles_of(const char *text, unsigned *ret_roles, pst_err *err)
{
    for (const char *p = text;;) {
        size_t n = strcspn(p, ",");
        unsigned role = gw_role_parse(p, n);
        if (!role)
            return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0,
                               "\"%.*s\" is no role; there is viewer, user, operator, with commas between", (int)(n < 40 ? n : 40), p);
        *ret_roles |= role;
        if (!p[n])
            return 0;
        p += n + 1;
    }
}

/* line is NUL-terminated and ours to cut. */
static int take_line(pst_map *table, char *line, pst_err *err)
{
    char *secret = strchr(line, ':'), *words = secret ? strchr(secret + 1, ':') : NULL;
    unsigned roles = 0;
    if (!words || strchr(words + 1, ':'))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0, "a line is name:hash:role[,role]");
    *secret++ = 0;
    *words++ = 0;
    if (!gw_name_is_valid(line, strlen(line)))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0,
                           "a name has 1 to %d letters, digits and . _ @ + -, and begins with a letter or digit", GW_NAME_MAX);
    if (pst_map_get(table, line))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0, "%s is there twice", line);
    int rc = strlen(secret) > SECRET_MAX ? pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0, "the hash is too long") : 0;
    pst_jwks *keys = NULL;
    if (!rc && *secret == '$')
        rc = pst_password_hash_check(secret, err);
    else if (!rc && strcmp(secret, "*") != 0 && pst_jwks_of_key(secret, &keys, NULL) < 0)
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0,
                         "behind the name stands no hash of crypt(3) (`penstock user hash` makes one) and no public key (RSA of 2048 bits "
                         "or more, or EC "
                         "P-256, in one line)");
    if (!rc)
        rc = roles_of(words, &roles, err);
    if (rc < 0) {
        pst_jwks_free(keys);
        return rc;
    }
    gw_user *u = pst_alloc(sizeof *u);
    *u = (gw_user){.name = pst_strdup(line), .secret = pst_strdup(secret), .roles = roles, .keys = keys};
    pst_map_put(table, line, u);
    return 0;
}

static int parse(const char *path, char *text, size_t len, pst_map *table, pst_err *err)
{
    int number = 0;
    if (memchr(text, 0, len))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0, "%s holds a NUL; it is text", path);
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : end;
        number++;
        while (end > line && strchr(" \t\r", end[-1]))
            end--;
        *end = 0;
        line += strspn(line, " \t");
        pst_err why = {0};
        if (*line && *line != '#' && take_line(table, line, &why) < 0)
            return pst_err_set(err, why.code, why.cls, "users", 0, "%s:%d: %s", path, number, why.text);
        line = next;
    }
    if (!table->n)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "users", 0,
                           "%s names no user: nobody could enter; a line is name:hash:role[,role]", path);
    return 0;
}

/* ---- the file ---- */

static bool others_may_write(const struct stat *st)
{
    return (st->st_mode & 022) || (st->st_uid != geteuid() && st->st_uid != 0);
}

/* Who may put another file in its place may write it, too; the sticky bit forbids that. */
static int check_folder(const char *path, pst_err *err)
{
    struct stat st;
    char *copy = pst_strdup(path);
    const char *dir = dirname(copy);
    int rc = 0;
    if (stat(dir, &st) < 0)
        rc = pst_err_sys(err, errno, "cannot look at %s", dir);
    else if (others_may_write(&st) && !(st.st_mode & S_ISVTX))
        rc = pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "users", 0, "others may put another file in the place of %s: chmod go-w %s", path,
                         dir);
    free(copy);
    return rc;
}

int gw_users_check_writers(const char *path, const struct stat *st, pst_err *err)
{
    if (!S_ISREG(st->st_mode))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "users", 0, "%s is no file", path);
    if (others_may_write(st))
        return pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "users", 0,
                           "others than its owner may write %s, and so make themselves operators: chmod 600 it, owned by the account that "
                           "runs the gateway "
                           "(or root)",
                           path);
    return check_folder(path, err);
}

static int read_all(const char *path, int fd, pst_buf *to, pst_err *err)
{
    char part[16384];
    ssize_t n;
    while ((n = read(fd, part, sizeof part)) > 0) {
        pst_buf_add(to, part, (size_t)n);
        if (to->len > FILE_MAX)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "users", 0, "%s is larger than 4 MiB", path);
    }
    pst_buf_addc(to, 0);
    return n < 0 ? pst_err_sys(err, errno, "cannot read %s", path) : 0;
}

static int load(const char *path, pst_map *table, struct stat *ret_seen, pst_err *err)
{
    pst_buf text = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pst_err_sys(err, errno, "cannot read the users file %s", path);
    int rc = fstat(fd, ret_seen) < 0 ? pst_err_sys(err, errno, "cannot look at %s", path) : gw_users_check_writers(path, ret_seen, err);
    if (!rc)
        rc = read_all(path, fd, &text, err);
    if (!rc)
        rc = parse(path, text.data, text.len - 1, table, err);
    if (!rc && (ret_seen->st_mode & S_IROTH))
        pst_log(PST_LOG_WARN, "gateway",
                "event=users_readable path=%s reason=\"everybody may read its hashes and guess passwords at leisure: chmod 600\"", path);
    close(fd);
    if (text.data)
        explicit_bzero(text.data, text.len);
    pst_buf_done(&text);
    return rc;
}

int gw_users_open(const char *path, gw_users **ret_users, pst_err *err)
{
    gw_users *u = pst_alloc(sizeof *u);
    u->path = pst_strdup(path);
    int rc = load(path, &u->table, &u->seen, err);
    if (rc < 0)
        gw_users_free(u);
    else
        *ret_users = u;
    return rc;
}

void gw_users_free(gw_users *u)
{
    if (!u)
        return;
    pst_map_done(&u->table, user_free);
    free(u->path);
    free(u->why);
    free(u);
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mode == b->st_mode &&
           a->st_uid == b->st_uid && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* A slip in the file stays until the file changes. Anything else (no descriptor free, a folder that others may write, a disk that fails) may pass with the
 * file as it is, so it is tried again, and said again only when it is another reason. */
static int refused(gw_users *u, const struct stat *now, int rc, const pst_err *err)
{
    bool said = u->why && !strcmp(u->why, err->text) && same(now, &u->tried);
    if (rc == PST_EPARSE || rc == PST_ELIMIT) {
        u->seen = *now;
        return rc;
    }
    free(u->why);
    u->why = pst_strdup(err->text);
    u->tried = *now;
    return said ? 0 : rc;
}

int gw_users_again(gw_users *u, pst_err *err)
{
    struct stat now = {0}, read = {0};
    pst_map table = {0};
    if (stat(u->path, &now) < 0)
        memset(&now, 0, sizeof now); /* gone: said once, and the users stay */
    if (same(&now, &u->seen))
        return 0;
    int rc = load(u->path, &table, &read, err);
    if (rc < 0) {
        pst_map_done(&table, user_free);
        return refused(u, &now, rc, err);
    }
    u->seen = read;
    free(u->why);
    u->why = NULL;
    pst_map_done(&u->table, user_free);
    u->table = table;
    return 1;
}

const gw_user *gw_users_find(const gw_users *u, const char *name)
{
    return u ? pst_map_get(&u->table, name) : NULL;
}

const char *gw_users_decoy(const gw_users *u)
{
    for (size_t i = 0; u && i < u->table.n; i++) {
        const gw_user *one = u->table.at[i].key ? u->table.at[i].value : NULL;
        if (one && *one->secret == '$')
            return one->secret;
    }
    return NULL;
}
