/* rnn.h - what RNN, GRU and LSTM nodes say, shared by the plain walk (rnn.c) and the vector one (rnn_fast.c). @thread the plan's */
#ifndef PST_ENGINE_OPS_RNN_H
#define PST_ENGINE_OPS_RNN_H

#include "engine/cpu/gemm.h"
#include "engine/plan.h"

typedef enum { ENG_RNN_RELU, ENG_RNN_TANH, ENG_RNN_SIGMOID, ENG_RNN_OTHER } eng_rnn_act_kind; /* the first of rnn.c's list */

typedef struct eng_rnn_act {
    int kind;
    float alpha, beta;
} eng_rnn_act;

/* Shapes: x (T,B,in), or (B,T,in) when batch_first; w (dirs, gates·hidden, in); r (dirs, gates·hidden, hidden); b (dirs, 2·gates·hidden). */
typedef struct eng_rnn {
    int gates; /* 1 RNN, 3 GRU (z r h), 4 LSTM (i o f c) */
    int64_t seq, batch, in, hidden, dirs;
    bool batch_first, reverse; /* reverse: the only direction walks backwards */
    const float *x, *w, *r, *b, *h0, *c0, *peep;
    const int32_t *lengths;
    eng_rnn_act acts[6];
    float clip;
    bool linear_before_reset, input_forget;
} eng_rnn;

/* The weights of one direction as right-hand sides: wᵀ, rᵀ, and for GRUs the first two gates and the last of rᵀ apart; for LSTMs columns
 * and signs as the lstm kernels have them, each panel of rᵀ behind that of wᵀ. */
typedef struct eng_rnn_packed {
    eng_packed w, r, last;
    const void *of_w, *of_r;
} eng_rnn_packed;

typedef struct eng_rnn_state {
    const eng_cpu_kernels *kernels;
    eng_rnn_packed dir[2];
} eng_rnn_state;

/* Packs constant weights; plans of a model share them. */
int eng_rnn_fast_prepare(eng_op_ctx *c, int gates);
/* y (T,dirs,B,hidden) or (B,T,dirs,hidden), zeroed when there are lengths; yh, yc may be NULL. 0, an error, or 1 = unusual cell: nothing
 * was done. */
int eng_rnn_fast(eng_op_ctx *c, const eng_rnn *s, float *y, float *yh, float *yc);

/* What a node says, all of it held against the shapes. bytes: W and R are those of DynamicQuantizeLSTM, (dirs, in, gates·hidden) and
 * (dirs, hidden, gates·hidden), which s->w and s->r do not show. 0 or an error. */
int eng_rnn_read(eng_op_ctx *c, int gates, bool bytes, eng_rnn *s);
/* The usual cell: its activations, and neither peepholes nor clipping nor coupled gates. */
bool eng_rnn_usual(const eng_rnn *s);
/* One sequence element of one row. xg: input side of all gates (bias W in it); hg: recurrent side with bias R; h, cc are updated; rh: a
 * GRU's last gate. */
void eng_rnn_cell(const eng_rnn *s, int64_t dir, const float *xg, const float *hg, float *h, float *cc, const float *rh);

/* Steps of a sequence that a row takes part in, 0 to s->seq. */
static inline int64_t eng_rnn_length(const eng_rnn *s, int64_t b)
{
    int64_t len = s->lengths ? s->lengths[b] : s->seq;
    return len < 0 ? 0 : len > s->seq ? s->seq : len;
}

/* lstm_fast.c: one direction's weights into room of eng_lstm_floats() floats; the walk of all directions, as eng_rnn_fast(). */
size_t eng_lstm_floats(const eng_cpu_kernels *kn, int64_t hidden, int64_t in);
void eng_lstm_pack(const eng_cpu_kernels *kn, int64_t hidden, int64_t in, const float *w, const float *r, float *room, eng_rnn_packed *ret);
int eng_lstm_fast(eng_op_ctx *c, const eng_rnn *s, float *y, float *yh, float *yc);

#endif
