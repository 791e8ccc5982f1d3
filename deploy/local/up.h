/* up.h - what `penstock up`, `down` and the demo share. */
#ifndef PST_DEPLOY_UP_H
#define PST_DEPLOY_UP_H

#include "common/base/opt.h"
#include "common/base/settings.h"

#include <jansson.h>

typedef struct local_up_opts {
    bool detach, kafka, embedded;
    const char *without; /* "trainer,lcm,…" or NULL */
    pst_opt_list with;   /* sinks (with.h) */
    int64_t registry_port, gateway_port;
    int64_t max_wait_us;                                               /* for the broker */
    int64_t log_mib;                                                   /* a log is put aside at this size */
    const char *tls_cert, *tls_key;                                    /* the gateway's; NULL = plain HTTP */
    const char *users;                                                 /* of the gateway, in place of its token; NULL = none */
    const char *jwks, *jwks_ca, *jwt_issuer, *jwt_audience, *jwt_role; /* of the gateway, likewise; role NULL = its default */
    int64_t user_rate, user_burst;                                     /* of the gateway */
    const char *isolation;                                             /* the LCM's floor, checked; NULL = none */
} local_up_opts;

/* Runs the platform until told to stop; with detach returns once it is ready, or with the reason why not. */
int local_up(const local_up_opts *o, pst_settings *settings, bool own_registry, pst_err *err);
/* Ends a running platform. keep_jobs: learners go on. 0 also when nothing runs. */
int local_down(const pst_settings *settings, bool keep_jobs, bool quiet, pst_err *err);
/* The address that lets a browser in: with the state folder's token, where it has one. NULL without a gateway; free(). For people's eyes only:
 * neither logs nor files. */
char *local_page_address(const char *gateway, const char *state_dir);
void local_print_addresses(void *file, const json_t *status, bool color); /* the banner */
/* The broker script beside this program, in its source tree, or $PENSTOCK_KAFKA_SCRIPT; free(). NULL if there is none. */
char *local_kafka_script(void);

#endif
