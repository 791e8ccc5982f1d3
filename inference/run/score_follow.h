/* score_follow.h - a thread that follows penstock.models and makes the models of a pipeline ready: resolves aliases, fetches, loads and binds
 * in the background, and hands finished bindings to the scorer, which swaps between two batches.
 *
 * A model that cannot be loaded leaves the one in use where it is. Outages (broker, registry, object store) are waited out.
 * Threads: start, take, why, stop from the scorer's thread; everything else happens on the follower's own. */
#ifndef PST_INFERENCE_RUN_SCORE_FOLLOW_H
#define PST_INFERENCE_RUN_SCORE_FOLLOW_H

#include "common/base/settings.h"
#include "inference/core/score_core.h"
#include "inference/run/score_stats.h"

typedef struct score_follow score_follow;

typedef struct score_model_news {
    pst_variant variant;
    pst_binding *binding; /* owned by the taker */
    pst_effective *from;  /* of this pipeline's input topics; none = at once */
    size_t n_from;
    bool kept; /* not what the alias names, which is of no use here, but the last one that was */
} score_model_news;

int score_follow_start(const pst_settings *settings, const pst_pipeline *p, score_stats *stats, score_follow **ret_follow, pst_err *err);
/* The next finished model, in order; false if there is none. */
bool score_follow_take(score_follow *f, score_model_news *ret_news);
void score_model_news_done(score_model_news *n); /* also frees the binding if it is still there */
/* One sentence on what the primary model waits for; "" when it waits for nothing. */
void score_follow_why(score_follow *f, char *ret_text, size_t size);
/* The canary of this spec is stopped, by whichever worker, and why. */
bool score_follow_canary_stopped(score_follow *f, char *ret_why, size_t size);
void score_follow_stop(score_follow *f); /* joins; NULL-safe */

#endif
