/* commands.h - the Trainer's commands, from record to what the LCM follows: those for other nodes and those that no Trainer gave are left
 * out, those whose state has not come yet are held.
 *
 * A held command's offset is committed with its round; should the LCM be killed within the moment that it is held, the Trainer's state says
 * at the next start that something should live here. @thread one. */
#ifndef PST_LCM_COMMANDS_H
#define PST_LCM_COMMANDS_H

#include "common/base/seal.h"
#include "lcm/expected.h"
#include "common/bus/bus.h"
#include "schemas/events.h"

typedef struct lcm_commands lcm_commands;

typedef struct lcm_commands_conf {
    pst_client *client;
    const char *site, *node;
    const pst_seal_key *key;                               /* opens what the Trainer sealed, where it has the same; borrowed */
    lcm_expected *expected;                                /* borrowed */
    int (*generation)(void *arg, const char *training_id); /* the highest that is known here; 0 = none */
    /* Is no other LCM of the site heard? 1, 0, or -1: not known yet. Asked about a DEPLOY that is for no node in particular. */
    int (*alone)(void *arg);
    void (*follow)(void *arg, const pst_job_command *c, const pst_trace *of); /* both die after the call */
    void (*refused)(void *arg, const pst_job_command *c, const char *reason); /* said in the log already; bounded in number */
    void *arg;
} lcm_commands_conf;

lcm_commands *lcm_commands_new(const lcm_commands_conf *conf);
void lcm_commands_free(lcm_commands *cs);
/* 0, or RETRY: the record must be seen again. */
int lcm_commands_take(lcm_commands *cs, const pst_record *r, pst_err *err);
/* Judges the held ones again. */
void lcm_commands_again(lcm_commands *cs);
size_t lcm_commands_held(const lcm_commands *cs);
/* Some came a moment ago: their states are about to come. */
bool lcm_commands_young(const lcm_commands *cs);

#endif
