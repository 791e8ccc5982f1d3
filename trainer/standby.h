/* standby.h - which of several Trainers is active. Two locks decide: a file lock in the state folder (two on one computer), and the one partition
 * of the workers topic in the group <prefix>trainer.active (any number of computers). Reading that partition is also how the Trainer hears the
 * LCMs' heartbeats. Should both locks ever fail, the transactional id still lets only the newer one commit.
 * @thread the service's main thread. */
#ifndef PST_TRAINER_STANDBY_H
#define PST_TRAINER_STANDBY_H

#include "common/bus/bus.h"
#include "common/platform/client.h"

typedef struct trainer_standby {
    pst_client *client;  /* borrowed */
    pst_consumer *beats; /* workers: heartbeats, and who is active; NULL before open */
    bool grouped;        /* the lock is a group's (not on the embedded broker) */
} trainer_standby;

/* Waits until this process alone uses the state folder; the lock ends with the process. PST_ESTOPPED. */
int trainer_standby_lock_folder(const pst_client *client, pst_err *err);
/* client and grouped are set. Waits through outages. */
int trainer_standby_open(trainer_standby *s, pst_err *err);
void trainer_standby_close(trainer_standby *s);
bool trainer_standby_is_active(const trainer_standby *s);
/* A fenced consumer, or one that lost its place, is replaced, after a pause. 0 also when asked to stop. */
int trainer_standby_reopen(trainer_standby *s, pst_err *err);

#endif
