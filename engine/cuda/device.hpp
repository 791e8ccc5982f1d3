/* device.hpp - what kernels are written with, so that one text is compiled twice: by nvcc for devices, and by a C++ compiler with emu.hpp, where
 * every kernel really runs, block by block, in the tests. Not installed.
 *
 *   eng_view<T>       n things of a device's memory: a plain pointer for nvcc, checked bounds in the emulation
 *   ENG_SHARED        the block's shared memory, as many bytes as the launch asked for; eng_carve<T>() takes a view off its front
 *   ENG_LAUNCH        kernel<<<…>>>(…); gives 0 or the runtime's error
 *
 * What only a device can run (tensor cores, bulk copies) needs a plain path beside it. */
#ifndef PST_ENGINE_CUDA_DEVICE_HPP
#define PST_ENGINE_CUDA_DEVICE_HPP

#include "engine/cuda/part.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>

template <typename T> using eng_view = T *;
template <typename T> __device__ inline eng_view<T> eng_view_of(T *at, uint64_t)
{
    return at;
}
#define ENG_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define ENG_LAUNCH(kernel, grid, block, shared, stream, ...) \
    (kernel<<<(grid), (block), (shared), static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__), static_cast<int>(cudaGetLastError()))
#else
#include "engine/cuda/emu.hpp"
#endif

/* A view of n things off the front of shared memory. */
template <typename T> __device__ inline eng_view<T> eng_carve(unsigned char *&at, uint64_t n)
{
    T *first = reinterpret_cast<T *>(at);
    at += (n * sizeof(T) + 15) / 16 * 16;
    return eng_view_of(first, n);
}

/* A view of a part of an image. */
template <typename T> __device__ inline eng_view<const T> eng_part_of(const unsigned char *image, const eng_cuda_part &part)
{
    return eng_view_of(reinterpret_cast<const T *>(image + part.at), part.n);
}

#endif
