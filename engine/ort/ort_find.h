/* ort_find.h - whether ONNX Runtime is there; for `penstock doctor`. What it is used for: ort.h. @thread any */
#ifndef PST_ENGINE_ORT_FIND_H
#define PST_ENGINE_ORT_FIND_H

#include "common/base/err.h"

/* Opens the library if it is not open. Writes "1.22.0 from /usr/lib/…/libonnxruntime.so.1" to ret_found (may be NULL).
 * PST_ENOTFOUND: none found, or PENSTOCK_ONNXRUNTIME=off; the text says which and the cure. */
int pst_ort_find(char *ret_found, size_t cap, pst_err *err);

#endif
