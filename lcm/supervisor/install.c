/* install.c - which files make up this program is asked of the loader itself (dl_iterate_phdr), after everything that is opened late was opened: a list of
 * packages or the output of ldd would be one more thing that can be out of date. The loader comes along, because it and the C library only
 * fit each other. */
#include "lcm/supervisor/install.h"

#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/library.h"
#include "common/base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRAM      "penstock-supervise"
#define LOADER       "ld.so"
#define SETTINGS_MAX (4 << 20)

typedef struct installing {
    const char *dir;
    pst_err *err;
    int rc;
} installing;

static int copy(const char *from, const char *dir, const char *name, mode_t mode, pst_err *err)
{
    static char part[1 << 16];
    char *to = pst_fs_join(dir, name);
    int in = open(from, O_RDONLY | O_CLOEXEC), rc = 0;
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (in < 0 || out < 0)
        rc = pst_err_sys(err, errno, "cannot copy %s to %s", from, to);
    for (ssize_t n; !rc && (n = read(in, part, sizeof part)) != 0;)
        if (n < 0 ? errno != EINTR : pst_fs_write_all(out, part, (size_t)n) < 0)
            rc = pst_err_sys(err, errno, "cannot copy %s to %s", from, to);
    if (!rc && fchmod(out, mode) < 0) /* whatever the umask: the learner's container may run as another user */
        rc = pst_err_sys(err, errno, "cannot make %s readable", to);
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) < 0 && !rc)
        rc = pst_err_sys(err, errno, "cannot write %s", to);
    free(to);
    return rc;
}

/* The program itself has no name here, the kernel's page of code no path. */
static int take_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    installing *i = arg;
    const char *name = strrchr(info->dlpi_name, '/');
    if (!name)
        return 0;
    if (info->dlpi_addr == getauxval(AT_BASE))
        i->rc = copy(info->dlpi_name, i->dir, LOADER, 0755, i->err);
    if (!i->rc)
        i->rc = copy(info->dlpi_name, i->dir, name + 1, 0755, i->err); /* also by its own name: libc asks for it */
    return i->rc;
}

static int copy_settings(const char *from, const char *to, pst_err *err)
{
    pst_buf b = {0};
    int rc = pst_fs_read(from, SETTINGS_MAX, &b, err);
    if (!rc)
        rc = pst_fs_write_atomic(to, b.data ? b.data : "", b.len, 0600, err);
    if (b.data)
        explicit_bzero(b.data, b.len);
    pst_buf_done(&b);
    return rc;
}

int sup_install(const char *dir, const char *settings, const char *settings_to, pst_err *err)
{
    installing i = {.dir = dir, .err = err, .rc = pst_fs_mkdirs(dir, 0755, err)};
    char *self = pst_proc_self();
    pst_library_open_all();
    if (!i.rc && !getauxval(AT_BASE))
        i.rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "install", 0,
                           "%s was started by the dynamic loader's name, or is linked statically: start it by its own", self);
    if (!i.rc)
        i.rc = copy(self, dir, PROGRAM, 0755, err);
    if (!i.rc)
        dl_iterate_phdr(take_object, &i);
    if (!i.rc && settings)
        i.rc = copy_settings(settings, settings_to, err);
    free(self);
    return i.rc;
}
