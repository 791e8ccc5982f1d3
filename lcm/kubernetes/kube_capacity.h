/* kube_capacity.h - what the cluster offers to jobs: what the operator says (--offer-cpus, --offer-memory, --offer-gpus), else the sum of what its nodes can
 * allocate. Where the single pod fits is the cluster's scheduler's business. @thread any. */
#ifndef PST_LCM_KUBE_CAPACITY_H
#define PST_LCM_KUBE_CAPACITY_H

#include "lcm/kubernetes/kube_access.h"
#include "lcm/launcher.h"

/* "500m", "4", "2k", "16Gi", "1e3": a quantity of Kubernetes as a number. false: it is none. */
bool kube_quantity(const char *text, double *ret);
/* "nvidia-h100=8,nvidia-v100=4" → devices. PST_EINVAL. */
int kube_offered_gpus(const char *text, pst_inventory *ret, pst_err *err);
/* Adds a NodeList; nodes that are cordoned or not ready are left out. */
void kube_count_nodes(const kube_opts *opts, const json_t *nodes, pst_inventory *ret);
/* All of it; asks the API server where the options leave something open, and again until it answers. PST_ESTOPPED. ret: free(devices). */
int kube_capacity(const kube_opts *opts, const kube_access *access, pst_inventory *ret, pst_err *err);

#endif
