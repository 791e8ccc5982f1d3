/* broker_opts.h - the options of `penstock broker`: a program of its own, whose usage the references print without linking it. */
#ifndef PST_DEPLOY_BROKER_BROKER_OPTS_H
#define PST_DEPLOY_BROKER_BROKER_OPTS_H

#include "common/base/opt.h"

typedef struct broker_opts {
    int64_t port;
} broker_opts;

extern const pst_usage pst_broker_usage;

#endif
