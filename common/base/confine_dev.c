/* confine_dev.c - the device nodes that a confined process keeps. A list of what is allowed, not of what is not: disks, generic SCSI and NVMe nodes, other people's terminals, the
 * kernel's log, watchdogs and whatever comes next are left out by not being named. Nodes are taken along as mounts of their own, since nobody
 * but the computer's root may make new ones; after that no mount but those serves devices any more. */
#include "common/base/confine_dev.h"

#include "common/base/confine_mount.h"
#include "common/base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_allowed(const char *name)
{
    static const char *const whole[] = {"null",   "zero",      "full", "random", "urandom", "tty",        "shm",
                                        "mqueue", "hugepages", "kfd",  "dri",    "accel",   "infiniband", "dxg"};
    static const char *const families[] = {"nvidia", "neuron", "davinci", "devmm_svm", "hisi_hdc"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!strcmp(name, whole[i]))
            return true;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strncmp(name, families[i], strlen(families[i])))
            return true;
    return false;
}

void pst_confine_devices_plan(pst_confine_devices *ret)
{
    *ret = (pst_confine_devices){0};
    DIR *d = opendir("/dev");
    for (struct dirent *e; d && ret->n < PST_CONFINE_DEVICES && (e = readdir(d));) {
        struct stat st;
        if (!is_allowed(e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !(S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode)))
            continue;
        ret->folder[ret->n] = S_ISDIR(st.st_mode);
        ret->path[ret->n++] = pst_fs_join("/dev", e->d_name);
    }
    if (d)
        closedir(d);
}

void pst_confine_devices_done(pst_confine_devices *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->path[i]);
    d->n = 0;
}

/* Pseudo terminals of its own; without them nothing but a terminal is missing. */
static void own_terminals(void)
{
    pst_confine_folder("/dev/pts");
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620") == 0 &&
        symlink("pts/ptmx", "/dev/ptmx") < 0)
        rmdir("/dev/pts");
}

static void links(void)
{
    static const char *const at[][2] = {{"/proc/self/fd", "/dev/fd"},
                                        {"/proc/self/fd/0", "/dev/stdin"},
                                        {"/proc/self/fd/1", "/dev/stdout"},
                                        {"/proc/self/fd/2", "/dev/stderr"}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        if (symlink(at[i][0], at[i][1]) < 0)
            break;
}

int pst_confine_devices_enter(const pst_confine_devices *d)
{
    int tree[PST_CONFINE_DEVICES], e = 0;
    for (int i = 0; i < d->n; i++)
        tree[i] = pst_confine_take(d->path[i]);  /* one that has gone meanwhile is not there */
    pst_confine_set(-1, "/", PST_CONFINE_NODEV); /* before Linux 5.12 devices elsewhere stay, which only root could have put there */
    if (mount("none", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=256k,mode=0755") < 0)
        return errno;
    for (int i = 0; i < d->n && !e; i++)
        if (tree[i] >= 0)
            e = pst_confine_put(tree[i], d->path[i], d->folder[i]);
    own_terminals();
    links();
    if (!e && mount("none", "/dev", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
        e = errno;
    return e;
}
