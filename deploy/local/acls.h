/* acls.h - `penstock topics acls`: the rules that a cluster with an authorizer needs, per component, as a table, as kafka-acls' commands or JSON. */
#ifndef PST_DEPLOY_ACLS_H
#define PST_DEPLOY_ACLS_H

#include "common/base/err.h"

#include <stdbool.h>

typedef struct local_acls_opts {
    const char *prefix;       /* of the platform's topics */
    const char *component;    /* only this one; NULL = all */
    const char *principal;    /* "User:penstock-%s": %s is the component */
    const char *const *files; /* pipeline files: the scorer's rights on their topics */
    size_t n_files;
    bool commands, json;
} local_acls_opts;

/* Prints to stdout. PST_EINVAL: no such component, no %s in a principal for all, a pipeline file that cannot be read. */
int local_acls_print(const local_acls_opts *opts, pst_err *err);

#endif
