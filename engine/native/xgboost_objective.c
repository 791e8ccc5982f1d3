/* xgboost_objective.c - what XGBoost's objectives do to a sum. Names and transforms of XGBoost 1.0 to 3.2, tried with
 * 1.0.2, 1.2.1, 1.3.3, 1.4.2, 1.5.2, 1.6.2, 1.7.6, 2.1.4 and 3.2.0. What changed between them: sums began at 0 and got the base score last
 * up to 1.2 (a float or two apart), dart's sums are rounded otherwise in 1.3, and categories never seen went the way of missing values in
 * 1.6; here they go as in all versions since. */
#include "engine/native/xgboost_objective.h"

#include <math.h>
#include <string.h>

typedef enum { BASE_AS_IT_IS, BASE_LOGIT, BASE_LOG, BASE_LOGIT_BEFORE_1_3 } base_kind;

static const struct objective {
    const char *name;
    eng_link link;
    base_kind base;
} objectives[] = {
    {"reg:squarederror", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"reg:linear", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"reg:squaredlogerror", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"reg:pseudohubererror", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"reg:absoluteerror", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"reg:quantileerror", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"reg:logistic", ENG_LINK_SIGMOID_F, BASE_LOGIT},
    {"binary:logistic", ENG_LINK_SIGMOID_F, BASE_LOGIT},
    {"binary:logitraw", ENG_LINK_NONE, BASE_LOGIT_BEFORE_1_3},
    {"binary:hinge", ENG_LINK_STEP_F, BASE_AS_IT_IS},
    {"reg:gamma", ENG_LINK_EXP_F, BASE_LOG},
    {"reg:tweedie", ENG_LINK_EXP_F, BASE_LOG},
    {"count:poisson", ENG_LINK_EXP_F, BASE_LOG},
    {"survival:cox", ENG_LINK_EXP_F, BASE_LOG},
    {"survival:aft", ENG_LINK_EXP, BASE_LOG},
    {"multi:softprob", ENG_LINK_SOFTMAX_F, BASE_AS_IT_IS},
    {"multi:softmax", ENG_LINK_ARGMAX_F, BASE_AS_IT_IS},
    {"rank:pairwise", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"rank:ndcg", ENG_LINK_NONE, BASE_AS_IT_IS},
    {"rank:map", ENG_LINK_NONE, BASE_AS_IT_IS},
};

static const struct objective *find(const char *name)
{
    if (!strncmp(name, "gpu:", 4)) /* the same objectives under the names they had on GPUs up to 1.0 */
        name += 4;
    for (size_t i = 0; i < sizeof objectives / sizeof *objectives; i++)
        if (!strcmp(objectives[i].name, name))
            return &objectives[i];
    return NULL;
}

int eng_xgb_link(const char *objective, int32_t n_groups, eng_link *ret, pst_err *err)
{
    const struct objective *o = find(objective);
    if (!o)
        return pst_err_set(
            err, PST_EUNSUPPORTED, PST_CLASS_DATA, "model", 0,
            "the objective \"%.80s\" is not known, so neither is what it makes of the sums; export the model as ONNX, or save it "
            "with a known objective of the same transform (reg:squarederror has none)",
            objective);
    *ret = o->link;
    (void)n_groups;
    return 0;
}

int eng_xgb_margin(const char *objective, bool before_1_3, float base_score, float *ret, pst_err *err)
{
    const struct objective *o = find(objective);
    base_kind base = o ? o->base : BASE_AS_IT_IS;
    if (base == BASE_LOGIT_BEFORE_1_3)
        base = before_1_3 ? BASE_LOGIT : BASE_AS_IT_IS;
    if (base == BASE_LOGIT && !(base_score >= 0 && base_score <= 1))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "model", 0, "base_score is %g; with %s it lies between 0 and 1",
                           (double)base_score, objective);
    if (base == BASE_LOG && !(base_score > 0))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "model", 0, "base_score is %g; with %s it is above 0", (double)base_score,
                           objective);
    const float least = 1e-6f, most = 1.0f - 1e-6f; /* as the library's Logit: seen with 3.2.0 down to 0 and up to 1 */
    switch (base) {
    case BASE_LOGIT:
        base_score = base_score < least ? least : base_score;
        base_score = base_score > most ? most : base_score;
        *ret = -logf(1.0f / base_score - 1.0f);
        break;
    case BASE_LOG: *ret = logf(base_score); break;
    default: *ret = base_score;
    }
    return 0;
}
