/* detect.c - NonMaxSuppression: per image and class, boxes by falling score, each kept unless it overlaps a kept one too much. */
#include "engine/ops/kernels.h"

#include <stdlib.h>
#include <string.h>

typedef struct cand {
    float score;
    int64_t box;
} cand;

static int by_score(const void *va, const void *vb)
{
    const cand *a = va, *b = vb;
    return a->score > b->score ? -1 : a->score < b->score ? 1 : (a->box > b->box) - (a->box < b->box);
}

/* Corners, in order, whatever the encoding: y1 x1 y2 x2 or centre and size. */
static void corners(const float *b, bool center, float *r)
{
    if (center) {
        r[0] = b[1] - b[3] / 2;
        r[1] = b[0] - b[2] / 2;
        r[2] = b[1] + b[3] / 2;
        r[3] = b[0] + b[2] / 2;
        return;
    }
    r[0] = b[0] < b[2] ? b[0] : b[2];
    r[1] = b[1] < b[3] ? b[1] : b[3];
    r[2] = b[0] < b[2] ? b[2] : b[0];
    r[3] = b[1] < b[3] ? b[3] : b[1];
}

static float overlap(const float *a, const float *b)
{
    float y1 = a[0] > b[0] ? a[0] : b[0], x1 = a[1] > b[1] ? a[1] : b[1], y2 = a[2] < b[2] ? a[2] : b[2], x2 = a[3] < b[3] ? a[3] : b[3];
    if (y2 <= y1 || x2 <= x1)
        return 0;
    float both = (y2 - y1) * (x2 - x1), all = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
    return all > 0 ? both / all : 0;
}

/* Greedy, per image and class: boxes in the order of falling scores, and one that overlaps a kept box by more than the threshold is
 * dropped. Rows of the result are (image, class, box). */
int eng_op_nms(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    double most = 0, iou = 0, floor_score = 0;
    if (rc < 0 || (eng_in(c, 2) && (rc = eng_in_scalar(c, 2, &most)) < 0) || (eng_in(c, 3) && (rc = eng_in_scalar(c, 3, &iou)) < 0) ||
        (eng_in(c, 4) && (rc = eng_in_scalar(c, 4, &floor_score)) < 0))
        return rc;
    pst_tensor b = *eng_in(c, 0), s = *eng_in(c, 1);
    bool center = eng_attr_int(c->node, "center_point_box", 0), has_floor = eng_in(c, 4);
    if (b.dtype != PST_F32 || s.dtype != PST_F32 || b.rank != 3 || s.rank != 3 || b.dims[2] != 4 || b.dims[0] != s.dims[0] ||
        b.dims[1] != s.dims[2])
        return eng_op_fail(c, PST_EINVAL, "boxes (N, B, 4) and scores (N, C, B) are needed");
    int64_t nb = b.dims[1], classes = s.dims[1], limit = 0, found = 0, room = 0;
    if (most >= 0)
        limit = most > (double)nb ? nb : (int64_t)most;
    cand *list = eng_op_scratch(c, (size_t)nb * sizeof *list);
    float *kept = eng_op_scratch(c, (size_t)nb * 4 * sizeof *kept);
    if (__builtin_mul_overflow(b.dims[0] * classes, limit * 3, &room) || (uint64_t)room > c->plan->m->limits.tensor_bytes_max / 8)
        return eng_op_fail(c, PST_ELIMIT, "too many results");
    int64_t *all = eng_op_scratch(c, (size_t)room * 8 + 8);
    if (!list || !kept || !all)
        return PST_ELIMIT;
    for (int64_t g = 0; g < b.dims[0] * classes; g++) {
        const float *score = (const float *)s.data + g * nb, *box = (const float *)b.data + g / classes * nb * 4;
        int64_t n = 0, k = 0;
        for (int64_t i = 0; i < nb; i++)
            if (!has_floor || (double)score[i] > floor_score)
                list[n++] = (cand){score[i], i};
        qsort(list, (size_t)n, sizeof *list, by_score);
        for (int64_t i = 0; i < n && k < limit; i++) {
            float r[4];
            bool drop = false;
            corners(box + list[i].box * 4, center, r);
            for (int64_t q = 0; q < k && !drop; q++)
                drop = (double)overlap(r, kept + q * 4) > iou;
            if (drop)
                continue;
            memcpy(kept + k++ * 4, r, sizeof r);
            all[found * 3] = g / classes;
            all[found * 3 + 1] = g % classes;
            all[found++ * 3 + 2] = list[i].box;
        }
    }
    int64_t *o = eng_out(c, 0, PST_I64, 2, (int64_t[]){found, 3});
    if (!o)
        return PST_ELIMIT;
    memcpy(o, all, (size_t)(found * 3) * 8);
    return 0;
}
