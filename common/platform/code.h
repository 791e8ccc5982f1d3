/* code.h - a job's code on its way into a request: inside the event when it is small, else in the object store, where the event says it lies.
 * For whoever submits: the verb and the gateway. */
#ifndef PST_COMMON_PLATFORM_CODE_H
#define PST_COMMON_PLATFORM_CODE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "schemas/events.h"

/* What an archive may have, wherever it is submitted. */
#define PST_CODE_BYTES_MAX (512 << 20)

/* objects: address of the object store; dry_run: nothing is put there. *ret_code is the caller's to clear (pst_code_done). @thread any */
int pst_code_attach(const char *objects, pst_slice archive, const char *media_type, bool dry_run, pst_job_code *ret_code, pst_err *err);
void pst_code_done(pst_job_code *code);

#endif
