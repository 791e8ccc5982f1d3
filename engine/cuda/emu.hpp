/* emu.hpp - kernels on the CPU, for tests: the words of CUDA that they are written with, and a launch that runs them. Not installed, not built
 * into any program.
 *
 * Blocks run one after another. A block's threads are fibers, switched at barriers and at warp operations only; the order in which those that
 * may run do so is forwards, backwards or shuffled (emu_order), so that what is only right when a barrier happens to be unneeded comes out
 * differently. Found and told, as the launch's error (emu_fault):
 *   - views read or written out of bounds; shared memory begins as garbage and ends where the launch said (AddressSanitizer sees the rest)
 *   - a barrier that some threads of the block never reach, a warp operation that lanes of its mask never reach or reach with another mask
 *   - a launch of more than 1,024 threads a block or 48 KiB of shared memory
 * Not seen: what depends on timing, on alignment of vectors, on the memory model between blocks; lost updates, since between two barriers each
 * thread runs alone; and lanes that meet at differing warp operations (a vote and a shuffle) with the same mask. A device decides those. */
#ifndef PST_ENGINE_CUDA_EMU_HPP
#define PST_ENGINE_CUDA_EMU_HPP

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__ static
#define __device__
#define __restrict__ __restrict

enum { EMU_WARP = 32, EMU_STACK_BYTES = 128 << 10, EMU_BLOCK_MAX = 1024, EMU_SHARED_MAX = 48 << 10 };
enum emu_orders { EMU_FORWARDS, EMU_BACKWARDS, EMU_SHUFFLED, EMU_ORDERS };

struct emu_dim {
    unsigned x, y, z;
};

enum emu_state { EMU_READY, EMU_AT_BARRIER, EMU_AT_WARP, EMU_DONE };

struct emu_fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    void *asan = nullptr;
    emu_state state = EMU_READY;
    uint32_t mask = 0; /* of the warp operation that it waits at */
    uint64_t given = 0;
    uint64_t lanes[EMU_WARP] = {}; /* what all lanes gave, once it goes on */
};

struct emu_block {
    std::vector<emu_fiber> fibers;
    std::function<void()> body;
    ucontext_t scheduler;
    void *scheduler_asan = nullptr;
    const void *scheduler_stack = nullptr;
    size_t scheduler_bytes = 0;
    size_t now = 0;
    unsigned char *shared = nullptr;
};

inline thread_local emu_block *emu_running;
inline thread_local char emu_fault[200];
inline thread_local int emu_order = EMU_FORWARDS;
inline thread_local uint64_t emu_switches; /* how often a fiber was put aside: tests see that a launch really ran */
inline thread_local emu_dim blockIdx, blockDim, gridDim, threadIdx;

/* ---- fibers ---- */

inline void emu_to_scheduler(bool ends)
{
    emu_block *b = emu_running;
    emu_fiber *f = &b->fibers[b->now];
    emu_switches++;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &f->asan, b->scheduler_stack, b->scheduler_bytes);
#endif
    (void)ends;
    swapcontext(&f->context, &b->scheduler);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(f->asan, &b->scheduler_stack, &b->scheduler_bytes);
#endif
}

inline void emu_enter()
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &emu_running->scheduler_stack, &emu_running->scheduler_bytes);
#endif
    emu_running->body();
    emu_running->fibers[emu_running->now].state = EMU_DONE;
    emu_to_scheduler(true);
}

/* The first fault is kept; the thread that has it goes no further, and neither does the launch. */
template <typename... A> [[noreturn]] inline void emu_die(const char *format, A... args)
{
    if (!*emu_fault) {
        char what[150];
        std::snprintf(what, sizeof what, format, args...);
        std::snprintf(emu_fault, sizeof emu_fault, "block %u thread %u: %s", blockIdx.x, threadIdx.x, what);
    }
    for (;;)
        emu_to_scheduler(true);
}

