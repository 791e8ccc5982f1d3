/* score_core_priv.h - the inside of the core, shared by score_core.c (a batch's way), score_lanes.c (the models of the variants) and score_kinds.c (what
 * records are written in). A *reader* is one kind for one lane. */
#ifndef PST_INFERENCE_CORE_SCORE_CORE_PRIV_H
#define PST_INFERENCE_CORE_SCORE_CORE_PRIV_H

#include "inference/core/score_core.h"

enum { SCORE_VARIANTS = 3, SCORE_LANES = 2 * SCORE_VARIANTS }; /* of each variant the one in use and the one to follow */

typedef struct score_reader {
    bool made;
    pst_decoder *decoder; /* NULL: refused, why */
    char *why;
    pst_buf sample; /* the first record that this model took, for the models that are to follow */
} score_reader;

typedef struct score_sink { /* one of the two topics of scores */
    int32_t id;             /* of its schema; -1 = not registered */
    char *refused;          /* why it is not; NULL = nobody has said */
    int64_t until_us;       /* so long that is believed */
} score_sink;

struct pst_score_kind {
    int32_t id;
    const pst_schema *schema; /* borrowed; NULL = JSON */
    pst_output *output;       /* made with the first reader that comes about; the same for all */
    score_sink sinks[2];      /* scores, shadow */
    score_reader readers[SCORE_LANES];
    uint64_t batch; /* the last one that had records of it */
};

struct pst_lane {
    pst_variant variant;
    size_t slot; /* of its readers */
    pst_binding *binding;
    const pst_feature *features;
    size_t n_features;
    pst_buf model; /* bytes of the field `model`, but for the backend */
    pst_output_head head;
    bool has_threshold;
    double threshold;
    size_t n_rows;
    uint32_t *row_fate; /* (rows_max) index into the batch */
    uint8_t *missing;   /* (rows_max, n_features) */
    uint8_t *beyond;    /* (rows_max) 1: a finite number of the record is beyond what the model's input holds */
    pst_slice *pass;    /* (rows_max, n_pass) */
    pst_epoch *epoch;
    char device[16]; /* what computed it when that was last looked at */
    int failures; /* rows in a row without a score, over batches. A lane's own: beside a model that works, one that does not is seen all the same */
};

typedef struct score_models {
    pst_lane *now, *next;
} score_models;

struct pst_score_core {
    const pst_pipeline *p;
    pst_score_core_opts opts;
    size_t rows_max, n_pass;
    score_models models[SCORE_VARIANTS];
    pst_score_kind **kinds;
    size_t n_kinds, cap_kinds;
    pst_score_kind *last; /* records come in runs of one kind */
    pst_fate *fates;      /* (rows_max) */
    size_t n;
    uint64_t batch;
    int64_t now_us; /* of begin */
    bool again;     /* the batch is run once more: what fails in it again has failed once */
    pst_buf arena, messages, values;
    pst_err why; /* of the record that enters; clear, but behind a bad one: clearing its text for each would cost more than decoding */
    double canary_percent; /* 0 = off */
    int64_t canary_us;     /* of the last run */
    pst_variant failed;
    pst_windowed *windowed; /* NULL = none */
    pst_decode_windows *windows;
    pst_err shadow_why;      /* why the shadow's model computes nothing; code 0 = it does */
    int64_t shadow_until_us; /* and is not asked before */
};

/* The lane of a variant that has this record; NULL = there is no model. */
pst_lane *score_lane_of(const score_models *m, const pst_record *r);
void score_lanes_free(pst_score_core *c);

pst_score_kind *score_kind_find(pst_score_core *c, int32_t id);
pst_score_kind *score_kind_add(pst_score_core *c, int32_t id, const pst_schema *schema);
/* Made at its first use. */
score_reader *score_kind_reader(const pst_score_core *c, pst_score_kind *k, const pst_lane *l);
/* This slot is another lane's from now on. */
void score_kinds_forget(pst_score_core *c, size_t slot);
void score_kinds_free(pst_score_core *c);

#endif
