/* part.h - where things lie in an image, the block of bytes that a model is on a device. Not installed. */
#ifndef PST_ENGINE_CUDA_PART_H
#define PST_ENGINE_CUDA_PART_H

#include <stdint.h>

/* n things from byte `at` of the image on. */
typedef struct eng_cuda_part {
    uint64_t at, n;
} eng_cuda_part;

#endif
