/* lane.h - forests on a device: the image that all plans of a model use, and the lane of each plan, a stream with its buffers. Not installed.
 *
 *     rows ─ gathered ─> pinned ─ one copy ─> device ─ kernel ─> device ─ one copy ─> pinned ─> sums
 *
 * Buffers are made once and have fixed addresses; they hold rows_max rows, more go in several passes. Two lanes overlap one's copies with
 * the other's kernel: two plans of one model in rotation. @thread the plan's; images: any */
#ifndef PST_ENGINE_CUDA_LANE_H
#define PST_ENGINE_CUDA_LANE_H

#include "engine/cuda/context.h"
#include "engine/ops/tree.h"
#include "engine/plan.h"

/* A forest on a device; of the model (share.h). */
typedef struct eng_cuda_image {
    eng_cuda_context *on;
    eng_cuda_forest head;
    eng_cuda_address at;
} eng_cuda_image;

typedef struct eng_cuda_lane {
    eng_cuda_context *on;
    const eng_cuda_image *image;
    const eng_forest *f;
    void *stream;
    unsigned char *pinned;   /* rows, then sums from sums_at on; on the device likewise */
    eng_cuda_address device; /* of bytes bytes */
    size_t sums_at, bytes;
    int64_t rows_max, cols;   /* cols: what the forest reads of a row */
    int64_t begun, under_way; /* of the run: rows given to the device so far, and those of them that are not back */
    eng_watch *watch;
} eng_cuda_lane;

/* f packed and copied to `on`, once for all plans of p's model. PST_EUNSUPPORTED: the kernel does not cover it. Below a eng_heap_run. */
int eng_cuda_image_of(pst_plan *p, eng_cuda_lane *via, const eng_forest *f, pst_err *err);
/* Stream and buffers for l->f on l->on, whatever of them there is goes by eng_cuda_lane_done. No allocation of the engine's. */
int eng_cuda_lane_stream(eng_cuda_lane *l, pst_err *err);
int eng_cuda_lane_buffers(eng_cuda_lane *l, pst_err *err);
void eng_cuda_lane_done(void *lane);

/* Queues the first pass over x, (rows, cols) of the forest's type; does not wait. The rows may be used again when it returns. */
int eng_cuda_lane_begin(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, pst_err *err);
/* Waits, and sees to the passes that are left: ret_sums (rows, n_targets). */
int eng_cuda_lane_end(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, double *ret_sums, pst_err *err);

#endif
