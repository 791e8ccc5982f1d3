/* context.h - a device that this process computes on: the driver's context on it, how much of its memory is in use, and whether it still answers.
 * Not installed.
 *
 *     eng_cuda_context *on;
 *     int rc = eng_cuda_context_open(-1, &on, err);          // the first that can be used
 *     if (rc == 0) rc = eng_cuda_alloc(on, bytes, &at, err); // against the budget
 *
 * A process has one context a device, made when the first model comes and kept: making one takes a good part of a second and some hundred megabytes.
 * The budget is nine tenths of what was free then; the rest is the driver's for its kernels and for other processes. What does not fit is refused before it
 * is loaded. After any other failure of the driver the device is lost for this process (most such errors stick to the context): it is
 * never reset, since others may compute on it, and whoever asks again is told at once. Whoever wants any device gets another one, if there is one.
 *
 * Nothing here waits for a device without a limit. Most calls that give something back wait for all that the device has to do, so they are made only
 * when it is idle: what a device that does not answer may still read or write is left behind, counted as used, and given back by whoever
 * comes next and finds it idle.
 *
 * Errors have the origin "cuda" and the class RETRY, and name the device. @thread any; @locks the table's, the account's */
#ifndef PST_ENGINE_CUDA_CONTEXT_H
#define PST_ENGINE_CUDA_CONTEXT_H

#include "common/base/err.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/plugin.h"

struct eng_cuda_left;

typedef struct eng_cuda_context {
    const eng_cuda_driver *driver;
    const eng_cuda_plugin *plugin;
    int number;
    char name[128]; /* "cuda:0 (NVIDIA H200)" */
    void *context;
    size_t budget, used;        /* bytes */
    bool lost;                  /* atomic */
    char why[160];              /* it was lost; written once, before lost is set */
    struct eng_cuda_left *left; /* what could not be given back yet */
} eng_cuda_context;

/* number: of cuda:N, -1 = the first that can be used and is not lost. PST_EUNSUPPORTED: there is none, and why. PST_EIO: all are lost. */
int eng_cuda_context_open(int number, eng_cuda_context **ret, pst_err *err);
/* The calling thread computes on it from here on. PST_EIO: it is lost. */
int eng_cuda_enter(eng_cuda_context *on, pst_err *err);
bool eng_cuda_is_lost(const eng_cuda_context *on);
/* What the driver returned for `what`, "copying rows to it": 0, PST_ENOMEM, or PST_EIO and the device is lost. */
int eng_cuda_said(eng_cuda_context *on, int error, const char *what, pst_err *err);

/* Memory of the device within the budget, and of the host for it. PST_ENOMEM says how much there is. The thread has entered. */
int eng_cuda_alloc(eng_cuda_context *on, size_t bytes, eng_cuda_address *ret, pst_err *err);
int eng_cuda_pin(eng_cuda_context *on, size_t bytes, void **ret, pst_err *err);
/* Never fail: of a lost device the driver has taken it back, or will with the process. A stream first, then what its work may still use; it is waited
 * for, but not long. NULL-safe; any thread. */
void eng_cuda_stream_end(eng_cuda_context *on, void *stream);
void eng_cuda_free(eng_cuda_context *on, eng_cuda_address at, size_t bytes);
void eng_cuda_unpin(eng_cuda_context *on, void *at);

/* For tests: this driver and plug-in in the place of the host's, NULL = the host's again; and no context is known any more. */
void eng_cuda_pretend(const eng_cuda_driver *driver, const eng_cuda_plugin *plugin);

#endif
