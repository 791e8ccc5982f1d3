/* cuda_backend.h - models of one tree ensemble on a device. Not installed. */
#ifndef PST_ENGINE_CUDA_BACKEND_H
#define PST_ENGINE_CUDA_BACKEND_H

#include "engine/backend.h"

extern const eng_backend eng_cuda_backend;

#endif
