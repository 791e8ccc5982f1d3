/* with.h - the sinks of `penstock up --with`: `opensearch=URL,files=DIR,tensorboard=DIR,prometheus=HOST:PORT`, each a service like the others. @thread one. */
#ifndef PST_DEPLOY_WITH_H
#define PST_DEPLOY_WITH_H

#include "deploy/local/services.h"

/* NAME[=TARGET][;OPTION=VALUE]… with commas between: an option of `penstock sink NAME` without its dashes. A comma that no sink's name follows belongs to the
 * value. PST_EINVAL: no such sink, one named twice, or without its target. */
int local_with_check(const char *const *words, size_t n, pst_err *err);
/* Each is a service `sink:NAME`. */
int local_with_start(local_services *services, const char *const *words, size_t n, pst_err *err);

#endif
