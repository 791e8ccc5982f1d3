/* err.c - the first cause is kept and later ones are dropped: whoever is nearer to the cause knows more. Context is put in front by
 * whoever passes an error on. No memory is taken, so that running out of it can be reported. */
#include "common/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 6, 0))) static int fill(pst_err *err, int code, pst_err_class cls, const char *origin, int native,
                                                      const char *fmt, va_list ap)
{
    if (!err || err->code)
        return code;
    err->code = code;
    err->cls = cls;
    err->native = native;
    snprintf(err->origin, sizeof err->origin, "%s", origin ? origin : "");
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    return code;
}

int pst_err_set(pst_err *err, int code, pst_err_class cls, const char *origin, int native, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, cls, origin, native, fmt, ap);
    va_end(ap);
    return code;
}

static int code_of(int errnum)
{
    switch (errnum) {
    case ENOENT: return PST_ENOTFOUND;
    case EEXIST: return PST_EEXIST;
    case ENOMEM: return PST_ENOMEM;
    default: return PST_EIO;
    }
}

int pst_err_sys(pst_err *err, int errnum, const char *fmt, ...)
{
    int code = code_of(errnum);
    bool passing = errnum == EINTR || errnum == EAGAIN || errnum == ENOSPC;
    if (!err || err->code)
        return code;
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, passing ? PST_CLASS_RETRY : PST_CLASS_FATAL, "sys", errnum, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, ": %s", strerror(errnum));
    return code;
}

void pst_err_prefix(pst_err *err, const char *fmt, ...)
{
    if (!err || !err->code)
        return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, ": %s", old);
}

void pst_err_clear(pst_err *err)
{
    if (err)
        memset(err, 0, sizeof *err);
}

const pst_exit pst_exits[] = {
    {0, PST_OK, "Done; a service that was told to stop and drained."},
    {1, 0, "Failed."},
    {2, PST_EINVAL, "Usage or configuration: an option, a file, a manifest, a pipeline."},
    {3, 0, "Partly done: some records were dead-lettered or left out."},
    {4, PST_ENOTFOUND, "Not found: a job, a model, a pipeline, a topic."},
    {5, PST_EUNREACH, "Broker or registry not reachable."},
    {6, PST_EAUTH, "Refused: authentication or authorization."},
    {7, PST_EINCOMPAT, "Incompatible schema."},
    {10, 0, "`submit`: the job was rejected. `submit --wait`: it FAILED."},
    {11, 0, "`submit --wait`: it was terminated or halted."},
    {124, PST_ETIMEDOUT, "Timed out; `submit`: no answer of the Trainer within 10 s."},
    {130, PST_ESTOPPED, "Ended by Ctrl-C."},
};
const size_t pst_n_exits = sizeof pst_exits / sizeof *pst_exits;

int pst_err_exit(const pst_err *err)
{
    if (err->code == PST_ENOTFOUND && !strcmp(err->origin, "sys")) /* a file that the user named */
        return 2;
    for (size_t i = 0; i < pst_n_exits; i++)
        if (pst_exits[i].code == err->code && (err->code || !pst_exits[i].status))
            return pst_exits[i].status;
    return 1;
}

const char *pst_code_name(int code)
{
    static const char *const names[] = {"OK",           "EINVAL",   "ENOMEM", "EIO",       "ENOTFOUND", "EEXIST",
                                        "ETIMEDOUT",    "EUNREACH", "EAUTH",  "EINCOMPAT", "EPARSE",    "ELIMIT",
                                        "EUNSUPPORTED", "EFENCED",  "ESTATE", "ESTOPPED",  "EAGAIN"};
    return code <= 0 && -code < (int)(sizeof names / sizeof *names) ? names[-code] : "E?";
}

_Noreturn void pst_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "penstock: bug: %s is false at %s:%d; please report this line\n", cond, file, line);
    abort();
}
