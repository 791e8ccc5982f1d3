/* lane.h - models on a device: the image that all plans of a model use, and the lane of each plan, streams with their buffers. Not installed.
 *
 *     rows ─ gathered ─> pinned ─ one copy ─> device ─ kernels ─> device ─ one copy ─> pinned ─> results
 *
 * Buffers are made once and have fixed addresses, in ENG_CUDA_SLOTS parts with a stream each, of rows_max rows. A run of more rows goes in passes, by each part in
 * turn: while the device computes one, the next is gathered and copied, and the one before is copied back. Likewise two lanes overlap: two plans
 * of one model in rotation. What is computed is the task's matter (task.h). @thread the plan's; images: any */
#ifndef PST_ENGINE_CUDA_LANE_H
#define PST_ENGINE_CUDA_LANE_H

#include "engine/cuda/context.h"
#include "engine/cuda/task.h"
#include "engine/plan.h"

#include <pthread.h>

/* A forest or a network on a device. Its place is the model's (share.h); its bytes are there as long as a lane uses them, so that a model which the CPU
 * has after all holds no memory of the device. @locks its own */
typedef struct eng_cuda_image {
    eng_cuda_context *on;
    pthread_mutex_t lock; /* of what follows; held while the bytes go over, and never across an allocation of the engine's */
    int users;            /* lanes; 0 = there is nothing at `at` */
    eng_cuda_head head;
    eng_cuda_address at;
    size_t bytes;
} eng_cuda_image;

enum { ENG_CUDA_SLOTS = 2 };

/* A part of the buffers, with what computes in it. */
typedef struct eng_cuda_slot {
    void *stream;
    int64_t under_way; /* rows that are not back; 0 = it is free */
} eng_cuda_slot;

typedef struct eng_cuda_lane {
    eng_cuda_context *on;
    eng_cuda_image *image;
    bool uses; /* it is one of the image's users */
    eng_cuda_task task;
    eng_cuda_slot slots[ENG_CUDA_SLOTS];
    unsigned char *pinned;                        /* by slot: rows, then results from out_at on; on the device likewise, */
    eng_cuda_address device;                      /* of bytes bytes, and behind them what lies between its kernels, from between_at on */
    size_t out_at, between_at, slot_bytes, bytes; /* slot_bytes: on the device; of the host's memory a slot has between_at */
    int64_t rows_max;                             /* of a slot */
    int64_t begun;                                /* of the run: rows given to the device so far */
    eng_watch *watch;
} eng_cuda_lane;

/* l->task packed and copied to l->on, once for all plans of p's model that are there at the same time. PST_EUNSUPPORTED: no kernel covers it. Below a eng_heap_run. */
int eng_cuda_image_of(pst_plan *p, eng_cuda_lane *l, pst_err *err);
/* Streams and buffers for l->task on l->on, whatever of them there is goes by eng_cuda_lane_done. No allocation of the engine's. */
int eng_cuda_lane_streams(eng_cuda_lane *l, pst_err *err);
int eng_cuda_lane_buffers(eng_cuda_lane *l, pst_err *err);
void eng_cuda_lane_done(void *lane);

/* Queues the first passes over x, (rows, cols) of the task's numbers; does not wait. The rows may be used again when it returns. */
int eng_cuda_lane_begin(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, pst_err *err);
/* Waits, and sees to the passes that are left: ret_results (rows, task.out bytes). */
int eng_cuda_lane_end(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, void *ret_results, pst_err *err);

#endif
