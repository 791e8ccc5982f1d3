/* net_pack.h - a network as whoever lowers a graph writes it down, and its image. Not installed. */
#ifndef PST_ENGINE_CUDA_NET_PACK_H
#define PST_ENGINE_CUDA_NET_PACK_H

#include "common/base/err.h"
#include "engine/cuda/net.h"

#include <stddef.h>

enum { ENG_CUDA_NET_STAGES = 4 * ENG_CUDA_NET_OPS, ENG_CUDA_NET_SLOTS = ENG_CUDA_NET_OPS + 1 };

/* Slot 0 is the row that comes in; operation 0 brings it to a slot between, by `each`. Of slots of IN and OUT `at` is set, of those between the
 * packing finds it. Stages of an operation lie side by side, at n_stages when it is added; of its results another is only begun when it is whole. */
typedef struct eng_cuda_net_draft {
    uint32_t n_ops, n_stages, n_slots, n_in, n_out;
    eng_cuda_net_op ops[ENG_CUDA_NET_OPS];
    eng_cuda_net_stage stages[ENG_CUDA_NET_STAGES];
    eng_cuda_net_slot slots[ENG_CUDA_NET_SLOTS];
    float *numbers; /* of the engine's heap; eng_heap_free() */
    size_t n_numbers, numbers_cap;
} eng_cuda_net_draft;

typedef enum { ENG_CUDA_NET_EITHER, ENG_CUDA_NET_NEAR, ENG_CUDA_NET_FAR } eng_cuda_net_way;

/* Room for n numbers of the model; *ret_at: of the first. Below a eng_heap_run. */
float *eng_cuda_net_numbers(eng_cuda_net_draft *d, size_t n, uint64_t *ret_at);
/* The image of d: ret_image is to be given to eng_heap_free(). way: near where it fits, unless one is asked for; tests ask. d is used up but for
 * its numbers. 0, or PST_EUNSUPPORTED: near was asked for and does not fit. Below a eng_heap_run. */
int eng_cuda_net_pack(eng_cuda_net_draft *d, eng_cuda_net_way way, eng_cuda_net *ret, unsigned char **ret_image, pst_err *err);

#endif
