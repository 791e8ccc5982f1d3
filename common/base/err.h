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

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PST_OK = 0,
    PST_EINVAL = -1, /* bad argument, configuration or manifest */
    PST_ENOMEM = -2,
    PST_EIO = -3,       /* file or system call */
    PST_ENOTFOUND = -4, /* job, model, schema, topic, file */
    PST_EEXIST = -5,
    PST_ETIMEDOUT = -6,
    PST_EUNREACH = -7,  /* broker, registry or store does not answer */
    PST_EAUTH = -8,     /* refused: credentials or ACL */
    PST_EINCOMPAT = -9, /* schema not compatible */
    PST_EPARSE = -10,   /* bytes that do not parse */
    PST_ELIMIT = -11,   /* a named limit was exceeded */
    PST_EUNSUPPORTED = -12,
    PST_EFENCED = -13,  /* someone newer runs in our place */
    PST_ESTATE = -14,   /* not allowed in this state */
    PST_ESTOPPED = -15, /* told to stop */
    PST_EAGAIN = -16    /* nothing now; ask again */
};

typedef enum { PST_CLASS_NONE = 0, PST_CLASS_RETRY, PST_CLASS_DATA, PST_CLASS_FATAL } pst_err_class;

typedef struct pst_err {
    int code; /* PST_E…; 0 = nothing written yet */
    pst_err_class cls;
    int native;      /* errno, rd_kafka_resp_err_t, HTTP status …; 0 if none */
    char origin[12]; /* "sys", "kafka", "avro", "registry", "sqlite", "mongo", "onnx", "cuda", "config" … */
    char text[480];  /* one sentence or two: what, where, why, what to do */
} pst_err;

/* Writes the story if none was written yet and returns code, so that `return pst_err_set(…)` reads well. err may be NULL. */
int pst_err_set(pst_err *err, int code, pst_err_class cls, const char *origin, int native, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* The same for a failed system call: appends strerror(errnum); class RETRY for EINTR/EAGAIN/ENOSPC, else FATAL. Returns PST_EIO (PST_ENOTFOUND for ENOENT). */
int pst_err_sys(pst_err *err, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "context: " before the text that is there. */
void pst_err_prefix(pst_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pst_err_clear(pst_err *err);
/* The process exit status of contract section 1 for this error (1, 2, 4, 5, 6, 7, 124, 130). */
int pst_err_exit(const pst_err *err);
/* "EINVAL", "ENOTFOUND" … for logs. */
const char *pst_code_name(int code);

/* A bug, not a condition: prints where and aborts, in every build type. */
#define PST_ASSERT(cond) ((cond) ? (void)0 : pst_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void pst_assert_failed(const char *cond, const char *file, int line);

#endif
