/* kube_access.h - where the API server is and who we are there: a kubeconfig file, single options, or the service account of the pod that we run in.
 * What a kubeconfig may hold and we do not do (programs that fetch a token, an unverified certificate) is refused with its name.
 *
 *     kube_access *a;
 *     kube_access_open(opts, state_dir, &a, &err);
 *     kube_call(a, fetch, "GET", "/api/v1/nodes", NULL, &(kube_take){…}, &answer);
 *
 * @thread any; nothing changes once it is open. */
#ifndef PST_LCM_KUBE_ACCESS_H
#define PST_LCM_KUBE_ACCESS_H

#include "common/http/fetch.h"
#include "lcm/kubernetes/kube_opts.h"

#include <jansson.h>

typedef struct kube_access {
    char *server;     /* "https://10.0.0.1:443", no slash at its end */
    char *ca_file;    /* NULL: the system's */
    char *token_file; /* read anew for each request: it is replaced while we run. NULL: token */
    char *token;      /* NULL: none */
    char *cert_file, *key_file;
    char *namespace_;
} kube_access;

/* state_dir: certificates that stand in a kubeconfig are put there, as files, for libcurl reads files. */
int kube_access_open(const kube_opts *opts, const char *state_dir, kube_access **ret_access, pst_err *err);
void kube_access_close(kube_access *a);

typedef struct kube_call_as {
    const char *body;                                      /* JSON; NULL = none */
    bool (*take)(void *arg, const void *data, size_t len); /* of the answer's body */
    void (*header)(void *arg, const char *name, const char *value);
    bool (*stopped)(void *arg);
    void *arg;
    int timeout_ms, stall_s; /* as pst_fetch_request */
} kube_call_as;
void kube_call(const kube_access *a, pst_fetch *f, const char *method, const char *path, const kube_call_as *as,
               pst_fetch_answer *ret_answer);
/* GET of an object, as a whole. ret_json: of any answer that is JSON, else NULL. */
void kube_get(const kube_access *a, pst_fetch *f, const char *path, pst_fetch_answer *ret_answer, json_t **ret_json);

#endif
