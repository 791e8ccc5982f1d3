/* score_work.h - the core at work on a thread of its own, so that the scorer's thread can serve the group while a model is slow.
 *
 *     score_work_start(w);
 *     while (!score_work_wait(w, 100)) serve the group;
 *     rc = score_work_result(w, &err);
 *
 * From start until wait says true the core, and the records that it took, are the worker's. @thread one owner. */
#ifndef PST_INFERENCE_RUN_SCORE_WORK_H
#define PST_INFERENCE_RUN_SCORE_WORK_H

#include "inference/core/score_core.h"

typedef struct score_work score_work;

score_work *score_work_new(pst_score_core *core);
void score_work_free(score_work *w); /* NULL-safe; waits for what runs */
void score_work_start(score_work *w);
bool score_work_wait(score_work *w, int timeout_ms);
/* As pst_score_core_run. */
int score_work_result(score_work *w, pst_err *err);

/* How long a batch may take to compute: learned from those before it. @thread one owner. */
typedef struct score_pace {
    double us; /* a record; 0 = not known (yet, or since another model came) */
} score_pace;

void score_pace_learn(score_pace *p, size_t records, int64_t us);
int64_t score_pace_expect_us(const score_pace *p, size_t records); /* -1 = not known */
/* So many records at once, most at most, that a batch takes about target_us; few while the pace is not known. */
size_t score_pace_batch(const score_pace *p, size_t most, int64_t target_us);

#endif
