/* after.h - `?after=TOPIC:PARTITION:OFFSET`: answers a reading request once what it reads shows what became of that event.
 *
 *     static void list(void *arg, pst_http_req *req) { if (!gw_after(arg, req, list_now)) list_now(arg, req); }
 *
 * Waits 8 s at most, then 504. */
#ifndef PST_PRODUCERS_GATEWAY_AFTER_H
#define PST_PRODUCERS_GATEWAY_AFTER_H

#include "producers/gateway/gateway.h"

#define GW_AFTER                                                                                                            \
    {                                                                                                                       \
        "after", "query", GW_JSON({"type" : "string", "maxLength" : 300}),                                                  \
            "TOPIC:PARTITION:OFFSET of an answer to a submission: answered once its effect is seen, 8 s at most (else 504)" \
    }
#define GW_AFTER_FAILED                                                        \
    {                                                                          \
        504, "what became of the event of `after` is not seen yet", GW_PROBLEM \
    }

/* A submission was published there. @thread loop */
void gw_after_note(gw_state *g, int32_t partition, int64_t offset, const char *training_id, const char *user);
/* Whose is the job that was submitted here a moment ago? NULL: none was; "": of a name longer than users' are. @thread loop */
const char *gw_after_owner(const gw_state *g, const char *training_id);
/* Was this job submitted here a moment ago? @thread loop */
bool gw_after_knows(const gw_state *g, const char *training_id);
/* False: the request names none. Else req is taken: `then` is its handler once the event's effect is seen. @thread loop */
bool gw_after(gw_state *g, pst_http_req *req, pst_http_handler then);

#endif
