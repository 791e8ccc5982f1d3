/* owners.h - whose a job is, for streams that show a user its own: what the feed has seen of jobs.state and of first events, else what the store has. A
 * first event is believed where the training id is the digest of its user and request: events may come before the state they belong to. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_OWNERS_H
#define PST_PRODUCERS_GATEWAY_OWNERS_H

#include "producers/gateway/gateway.h"

gw_owners *gw_owners_new(gw_state *g);
void gw_owners_free(gw_owners *o); /* NULL-safe */
void gw_owners_learn(gw_owners *o, const char *training_id, const char *user);
/* NULL: not known (yet). Valid until the next call. */
const char *gw_owners_of(gw_owners *o, const char *training_id);
/* The user that a record of the kind "state" or "event" proves to be its job's; free(), or NULL. @thread any */
char *gw_owner_of_record(const char *kind, const json_t *record);

#endif
