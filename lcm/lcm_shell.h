/* lcm_shell.h - the LCM's hands: commands in, actions done, reports out. The core decides (lcm_core.h), a launcher acts (launcher.h).
 *
 * A round: poll commands → core → intents and stops to disk → reports and offsets in one transaction → only then starts and signals.
 * An aborted transaction changes nothing: reports and what was to follow stay queued, the commands come again and are known already.
 * @thread one. */
#ifndef PST_LCM_SHELL_H
#define PST_LCM_SHELL_H

#include "common/base/json.h"
#include "common/platform/client.h"
#include "lcm/launcher.h"
#include "lcm/node_id.h"

typedef struct lcm_shell_conf {
    pst_client *client;
    const char *site, *state_dir;
    lcm_node_id *node; /* borrowed; DRAIN changes it */
    const pst_launcher_ops *launcher;
    const struct kube_opts *kubernetes;      /* borrowed; what the launcher of that name is told */
    const char *const *environ;              /* for supervisors */
    double overcommit;                       /* of processors */
    pst_isolation floor;                     /* the weakest that a job may have here; DEFAULT: any */
    const char *address;                     /* by which other nodes reach processes on this one; numeric */
    const char *stores;                      /* the S3 servers that jobs may name here; NULL: any */
    int64_t keep_ended_us, keep_ended_bytes; /* of ended generations' folders; 0 = no limit */
    bool at_least_once;                      /* broker without transactions */
} lcm_shell_conf;

typedef struct lcm_shell lcm_shell;

/* Takes up what is on disk: adopts, starts what was intended, ends what was left. Needs no broker. */
int lcm_shell_open(const lcm_shell_conf *conf, lcm_shell **ret_shell, pst_err *err);
/* Waits for the broker, reads what the Trainer knows of this site. PST_ESTOPPED. */
int lcm_shell_connect(lcm_shell *s, pst_err *err);
/* Waits at most timeout_ms for commands. < 0: PST_EFENCED, or FATAL; PST_ESTOPPED when asked to stop. */
int lcm_shell_round(lcm_shell *s, int timeout_ms, pst_err *err);
/* What it holds (common/base/dump.h); arg is the shell. */
void lcm_shell_dump(void *arg, json_t *to);
/* Ends every process of the site and waits for it; asked to stop: gives up. Reports go out without transactions (repeating one does no harm). */
int lcm_shell_stop_site(lcm_shell *s, pst_err *err);
/* Says a last time how things are ("stopped"), closes. Processes go on. */
void lcm_shell_close(lcm_shell *s);

#endif