inline void emu_resume(emu_block *b, size_t i)
{
    emu_fiber *f = &b->fibers[i];
    b->now = i;
    threadIdx = {static_cast<unsigned>(i), 0, 0};
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&b->scheduler_asan, f->stack.get(), EMU_STACK_BYTES);
#endif
    swapcontext(&b->scheduler, &f->context);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(b->scheduler_asan, nullptr, nullptr);
#endif
}

/* ---- what threads wait for ---- */

inline void emu_wait(emu_state state)
{
    emu_fiber *f = &emu_running->fibers[emu_running->now];
    f->state = state;
    emu_to_scheduler(false);
}

inline void __syncthreads()
{
    emu_wait(EMU_AT_BARRIER);
}

/* Every lane of the mask gives a value and gets all of them. */
inline const uint64_t *emu_exchange(uint32_t mask, uint64_t value)
{
    emu_fiber *f = &emu_running->fibers[emu_running->now];
    if (!(mask >> threadIdx.x % EMU_WARP & 1))
        emu_die("a warp operation by a lane that is not in its mask %08x", mask);
    f->mask = mask;
    f->given = value;
    emu_wait(EMU_AT_WARP);
    return f->lanes;
}

inline bool __all_sync(uint32_t mask, int yes)
{
    const uint64_t *lanes = emu_exchange(mask, yes != 0);
    for (int i = 0; i < EMU_WARP; i++)
        if ((mask >> i & 1) && !lanes[i])
            return false;
    return true;
}

inline uint32_t __ballot_sync(uint32_t mask, int yes)
{
    const uint64_t *lanes = emu_exchange(mask, yes != 0);
    uint32_t votes = 0;
    for (int i = 0; i < EMU_WARP; i++)
        votes |= (mask >> i & 1) && lanes[i] ? 1u << i : 0;
    return votes;
}

template <typename T> inline T __shfl_sync(uint32_t mask, T value, int from)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a lane's value is one register or two");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    const uint64_t *lanes = emu_exchange(mask, bits);
    from &= EMU_WARP - 1;
    if (!(mask >> from & 1))
        emu_die("a value from lane %d, which is not in the mask %08x", from, mask);
    std::memcpy(&value, &lanes[from], sizeof value);
    return value;
}

template <typename T> inline T __shfl_xor_sync(uint32_t mask, T value, int with)
{
    return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % EMU_WARP) ^ with);
}

/* ---- the scheduler ---- */

/* Lanes of one warp go on once all of a mask stand at an operation with that mask. True when some do. */
inline bool emu_release_warp(emu_block *b, size_t first)
{
    size_t end = first + EMU_WARP < b->fibers.size() ? first + EMU_WARP : b->fibers.size();
    for (size_t i = first; i < end; i++) {
        if (b->fibers[i].state != EMU_AT_WARP)
            continue;
        uint32_t mask = b->fibers[i].mask, there = 0;
        uint64_t lanes[EMU_WARP] = {};
        for (size_t k = first; k < end; k++)
            if (b->fibers[k].state == EMU_AT_WARP && b->fibers[k].mask == mask) {
                there |= 1u << (k - first);
                lanes[k - first] = b->fibers[k].given;
            }
        if (there != mask)
            continue;
        for (size_t k = first; k < end; k++)
            if (mask >> (k - first) & 1) {
                std::memcpy(b->fibers[k].lanes, lanes, sizeof lanes);
                b->fibers[k].state = EMU_READY;
            }
        return true;
    }
    return false;
}

