/* program.c - verbs that are programs of their own. A program of its own costs its users nothing to find: they type `penstock broker`, and penstock becomes it before it
 * has taken anything over, so that what was handed to one (descriptors, environment) reaches the other as it was. */
#include "common/base/program.h"

#include "common/base/buf.h"
#include "common/base/handover.h"
#include "common/base/log.h"
#include "common/base/log_file.h"
#include "common/base/proc.h"
#include "common/base/dump.h"
#include "common/base/stop.h"
#include "common/base/term.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void pst_program_begin(void)
{
    pst_proc_private(); /* before anything secret is in memory */
    pst_handover_take();
    pst_log_file_take();
    pst_stop_install();
    pst_dump_install();
    pst_term_init();
    umask(077); /* state, stores, spools, models, logs: what our programs write is their user's alone */
}

int pst_program_main(const pst_verb *verb, int argc, char **argv)
{
    pst_program_begin();
    bool named = argc > 1 && !strcmp(argv[1], verb->name);
    int rc = verb->run(argc - named, argv + named);
    if (fflush(stdout) && !rc)
        rc = 1;
    return rc;
}

int pst_program_find(const char *name, char **ret_path, pst_err *err)
{
    char *self = pst_proc_self(), *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    char *path = pst_sprintf("%s/%s", slash ? self : ".", name);
    free(self);
    if (access(path, X_OK) < 0) {
        int rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_FATAL, "sys", errno,
                             "%s: %s. It belongs beside penstock: build or install all of it (cmake --install), not one file", path,
                             strerror(errno));
        free(path);
        return rc;
    }
    *ret_path = path;
    return 0;
}

const char *pst_program_shell(const char *root)
{
    static const char *const places[] = {"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"};
    const char *found = "/bin/sh";
    for (size_t i = sizeof places / sizeof *places; i-- > 0;) {
        char *path = pst_sprintf("%s%s", root, places[i]);
        if (access(path, X_OK) == 0)
            found = places[i];
        free(path);
    }
    return found;
}

int pst_program_become(const char *verb, char **argv)
{
    char *name = pst_sprintf("penstock-%s", verb), *path = NULL;
    pst_err err = {0};
    if (pst_program_find(name, &path, &err) == 0) {
        execv(path, argv);
        pst_err_sys(&err, errno, "cannot start %s", path);
    }
    pst_say_err(verb, &err);
    free(path);
    free(name);
    return pst_err_exit(&err);
}
