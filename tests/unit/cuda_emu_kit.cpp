/* cuda_emu_kit.cpp - see cuda_emu_kit.h. */
#include "tests/unit/cuda_emu_kit.h"

#include "engine/cuda/device.hpp"

static_assert(EMU_KIT_ORDERS == static_cast<int>(EMU_ORDERS), "all orders are tried");

__global__ void try_kernel(emu_kit_kind kind, unsigned n, uint32_t *out_first)
{
    ENG_SHARED(shared);
    unsigned char *at = shared;
    eng_view<uint32_t> box = eng_carve<uint32_t>(at, n), out = eng_view_of(out_first, n);
    unsigned i = threadIdx.x, lane = i % EMU_WARP;
    if (kind == EMU_KIT_REVERSE || kind == EMU_KIT_NO_BARRIER) {
        box[i] = i;
        if (kind == EMU_KIT_REVERSE)
            __syncthreads();
        out[i] = box[n - 1 - i];
    } else if (kind == EMU_KIT_HALF_BARRIER) {
        if (i < n / 2)
            __syncthreads();
        out[i] = i;
    } else if (kind == EMU_KIT_BEYOND) {
        out[i] = box[i + 1];
    } else if (kind == EMU_KIT_SHUFFLE) {
        uint32_t sum = i;
        for (int with = 1; with < EMU_WARP; with *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, with);
        out[i] = sum + (__ballot_sync(0xffffffffu, lane % 2) == 0xaaaaaaaau ? 0 : 1000000);
    } else if (kind == EMU_KIT_LANE_MISSING) {
        out[i] = lane == 7 || __all_sync(0xffffffffu, 1);
    } else {
        out[i] = __all_sync(0xfffffffeu, 1);
    }
}

void emu_kit_order(int order)
{
    emu_order = order;
}

const char *emu_kit_fault(void)
{
    return emu_fault;
}

uint64_t emu_kit_switches(void)
{
    return emu_switches;
}

int emu_kit_run(emu_kit_kind kind, unsigned n, uint32_t *out)
{
    size_t shared_bytes = kind == EMU_KIT_MUCH_SHARED ? (48 << 10) + 1 : n * sizeof(uint32_t);
    return ENG_LAUNCH(try_kernel, 1, n, shared_bytes, nullptr, kind, n, out);
}
