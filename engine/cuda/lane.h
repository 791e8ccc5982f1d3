/* lane.h - models on a device: the image that all plans of a model use, and the lane of each plan, a stream with its buffers. Not installed.
 *
 *     rows ─ gathered ─> pinned ─ one copy ─> device ─ kernels ─> device ─ one copy ─> pinned ─> results
 *
 * Buffers are made once and have fixed addresses; they hold rows_max rows, more go in several passes. Two lanes overlap one's copies with
 * the other's kernels: two plans of one model in rotation. What is computed is the task's matter (task.h). @thread the plan's; images: any */
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

typedef struct eng_cuda_lane {
    eng_cuda_context *on;
    eng_cuda_image *image;
    bool uses; /* it is one of the image's users */
    eng_cuda_task task;
    void *stream;
    unsigned char *pinned;   /* rows, then results from out_at on; on the device likewise, */
    eng_cuda_address device; /* of bytes bytes, and behind them what lies between its kernels, from between_at on */
    size_t out_at, between_at, bytes;
    int64_t rows_max;
    int64_t begun, under_way; /* of the run: rows given to the device so far, and those of them that are not back */
    eng_watch *watch;
} eng_cuda_lane;

/* l->task packed and copied to l->on, once for all plans of p's model that are there at the same time. PST_EUNSUPPORTED: no kernel covers it. Below a eng_heap_run. */
int eng_cuda_image_of(pst_plan *p, eng_cuda_lane *l, pst_err *err);
/* Stream and buffers for l->task on l->on, whatever of them there is goes by eng_cuda_lane_done. No allocation of the engine's. */
int eng_cuda_lane_stream(eng_cuda_lane *l, pst_err *err);
int eng_cuda_lane_buffers(eng_cuda_lane *l, pst_err *err);
void eng_cuda_lane_done(void *lane);

/* Queues the first pass over x, (rows, cols) of the task's numbers; does not wait. The rows may be used again when it returns. */
int eng_cuda_lane_begin(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, pst_err *err);
/* Waits, and sees to the passes that are left: ret_results (rows, task.out bytes). */
int eng_cuda_lane_end(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, void *ret_results, pst_err *err);

#endif
