/* supervise_opts.h - the options of `penstock supervise`: a program of its own, whose usage the references print without linking it. */
#ifndef PST_LCM_SUPERVISOR_SUPERVISE_OPTS_H
#define PST_LCM_SUPERVISOR_SUPERVISE_OPTS_H

#include "common/base/opt.h"

typedef struct supervise_opts {
    const char *run_dir, *address, *install, *settings, *settings_to;
    double lines_per_s;
    int64_t bytes_per_s, spool_bytes;
} supervise_opts;

extern const pst_usage pst_supervise_usage;

#endif
