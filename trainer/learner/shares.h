/* shares.h - the records of a job shared out among its ranks: which of them this one reads, and what all must know before and after. Every rank calls
 * this. @thread any, one owner. */
#ifndef PST_LEARNER_SHARES_H
#define PST_LEARNER_SHARES_H

#include "trainer/learner/checkpoint.h"
#include "trainer/learner/sources.h"

/* Reads this rank's share into d (whose pool it is) of topics, or, with data_dir, of CSV files: rows by their number. last: the checkpoint to go on
 * from, or NULL. Afterwards d->ranges are those of all ranks, and all have the same features. As learn_data_read_topics() and _csv(). */
int learn_shares_read_topics(learn_data *d, pst_learn_settings *s, pst_client *client, const pst_data_store *stores, size_t n_stores,
                             const learn_checkpoint *last, const learn_source_hooks *hooks, pst_err *err);
int learn_shares_read_csv(learn_data *d, pst_learn_settings *s, const char *data_dir, const learn_source_hooks *hooks, pst_err *err);

#endif