/* Nobody can run: who waits may go on, or it is a fault. False: all are done. */
inline bool emu_release(emu_block *b)
{
    size_t at_barrier = 0, done = 0, n = b->fibers.size();
    bool released = false;
    for (size_t i = 0; i < n; i += EMU_WARP)
        released |= emu_release_warp(b, i);
    if (released)
        return true;
    for (const emu_fiber &f : b->fibers) {
        at_barrier += f.state == EMU_AT_BARRIER;
        done += f.state == EMU_DONE;
    }
    if (done == n)
        return false;
    if (at_barrier != n) {
        std::snprintf(emu_fault, sizeof emu_fault,
                      "block %u: %zu of %zu threads wait at a barrier, %zu at a warp operation, %zu have ended", blockIdx.x, at_barrier, n,
                      n - at_barrier - done, done);
        return false;
    }
    for (emu_fiber &f : b->fibers)
        f.state = EMU_READY;
    return true;
}

inline size_t emu_turn(size_t k, size_t n, uint64_t *seed)
{
    if (emu_order != EMU_SHUFFLED)
        return emu_order == EMU_FORWARDS ? k : n - 1 - k;
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % n;
}

inline void emu_run_block(emu_block *b)
{
    uint64_t seed = 12345 + blockIdx.x;
    size_t n = b->fibers.size();
    do {
        for (size_t k = 0; k < 2 * n && !*emu_fault;
             k++) { /* shuffled, some are drawn twice and some not: the second half takes those in order */
            size_t i = k < n ? emu_turn(k, n, &seed) : k - n;
            if (b->fibers[i].state == EMU_READY)
                emu_resume(b, i);
        }
    } while (!*emu_fault && emu_release(b));
}

inline void emu_begin(emu_fiber *f)
{
    f->stack.reset(new char[EMU_STACK_BYTES]);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack.get();
    f->context.uc_stack.ss_size = EMU_STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, emu_enter, 0);
}

inline void emu_one_block(unsigned at, unsigned threads, size_t shared_bytes, const std::function<void()> &body)
{
    emu_block b;
    std::unique_ptr<unsigned char[]> shared(new unsigned char[shared_bytes]);
    std::memset(shared.get(), 0xa5, shared_bytes);
    blockIdx = {at, 0, 0};
    b.shared = shared.get();
    b.body = body;
    b.fibers = std::vector<emu_fiber>(threads);
    for (emu_fiber &f : b.fibers)
        emu_begin(&f);
    emu_running = &b;
    emu_run_block(&b);
    emu_running = nullptr;
}

/* What every device has room for without being asked for more. */
inline void emu_check_launch(unsigned block, size_t shared_bytes)
{
    if (block > EMU_BLOCK_MAX)
        std::snprintf(emu_fault, sizeof emu_fault, "a block of %u threads, and %d are the most", block, EMU_BLOCK_MAX);
    else if (shared_bytes > EMU_SHARED_MAX)
        std::snprintf(emu_fault, sizeof emu_fault, "%zu bytes of shared memory, and %d are the most", shared_bytes, EMU_SHARED_MAX);
}

/* 0, or 1 and emu_fault says what. */
inline int emu_launch(unsigned grid, unsigned block, size_t shared_bytes, const std::function<void()> &body)
{
    *emu_fault = 0;
    emu_check_launch(block, shared_bytes);
    gridDim = {grid, 1, 1};
    blockDim = {block, 1, 1};
    for (unsigned at = 0; at < grid && !*emu_fault; at++)
        emu_one_block(at, block, shared_bytes, body);
    return *emu_fault ? 1 : 0;
}

/* ---- what device.hpp wants ---- */

template <typename T> struct eng_view {
    T *first;
    uint64_t n;
    T &operator[](uint64_t i) const
    {
        if (i >= n)
            emu_die("place %llu of %llu", static_cast<unsigned long long>(i), static_cast<unsigned long long>(n));
        return first[i];
    }
};
template <typename T> inline eng_view<T> eng_view_of(T *at, uint64_t n)
{
    return {at, n};
}
#define ENG_SHARED(name) unsigned char *name = emu_running->shared
#define ENG_LAUNCH(kernel, grid, block, shared, stream, ...) \
    ((void)(stream), emu_launch((grid), (block), (shared), [&] { kernel(__VA_ARGS__); }))

#endif
