/* err.h - what went wrong, for people and for code.
 *
 * Functions return 0 or a negative PST_E… code; outputs come last, are named ret_…, and are untouched on failure.
 * Where a person needs the story, the last parameter is a caller's pst_err: the first writer wins, later calls add nothing.
 * The class decides behaviour, in one place, for everyone:
 *   RETRY  an outage: back off and try again, nothing is wrong with the data
 *   DATA   this record, file or request is bad: dead-letter or refuse it and go on
 *   FATAL  configuration, permission or a broken invariant: drain and exit
 *
 *     pst_err err = {0};
 *     if (pst_fs_read(path, 1 << 20, &buf, &err) < 0) { pst_log_err("submit", &err); return pst_err_exit(&err); }
 *
 * Threads: any; a pst_err belongs to its caller. */
#ifndef PST_BASE_ERR_H
#define PST_BASE_ERR_H

#include "common/base/err_type.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the story if none was written yet and returns code, so that `return pst_err_set(…)` reads well. err may be NULL. */
int pst_err_set(pst_err *err, int code, pst_err_class cls, const char *origin, int native, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* The same for a failed system call: appends strerror(errnum); class RETRY for EINTR/EAGAIN/ENOSPC, else FATAL. Returns PST_EIO (PST_ENOTFOUND for ENOENT). */
int pst_err_sys(pst_err *err, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "context: " before the text that is there. */
void pst_err_prefix(pst_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pst_err_clear(pst_err *err);
/* What a verb's exit status says. One list for pst_err_exit and docs/reference/exit-status.md. */
typedef struct pst_exit {
    int status;
    int code; /* the PST_E… that ends with it; 0 = a verb's own decision */
    const char *meaning;
} pst_exit;
extern const pst_exit pst_exits[];
extern const size_t pst_n_exits;
/* The process exit status for this error; 1 for whatever the list does not name. */
int pst_err_exit(const pst_err *err);
/* "EINVAL", "ENOTFOUND" … for logs. */
const char *pst_code_name(int code);

/* A bug, not a condition: prints where and aborts, in every build type. */
#define PST_ASSERT(cond) ((cond) ? (void)0 : pst_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void pst_assert_failed(const char *cond, const char *file, int line);

#endif
