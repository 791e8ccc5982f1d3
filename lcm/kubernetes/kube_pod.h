/* kube_pod.h - what a process is in Kubernetes: names, labels and the bodies that are posted for it. Pure.
 *
 *     pod     <training id>-g<generation>-<process>     one process, for ever: restartPolicy Never
 *       init container `install`   our image: leaves the supervisor, its libraries and loader in the volume `penstock`, its settings in `settings`
 *       container `learner`        the framework's image: the supervisor, started by its own loader, and below it the user's command
 *     secret  <pod>-<8 hex digits>                      those settings, owned by the pod: it goes when the pod goes
 *
 * A bare pod and no Job: a Job replaces pods by rules of its own, and who decides about another attempt is the Trainer. The pod's name is all that is
 * needed to find it again, and creating it twice is refused by the API server. The secret has a name of its own each time, because one of a
 * deleted pod may live on for a while. The learner's container does not mount it: the supervisor takes the copy and removes it before the
 * command starts.
 *
 * The state folder is a volume that the LCM and all pods share; a pod sees its own job's folder of it, at the same path. @thread any. */
#ifndef PST_LCM_KUBE_POD_H
#define PST_LCM_KUBE_POD_H

#include "common/base/err.h"
#include "common/objects/rundir.h"
#include "lcm/kubernetes/kube_opts.h"
#include "schemas/manifest.h"

enum { KUBE_NAME_MAX = 64, KUBE_SECRET_MAX = KUBE_NAME_MAX + 12 }; /* a pod's name is its host name: 63 characters */

#define KUBE_LABEL_NODE     "penstock/node" /* whose LCM it belongs to: the selector of lists and watches */
#define KUBE_LABEL_TRAINING "penstock/training-id"
#define KUBE_NOTE_PROCESS   "penstock/process" /* "<training id>/<generation>/<process>", of any length */
#define KUBE_NOTE_NONCE     "penstock/nonce-sha256"
#define KUBE_NOTE_FOLDER    "penstock/state-folder" /* its LCM's: another LCM may have the same node's name */

typedef struct kube_pod_conf {
    const kube_opts *opts;
    const char *namespace_, *site, *node, *state_dir;
    const char *folder_id; /* of the state folder and site, for as long as they are there */
    const char *objects;   /* the folder of the object store; NULL: it is no folder */
    int64_t uid, gid;      /* whose the shared folder is; 0: root's, as whom nothing else is asked for */
} kube_pod_conf;

typedef struct kube_pod_of {
    const pst_process_id *id;
    const pst_manifest *manifest;
    const char *nonce_sha256, *secret;
    int gpus, grace_ms;
} kube_pod_of;

void kube_pod_name(const pst_process_id *id, char ret_name[KUBE_NAME_MAX]);
/* A label's value of any text: as it is where it may be one, else its beginning and a digest. 64 bytes. */
void kube_label(const char *text, char ret_value[64]);
/* The image of the learner's container: framework.image, --images, FfDL's table. PST_EINVAL/DATA: there is none, or it is no image's name. free() */
int kube_pod_image(const kube_pod_conf *conf, const pst_manifest *m, char **ret_image, pst_err *err);
/* PST_EINVAL/DATA: no pod can be made of it. */
int kube_pod_json(const kube_pod_conf *conf, const kube_pod_of *of, json_t **ret_pod, pst_err *err);
/* settings: "NAME=value" strings, NULL-terminated. */
json_t *kube_secret_json(const kube_pod_conf *conf, const pst_process_id *id, const char *secret, const char *pod_uid,
                         const char *const *settings, const char *nonce);

#endif
