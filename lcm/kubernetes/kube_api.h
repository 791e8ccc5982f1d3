/* kube_api.h - the thin shell around the API server: requests go out one after the other from one thread, a second keeps watch over our pods, and what
 * both hear is taken, in order, by the launcher's poll. Nothing here decides.
 *
 *     kube_api_ask(api, 7, "POST", "/api/v1/…", body)  ──▶ KUBE_ANSWERED, of = 7: status and body, or status 0: no answer came (why)
 *     the watch                                        ──▶ KUBE_LISTED: all there are; then KUBE_CHANGED, KUBE_DELETED, one pod each
 *
 * The watch is resumed where it was cut, by resourceVersion and bookmarks, and begun again from a list where the API server has forgotten that place
 * (410 Gone). A watch that cannot be had is no news of any pod: KUBE_UNREACHABLE tells people alone.
 * @thread one owner. */
#ifndef PST_LCM_KUBE_API_H
#define PST_LCM_KUBE_API_H

#include "lcm/kubernetes/kube_access.h"

typedef struct kube_api kube_api;

typedef enum { KUBE_ANSWERED = 1, KUBE_LISTED, KUBE_CHANGED, KUBE_DELETED, KUBE_UNREACHABLE } kube_heard_type;
typedef struct kube_heard {
    kube_heard_type type;
    int64_t of;   /* ANSWERED */
    long status;  /* 0: none came */
    int wait_s;   /* Retry-After; 0 = not said */
    json_t *json; /* ANSWERED: what came, or NULL; LISTED: an array of pods; CHANGED, DELETED: a pod. Owned */
    char why[300];
} kube_heard;

/* watch: path and selector of the list: "/api/v1/namespaces/jobs/pods?labelSelector=…". access is borrowed. */
int kube_api_open(const kube_access *access, const char *watch, kube_api **ret_api, pst_err *err);
void kube_api_close(kube_api *api);
void kube_api_ask(kube_api *api, int64_t of, const char *method, const char *path, json_t *take_body);
/* false: nothing was heard. Else json_decref(ret->json). */
bool kube_api_hear(kube_api *api, kube_heard *ret);

#endif
