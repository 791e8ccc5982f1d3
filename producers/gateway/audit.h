/* audit.h - what users change, and what they are refused, as events on the topic `audit` (AuditEvent.avsc). Recorded is every request that may change something,
 * whatever came of it, but what measures (MLflow's log-…, inference) and what only looks, though by POST; of those that look, each that was denied although it showed a
 * credential. Never what could hold a secret: bodies, fields, queries, cookies, the page's place.
 *
 * An event is sent when its answer is: a gateway that is killed between the two loses it, and while Kafka is away as many as fit are kept (penstock_gateway_audit_lost_total
 * and a line in the log count the others). Refusals without a known user are recorded 10 a second at most; `missed` tells how many were not. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_AUDIT_H
#define PST_PRODUCERS_GATEWAY_AUDIT_H

#include "producers/gateway/gateway.h"

typedef struct gw_audit gw_audit;

/* Looks at all answers of g->http from here on. */
int gw_audit_start(gw_state *g, gw_audit **ret_audit, pst_err *err);
/* Waits a moment for what is under way. NULL-safe */
void gw_audit_free(gw_audit *a);

#endif
