/* net_pack.c - a drafted network to the image that a device has (net.h): which vectors share room, and whether it runs near or far. */
#include "engine/cuda/net_pack.h"

#include "common/base/err.h"
#include "engine/heap.h"

#include <string.h>

enum { ALIGN = 16 };

float *eng_cuda_net_numbers(eng_cuda_net_draft *d, size_t n, uint64_t *ret_at)
{
    d->numbers = eng_heap_room(d->numbers, d->n_numbers, n, &d->numbers_cap, sizeof *d->numbers);
    *ret_at = d->n_numbers;
    d->n_numbers += n;
    return d->numbers + *ret_at;
}

/* ---- places between ---- */

/* Operations that write a slot, and the last that reads it. */
typedef struct life {
    uint32_t from, to;
} life;

static void reads(life *lives, uint32_t slot, uint32_t op)
{
    PST_ASSERT(slot < ENG_CUDA_NET_SLOTS);
    lives[slot].to = op;
}

static void find_lives(const eng_cuda_net_draft *d, life *lives)
{
    for (uint32_t i = 0; i < d->n_ops; i++) {
        const eng_cuda_net_op *o = &d->ops[i];
        reads(lives, o->from, i);
        for (uint32_t k = o->stage; k < o->stage + o->n_stages; k++)
            if (d->stages[k].operand == ENG_CUDA_NET_VECTOR)
                reads(lives, (uint32_t)d->stages[k].at, i);
        lives[o->to] = (life){i, i};
    }
}

/* The lowest room that no slot has which lives at the same time. An operation's own slots do, so none is written while it is read. */
static uint32_t find_room(const eng_cuda_net_draft *d, const life *lives, uint32_t slot, const bool *placed)
{
    uint32_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < d->n_slots; i++) {
            const eng_cuda_net_slot *s = &d->slots[i];
            if (!placed[i] || s->place != ENG_CUDA_NET_BETWEEN || lives[i].to < lives[slot].from || lives[i].from > lives[slot].to)
                continue;
            if (at < s->at + s->width && s->at < at + d->slots[slot].width) {
                at = s->at + s->width;
                moved = true;
            }
        }
    }
    return at;
}

/* Returns the numbers of a row that are between. */
static uint32_t place_slots(eng_cuda_net_draft *d)
{
    life lives[ENG_CUDA_NET_SLOTS] = {0};
    bool placed[ENG_CUDA_NET_SLOTS] = {false};
    uint32_t width = 0;
    find_lives(d, lives);
    for (uint32_t i = 0; i < d->n_ops; i++) {
        uint32_t slot = d->ops[i].to;
        eng_cuda_net_slot *s = &d->slots[slot];
        if (s->place != ENG_CUDA_NET_BETWEEN)
            continue;
        s->at = find_room(d, lives, slot, placed);
        placed[slot] = true;
        width = s->at + s->width > width ? s->at + s->width : width;
    }
    return width;
}

/* ---- near or far ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t between_bytes(const eng_cuda_net *n, uint32_t rows)
{
    return rounded((size_t)rows * n->n_between * sizeof(float));
}

/* Rows of a tile that fit, 0 = none; and whether the numbers do, too. */
static void choose_near(const eng_cuda_net_draft *d, eng_cuda_net *n)
{
    size_t numbers = rounded(d->n_numbers * sizeof(float));
    n->n_between |= 1; /* rows of a column lie in different banks */
    for (n->rows = ENG_CUDA_NET_ROWS; n->rows >= ENG_CUDA_NET_AT_ONCE && between_bytes(n, n->rows) > ENG_CUDA_NET_SHARED; n->rows /= 2)
        ;
    n->rows = n->rows < ENG_CUDA_NET_AT_ONCE || numbers > ENG_CUDA_NET_NEAR_WEIGHTS ? 0 : n->rows;
    n->keeps = n->rows && numbers && between_bytes(n, n->rows) + numbers <= ENG_CUDA_NET_SHARED;
}

/* What only brings the row nearer is left out: it is read where it is. */
static void leave_out_copies(eng_cuda_net_draft *d)
{
    eng_cuda_net_op *o = &d->ops[0];
    if (!d->n_ops || o->kind != ENG_CUDA_NET_EACH || o->n_stages || o->from != 0 || d->slots[o->to].place != ENG_CUDA_NET_BETWEEN)
        return;
    d->slots[o->to] = d->slots[0];
    memmove(d->ops, d->ops + 1, --d->n_ops * sizeof *d->ops);
}

/* ---- the image ---- */

static uint64_t put(eng_cuda_net *n, eng_cuda_part *part, size_t count, size_t size)
{
    *part = (eng_cuda_part){.at = n->bytes, .n = count};
    n->bytes += rounded(count * size);
    return part->at;
}

static void *write_image(const eng_cuda_net_draft *d, eng_cuda_net *n)
{
    n->bytes = 0;
    uint64_t ops = put(n, &n->ops, d->n_ops, sizeof *d->ops), stages = put(n, &n->stages, d->n_stages, sizeof *d->stages),
             slots = put(n, &n->slots, d->n_slots, sizeof *d->slots), numbers = put(n, &n->numbers, d->n_numbers, sizeof *d->numbers);
    unsigned char *image = eng_heap_alloc(n->bytes + 1);
    memcpy(image + ops, d->ops, d->n_ops * sizeof *d->ops);
    memcpy(image + stages, d->stages, d->n_stages * sizeof *d->stages);
    memcpy(image + slots, d->slots, d->n_slots * sizeof *d->slots);
    if (d->n_numbers)
        memcpy(image + numbers, d->numbers, d->n_numbers * sizeof *d->numbers);
    return image;
}

int eng_cuda_net_pack(eng_cuda_net_draft *d, eng_cuda_net_way way, eng_cuda_net *ret, unsigned char **ret_image, pst_err *err)
{
    PST_ASSERT(d->n_ops && d->ops[0].from == 0 && d->slots[0].place == ENG_CUDA_NET_IN);
    *ret = (eng_cuda_net){.n_in = d->n_in, .n_out = d->n_out, .n_between = place_slots(d)};
    if (way != ENG_CUDA_NET_FAR)
        choose_near(d, ret);
    if (way == ENG_CUDA_NET_NEAR && !ret->rows)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0, "the network does not fit one block's shared memory");
    if (!ret->rows) {
        leave_out_copies(d);
        ret->n_between = place_slots(d);
    }
    ret->n_ops = d->n_ops;
    for (uint32_t i = 0; i < d->n_ops; i++) {
        ret->kind[i] = d->ops[i].kind;
        ret->wide[i] = d->ops[i].n_out;
    }
    *ret_image = write_image(d, ret);
    return 0;
}
