/* layout.h - where the fields of one kind of record (one writer schema, or JSON) land in a row of the model's input, and the arithmetic on
 * the way: words, missing values, x · scale + offset, clip.
 *
 * A feature fills one slot, a one-hot feature one a word, a feature whose field is an array as many as the array has elements. How many, the
 * pipeline file may say (slots:), or it follows: what the model's width leaves is the length of the one array there is.
 *
 * Numbers come in feature order, all slots dense; rows go out in the order of the model's inputs. Immutable after new: @thread any. */
#ifndef PST_INFERENCE_CORE_LAYOUT_H
#define PST_INFERENCE_CORE_LAYOUT_H

#include "inference/pipeline/pipeline.h"

typedef struct score_layout score_layout;

/* features: n, borrowed for the life of the layout; arrays[i]: the field is an array in these records; width: slots in all, 0 = whatever it
 * comes to. PST_EINVAL/DATA when it does not come out even. */
int score_layout_new(const pst_feature *features, size_t n, const bool *arrays, size_t width, score_layout **ret_layout, pst_err *err);
void score_layout_free(score_layout *l);
size_t score_layout_width(const score_layout *l);
uint32_t score_layout_slots(const score_layout *l, size_t feature);
size_t score_layout_start(const score_layout *l, size_t feature); /* first slot */

/* One record → one row of width doubles (numbers may be row itself). missing[i]: 1 = the field is null or absent; on return also 1 where a
 * NaN or a word that is not there was taken as missing, or as zeros. texts[i]: of features with words; data NULL = the field is a number, which
 * stands in the feature's first slot.
 * PST_EINVAL/DATA: a missing value whose policy is reject, naming the field; ret_reason is the dead letter's then. No heap use. */
int score_layout_row(const score_layout *l, const double *numbers, uint8_t *missing, const pst_slice *texts, double *ret_row,
                     const char **ret_reason, pst_err *err);
/* The reason of records that are kept out for a NaN, an infinite number, or one beyond the model's: a feature (MAP) or a score (INFER). */
#define PST_REASON_NON_FINITE "non-finite"

#endif
