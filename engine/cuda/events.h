/* events.h - what a driver tells of its devices by itself: Xid errors, and memory errors that were corrected or could not be (ECC). Not installed.
 *
 *     pst_cuda_events_begin();                                  // once a process, by whoever computes on a device; cheap when there is none
 *     while (pst_cuda_events_next(&e)) log(e.number, pst_cuda_event_word(e.kind), e.code, pst_cuda_event_says(&e));
 *
 * They are told by NVML, which may hang with its driver: a thread of its own waits there, and whoever asks for them never does. An event is no
 * verdict: another process's fault is an Xid, too. Whether a device computes for us is what its own calls say (context.h). @thread any */
#ifndef PST_ENGINE_CUDA_EVENTS_H
#define PST_ENGINE_CUDA_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { PST_CUDA_XID, PST_CUDA_ECC_CORRECTED, PST_CUDA_ECC_UNCORRECTED, PST_CUDA_EVENT_KINDS } pst_cuda_event_kind;

typedef struct pst_cuda_event {
    int number; /* of cuda:N; -1 = a device that CUDA does not show us */
    pst_cuda_event_kind kind;
    uint64_t code; /* of an Xid */
} pst_cuda_event;

void pst_cuda_events_begin(void);
/* The oldest that nobody has taken. */
bool pst_cuda_events_next(pst_cuda_event *ret);
const char *pst_cuda_event_word(pst_cuda_event_kind kind); /* "xid", "ecc_corrected", "ecc_uncorrected" */
const char *pst_cuda_event_says(const pst_cuda_event *e);  /* what it is about, in a few words */

struct eng_cuda_driver;
typedef struct eng_cuda_watch eng_cuda_watch;
/* Registers for every device of this driver. NULL: it has no NVML that tells events, or no device takes part. */
eng_cuda_watch *eng_cuda_watch_open(const struct eng_cuda_driver *driver);
/* Waits for one event: 1 and *ret, 0 = there was none in that time, < 0 = the driver tells nothing any more. */
int eng_cuda_watch_next(eng_cuda_watch *w, unsigned ms, pst_cuda_event *ret);
void eng_cuda_watch_close(eng_cuda_watch *w);

#endif
