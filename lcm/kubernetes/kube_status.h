/* kube_status.h - what a pod, as the API server tells of it, means for us. Pure.
 *
 * OVER is what the kubelet has reported (phase Succeeded or Failed: every container has ended) and nothing less: a pod whose node does not answer
 * keeps its phase, and so is not over. @thread any. */
#ifndef PST_LCM_KUBE_STATUS_H
#define PST_LCM_KUBE_STATUS_H

#include "common/base/err.h"
#include "lcm/kubernetes/kube_pod.h"

typedef enum { KUBE_POD_WAITS = 1, KUBE_POD_RUNS, KUBE_POD_OVER } kube_phase;

typedef struct kube_pod {
    char name[KUBE_NAME_MAX], uid[64];
    char secret[KUBE_SECRET_MAX]; /* that it mounts */
    char nonce_sha256[65];
    char folder_id[33]; /* "" = not said */
    pst_process_id id;  /* training_id "" = its notes are not those of one of ours */
    kube_phase phase;
    bool deleting; /* it is being deleted, by whomever */
    char code[8];  /* WAITS: S100 no room, S103 its image, S104 anything else; OVER: S104 where something besides its command ended it */
    char why[400]; /* why it waits, or how it ended; "" = as it should */
} kube_pod;

/* false: no pod of ours. */
bool kube_pod_read(const json_t *pod, kube_pod *ret);
/* A refusal's own words (a Status object), or the status alone. */
void kube_refusal(long status, const json_t *body, char *ret, size_t size);

#endif
