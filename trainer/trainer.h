/* trainer.h - the service `penstock trainer`: consumes jobs.requests and jobs.reports, decides (trainer_core.h), publishes jobs.events,
 * jobs.state and jobs.commands, all in one transaction per round, and keeps the document store equal to the topics. */
#ifndef PST_TRAINER_H
#define PST_TRAINER_H

#include "common/base/opt.h"

extern const pst_verb pst_trainer_verb;

#endif
