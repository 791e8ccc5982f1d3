/* answers.h - where the Trainer's answers to what is about to be asked will stand: jobs.events from its end as it is now. */
#ifndef PST_PRODUCERS_ANSWERS_H
#define PST_PRODUCERS_ANSWERS_H

#include "common/bus/bus.h"
#include "common/platform/client.h"

/* To be opened before anything is published. The error says that nothing was published, where no broker answers. */
int jobs_answers_open(pst_client *c, pst_consumer **ret_consumer, pst_err *err);

#endif
