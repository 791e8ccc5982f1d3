/* lcm_opts.h - the options of `penstock lcm`, and what is wrong with them before anything is opened. @thread main. */
#ifndef PST_LCM_OPTS_H
#define PST_LCM_OPTS_H

#include "common/base/isolation.h"
#include "common/base/opt.h"
#include "lcm/kubernetes/kube_opts.h"

typedef struct lcm_opts {
    const char *site, *node, *launcher, *advertise, *isolation, *stores;
    double overcommit;
    int64_t keep_us, keep_bytes, port;
    bool print_fsm;
    kube_opts kube;
} lcm_opts;

extern const pst_usage lcm_usage;

/* ret_floor: of --isolation. */
int lcm_opts_check(const lcm_opts *o, pst_isolation *ret_floor, pst_err *err);

#endif
