/* evaluation.h - what a classifier's scores are worth: area under the ROC curve, confusion matrix. Pure. @thread any
 *
 * The area is that of Mann and Whitney: the share of pairs of one row of the class and one that is not of it, in which the first has the higher score; a tie counts
 * half. Of two classes it is the second's; of more the mean of each against the rest, over those that some rows have and some have not. Sources: Fawcett (2006), "An
 * introduction to ROC analysis"; Hand and Till (2001) for why a mean over classes. */
#ifndef PST_LEARNER_EVALUATION_H
#define PST_LEARNER_EVALUATION_H

#include <stddef.h>
#include <stdint.h>

/* A row: its class, and the probability of each. */
typedef struct learn_scored {
    const float *scores; /* (n, classes) */
    const float *truth;  /* (n): class numbers */
    size_t n;
    int classes;
} learn_scored;

double learn_auc(const learn_scored *s); /* NaN where nothing can be compared */
void learn_confusion(const learn_scored *s,
                     int64_t *ret_counts); /* (classes, classes): of the class in the row, taken for that in the column */

#endif
