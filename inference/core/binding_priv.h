/* binding_priv.h - the inside of a binding, shared by binding.c (features, inputs, outputs), binding_categories.c and
 * binding_run.c (rows, runs, scores). */
#ifndef PST_INFERENCE_CORE_BINDING_PRIV_H
#define PST_INFERENCE_CORE_BINDING_PRIV_H

#include "inference/core/binding.h"

enum { PST_LABEL_BYTES = 64 };

typedef struct score_text_slot {
    char *text;
    size_t cap;
} score_text_slot;

typedef struct score_binding_input {
    const pst_value_info *info;
    size_t width;           /* per row; 0 = as wide as the features */
    size_t at;              /* first slot in the row */
    size_t elem;            /* bytes of one element */
    char *rows;             /* (rows_max, width); of strings: pointers into texts */
    score_text_slot *texts; /* (rows_max, width); NULL = numbers */
} score_binding_input;

struct pst_binding {
    pst_model *model;
    pst_plan *plan;
    const pst_model_info *info;
    char *name;
    int version;
    pst_score_type type;
    bool has_threshold;
    double threshold;
    pst_feature *features;
    size_t n_features;
    score_binding_input *inputs;
    size_t n_inputs;
    size_t width; /* 0 = free until the first put */
    size_t rows_max;
    size_t fixed_rows; /* > 0: the model's batch dimension */
    char *padded;      /* fixed_rows of the widest input, for the last chunk */
    pst_tensor *tin, *tout;
    double *scratch, *target;
    size_t scratch_width;
    size_t out_width; /* scores per row */
    double *scores;   /* (rows_max, out_width) */
    int8_t *ran_on;   /* (rows_max) N of cuda:N that computed it, -1 = the CPU */
    char (*labels)[PST_LABEL_BYTES];
    bool has_labels;
    int label_out;   /* index of the label output; -1 = none */
    int error_out;   /* index of the output that is the reconstruction error already (penstock.error_output); -1 = none */
    json_t *classes; /* names of the probabilities, in order (penstock.labels); NULL = their numbers */
};

int score_binding_refuse(pst_err *err, const pst_binding *b, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The names of the model's categories become the vocabularies of its features; these are grouped by input. */
int score_binding_categories(pst_binding *b, pst_err *err);
void score_binding_alloc_rows(const pst_binding *b, score_binding_input *in); /* in->width is known */
static inline bool score_binding_is_float(pst_dtype t)
{
    return t == PST_F32 || t == PST_F64 || t == PST_F16 || t == PST_BF16;
}

#endif
