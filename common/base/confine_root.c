/* confine_root.c - a root of its own for a confined process. Nobody but root could make a folder in /, and nobody should leave one there: so a small file system becomes
 * the root, in which every entry of the old one is mounted (or linked) under its name. pivot_root(2) explains the last three calls. */
#include "common/base/confine_root.h"

#include "common/base/buf.h"
#include "common/base/confine_mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAGE "/tmp" /* there on every system, and it is taken before it is covered */
#define JOB   "/job"

static char *link_at(const char *path)
{
    char to[PATH_MAX];
    ssize_t n = readlink(path, to, sizeof to - 1);
    return n > 0 ? pst_strndup(to, (size_t)n) : NULL;
}

void pst_confine_root_plan(const char *job, pst_confine_root *ret)
{
    *ret = (pst_confine_root){0};
    DIR *d = job ? opendir("/") : NULL;
    struct dirent *e = NULL;
    while (d && (e = readdir(d)) && ret->n < PST_CONFINE_ENTRIES) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
            continue;
        char *path = pst_sprintf("/%s", e->d_name);
        if (!strcmp(path, JOB)) {
            free(path);
            continue;
        }
        ret->folder[ret->n] = S_ISDIR(st.st_mode);
        ret->link[ret->n] = S_ISLNK(st.st_mode) ? link_at(path) : NULL;
        ret->name[ret->n++] = path;
    }
    if (d && !e)
        ret->job = pst_strdup(job);
    if (d)
        closedir(d);
}

void pst_confine_root_done(pst_confine_root *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->name[i]);
        free(r->link[i]);
    }
    free(r->job);
    *r = (pst_confine_root){0};
}

/* STAGE + name, without the heap. */
static const char *staged(const char *name, char *to)
{
    memcpy(to, STAGE, sizeof STAGE - 1);
    memcpy(to + sizeof STAGE - 1, name, strlen(name) + 1);
    return to;
}

static int furnish(const pst_confine_root *r, const int *tree, int job)
{
    char path[sizeof STAGE + NAME_MAX + 4] = "";
    int e = 0;
    for (int i = 0; i < r->n && !e; i++) {
        staged(r->name[i], path);
        if (r->link[i])
            e = symlink(r->link[i], path) < 0 ? errno : 0;
        else if (tree[i] >= 0)
            e = pst_confine_put(tree[i], path, r->folder[i]);
    }
    return e ? e : pst_confine_put(job, staged(JOB, path), true);
}

int pst_confine_root_enter(const pst_confine_root *r)
{
    int tree[PST_CONFINE_ENTRIES];
    if (!r->job)
        return 0;
    int job = pst_confine_take(r->job);
    if (job < 0)
        return errno;
    for (int i = 0; i < r->n; i++) {
        tree[i] = r->link[i] ? -1 : pst_confine_take(r->name[i]);
        if (tree[i] < 0 && !r->link[i] && errno != ENOENT)
            return errno;
    }
    if (mount("none", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=256k,mode=0755") < 0)
        return errno;
    int e = furnish(r, tree, job);
    if (!e && mount("none", STAGE, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        e = errno;
    if (!e && (chdir(STAGE) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0))
        e = errno;
    return e;
}
