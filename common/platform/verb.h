/* verb.h - the frame of a verb that talks to the platform: options, client, error to exit status.
 *
 *     pst_verb_run v;
 *     int status = pst_verb_begin(&v, &usage, argc, argv, &opts, 1, 1);   // 1 to 1 arguments
 *     if (status >= 0) return status;                                     // help, or an error already said
 *     …
 *     return pst_verb_end(&v, rc);
 */
#ifndef PST_COMMON_PLATFORM_VERB_H
#define PST_COMMON_PLATFORM_VERB_H

#include "common/base/opt.h"
#include "common/platform/client.h"
#include "schemas/avro.h"

typedef struct pst_verb_run {
    const pst_usage *usage;
    pst_settings settings;
    pst_client *client;
    pst_err err;
    char **args;
    int n_args;
} pst_verb_run;

/* args_max < 0: no limit. Returns an exit status (≥ 0) when there is nothing to do, -1 to go on. */
int pst_verb_begin(pst_verb_run *v, const pst_usage *usage, int argc, char **argv, void *opts, int args_min, int args_max);
/* The same without a client, for verbs that need none, and for services that bring their own (or run where there is no broker yet). */
int pst_verb_parse(pst_verb_run *v, const pst_usage *usage, int argc, char **argv, void *opts, int args_min, int args_max);
int pst_verb_end(pst_verb_run *v, int rc); /* says the error, frees, returns the exit status */
/* pst_say_err, and where a broker or the registry is not reached: which address, who gave it, what to do. Returns the exit status; who was
 * interrupted while waiting is told nothing (130). */
int pst_verb_say(const char *verb, const pst_settings *settings, const pst_err *err);
/* One event as one JSON line on stdout. */
void pst_print_event(const pst_type *type, const void *event);

#endif
