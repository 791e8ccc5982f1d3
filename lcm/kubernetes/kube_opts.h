/* kube_opts.h - what `penstock lcm --launcher kubernetes` is told on the command line. Strings are borrowed. @thread any. */
#ifndef PST_LCM_KUBE_OPTS_H
#define PST_LCM_KUBE_OPTS_H

#include <stdint.h>

typedef struct kube_opts {
    const char *kubeconfig, *server, *token_file, *ca_file, *namespace_; /* NULL: as in a pod of the cluster */
    const char *claim;                                                   /* of the volume that is the state folder */
    const char *image;                                                   /* of penstock itself */
    const char *images;                                                  /* "NAME=IMAGE,…" before FfDL's table; NULL */
    const char *gpu_resource, *gpu_label;
    double cpus; /* what it offers; 0: what the nodes have */
    int64_t memory_bytes;
    const char *gpus; /* "TYPE=N,…"; NULL */
} kube_opts;

#endif
