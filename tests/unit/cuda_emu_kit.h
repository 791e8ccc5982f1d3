/* cuda_emu_kit.h - the emulation of engine/cuda/emu.hpp for tests in C, and kernels that try the emulation itself. */
#ifndef PST_TESTS_CUDA_EMU_KIT_H
#define PST_TESTS_CUDA_EMU_KIT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMU_KIT_ORDERS = 3 };
void emu_kit_order(int order); /* of threads: forwards, backwards, shuffled */
const char *emu_kit_fault(void);
uint64_t emu_kit_switches(void);

typedef enum {
    EMU_KIT_REVERSE,      /* each thread reads what another wrote, behind a barrier */
    EMU_KIT_NO_BARRIER,   /* the same without */
    EMU_KIT_HALF_BARRIER, /* half of the threads never come to it */
    EMU_KIT_BEYOND,       /* one past the end of shared memory */
    EMU_KIT_SHUFFLE,      /* sums over warps, by exchange */
    EMU_KIT_LANE_MISSING, /* one lane of the mask never comes */
    EMU_KIT_NOT_IN_MASK,
    EMU_KIT_MUCH_SHARED /* a byte more than every device has */
} emu_kit_kind;

/* n threads in one block; out: n numbers. What the launch said. */
int emu_kit_run(emu_kit_kind kind, unsigned n, uint32_t *out);

#ifdef __cplusplus
}
#endif

#endif
