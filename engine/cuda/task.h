/* task.h - what a device computes of a plan: a forest's sums, or a network's results. Not installed.
 *
 * Lanes (lane.h) know rows, bytes and this table; what is in an image and which kernel reads it is the kind's. A further kind of model on a device is
 * a further table here, a kernel in the plug-in, and what finds it in a plan (cover.c). @thread the plan's */
#ifndef PST_ENGINE_CUDA_TASK_H
#define PST_ENGINE_CUDA_TASK_H

#include "engine/cuda/net_step.h"
#include "engine/cuda/plugin.h"
#include "engine/ops/tree.h"
#include "engine/plan.h"

/* What the host knows of an image. */
typedef union eng_cuda_head {
    eng_cuda_forest forest;
    eng_cuda_net net;
} eng_cuda_head;

/* All addresses are the device's. x: rows of cols numbers; between: what kind->between asked for, for each row. */
typedef struct eng_cuda_call {
    const eng_cuda_head *head;
    const void *image, *x;
    int64_t rows, cols;
    void *between, *out, *stream;
} eng_cuda_call;

struct eng_cuda_task;
typedef struct eng_cuda_kind {
    const char *shared_as, *launching; /* share.h's word; what an error says */
    /* *ret_image: head's bytes, eng_heap_free() it. PST_EUNSUPPORTED: no kernel covers it, and why. Below a eng_heap_run. */
    int (*pack)(pst_plan *p, const struct eng_cuda_task *t, eng_cuda_head *ret, unsigned char **ret_image, pst_err *err);
    size_t (*bytes)(const eng_cuda_head *h);   /* of the image */
    size_t (*between)(const eng_cuda_head *h); /* of a row, between its kernels */
    int (*launch)(const eng_cuda_plugin *g, const eng_cuda_call *c);
} eng_cuda_kind;

typedef struct eng_cuda_task {
    const eng_cuda_kind *kind;
    const void *of;     /* an eng_forest, or an eng_cuda_net_step: whoever asks for the results (plan.h, device) */
    int64_t cols;       /* the first of a row, which go over */
    size_t number, out; /* bytes: of one of them; of a row's results */
    const void *owner;  /* of the image, with variant (share.h): in the model */
    int64_t variant;
} eng_cuda_task;

eng_cuda_task eng_cuda_task_of_trees(const eng_forest *f);
/* n: put at step `at` of p. */
eng_cuda_task eng_cuda_task_of_net(const pst_plan *p, const eng_cuda_net_step *n, size_t at);
bool eng_cuda_task_is_net(const eng_cuda_task *t);

#endif
