/* takes.h - what a topic says it does not take, by its settings: records without a key (cleanup.policy), times too far away (message.timestamp.*).
 * Read from the broker once something was refused, and believed for a minute: the settings may be mended meanwhile. @thread one owner. */
#ifndef PST_INFERENCE_STATE_TAKES_H
#define PST_INFERENCE_STATE_TAKES_H

#include "common/bus/bus.h"

typedef struct pst_takes {
    int64_t asked_us; /* monotonic; 0 = never */
    bool keys_only;
    int64_t before_ms, after_ms; /* from the broker's now; INT64_MAX = any */
} pst_takes;

typedef enum { PST_TAKES_IT, PST_TAKES_NO_KEYLESS, PST_TAKES_NO_SUCH_TIME } pst_takes_verdict;

/* The settings to be read, NULL-terminated; their values in this order, NULL = the broker does not know it. */
extern const char *const pst_takes_settings[];
void pst_takes_learn(pst_takes *x, const char *const *values, int64_t now_us);
/* Something was refused: is it time to read them (again)? */
bool pst_takes_is_old(const pst_takes *x, int64_t now_us);
/* What is certainly refused; where clocks may differ, the broker decides. now_us: as learnt; now_ms: of the day. */
pst_takes_verdict pst_takes_says(const pst_takes *x, const pst_record *r, int64_t now_us, int64_t now_ms);

#endif
