/* sink_letters.h - records that a sink's target refuses for good go to a dead-letter topic, with their bytes, headers and the reason, before their offsets
 * are committed. @thread one. */
#ifndef PST_CONSUMERS_SINK_LETTERS_H
#define PST_CONSUMERS_SINK_LETTERS_H

#include "common/bus/bus.h"
#include "common/platform/client.h"

typedef struct sink_letters sink_letters;

/* topic: for all; NULL = <topic>.dlq of each record's topic; "none" = said on stderr and counted, nothing more. Connects to nothing. */
sink_letters *sink_letters_new(pst_client *client, const char *component, const char *topic);
void sink_letters_free(sink_letters *l);
/* Makes the topic where it is missing. The record is copied. */
int sink_letters_send(sink_letters *l, const pst_record *r, const char *reason, const char *message, pst_err *err);
/* All that were sent are acknowledged. PST_CLASS_RETRY: not yet; those that failed have to be sent again. */
int sink_letters_settle(sink_letters *l, pst_err *err);
int64_t sink_letters_count(const sink_letters *l);

#endif
