/* cuda_backend.h - models of one tree ensemble, or of dense layers, on a device. Not installed. */
#ifndef PST_ENGINE_CUDA_BACKEND_H
#define PST_ENGINE_CUDA_BACKEND_H

#include "engine/backend.h"

extern const eng_backend eng_cuda_backend;

/* The largest run that "auto" looks at: smaller ones can still go to the CPU. */
int64_t eng_cuda_rows_most(const pst_plan *p);

#endif
