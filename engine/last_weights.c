/* last_weights.c - weights in the order of the kernels for channels last (cpu/last.h), shared by the plans of a model. */
#include "engine/last.h"

#include "engine/cpu/gemm.h"
#include "engine/share.h"

#include <string.h>

int64_t eng_last_ld(const eng_cpu_kernels *kn, int64_t channels, bool goes_in)
{
    return goes_in && channels < kn->lanes ? channels : (channels + kn->lanes - 1) / kn->lanes * kn->lanes;
}

typedef struct packing {
    const eng_cpu_kernels *kn;
    const eng_last_step *s;
} packing;

static float *room(eng_zone *zone, int64_t n)
{
    return eng_zone_alloc(zone, (size_t)n * sizeof(float)); /* zeroed */
}

/* As the kernels read them: a number a channel; a filter of single channels by places; else panels of nr filters, places before channels within. */
static int pack(void *arg, eng_zone *zone, void *made)
{
    const packing *g = arg;
    const eng_last_step *s = g->s;
    const float *from = s->w->data;
    eng_last_weights *to = made;
    if (s->kind == ENG_LAST_ADD || s->kind == ENG_LAST_MUL) {
        bool one = eng_count(s->w) == 1;
        float *w = room(zone, eng_last_ld(g->kn, s->channels, false));
        for (int64_t i = 0; i < s->channels; i++)
            w[i] = from[one ? 0 : i];
        to->w = w;
        return 0;
    }
    int64_t m = s->w->dims[0], c = s->w->dims[1], places = s->w->dims[2] * s->w->dims[3], nr = g->kn->nr, wide = (m + nr - 1) / nr * nr;
    float *bias = room(zone, wide);
    if (s->bias)
        memcpy(bias, s->bias->data, (size_t)m * sizeof *bias);
    to->bias = bias;
    if (s->kind == ENG_LAST_DEPTH) {
        int64_t ld = eng_last_ld(g->kn, m, false);
        float *w = room(zone, places * ld);
        for (int64_t i = 0; i < m; i++)
            for (int64_t k = 0; k < places; k++)
                w[k * ld + i] = from[i * places + k];
        to->w = w;
        return 0;
    }
    float *w = room(zone, wide * c * places);
    for (int64_t i = 0; i < m; i++)
        for (int64_t ch = 0; ch < c; ch++)
            for (int64_t k = 0; k < places; k++)
                w[(i / nr * c * places + k * c + ch) * nr + i % nr] = from[(i * c + ch) * places + k];
    to->w = w;
    return 0;
}

int eng_last_pack(pst_plan *p, eng_last_step *s)
{
    packing g = {.kn = eng_kernels_pick(p->isa), .s = s};
    const void *made = NULL;
    if (!s->w)
        return 0;
    if (!s->of_model) {
        void *own = eng_zone_alloc(&p->zone, sizeof(eng_last_weights));
        s->packed = own;
        return pack(&g, &p->zone, own);
    }
    const eng_share_key key = {.what = "channels last", .of = s->w->data, .by = &p->m->values[s->made], .variant = s->kind};
    int rc = eng_share(p, &key, sizeof(eng_last_weights), pack, &g, &made);
    s->packed = made;
    return rc;
}
