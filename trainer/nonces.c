/* nonces.c - whom the Trainer will believe: each generation gets a nonce, known to its node and its supervisors and echoed in each report. The
 * state keeps the nonce's digest only, so that whoever reads `jobs.state` cannot forge a report. */
#include "common/base/hash.h"
#include "schemas/deploy_digest.h"
#include "trainer/core_state.h"

#include <stdlib.h>
#include <string.h>

/* From a key that only this Trainer knows: the core stays a function of its inputs. */
static char *make_nonce(const tcore *c, const trainer_job *j, const char *kind)
{
    char hex[65];
    char *text = pst_sprintf("%s %s %d %lld %lld", kind, j->s.training_id, j->s.generation, (long long)j->s.seq, (long long)c->now_us);
    pst_buf b = {0};
    pst_buf_add(&b, c->policy.nonce_key, sizeof c->policy.nonce_key);
    pst_buf_adds(&b, text);
    pst_sha256_hex(b.data, b.len, hex);
    pst_buf_done(&b);
    free(text);
    return pst_strndup(hex, 32);
}

void tcore_sign(tcore *c, trainer_job *j, pst_job_command *cmd)
{
    char hex[65] = "";
    bool deploy = cmd->command == PST_JOB_COMMAND_TYPE_DEPLOY;
    const trainer_node *n = tcore_node(c, j->s.site, j->s.node);
    cmd->node = pst_strdup(cmd->command == PST_JOB_COMMAND_TYPE_CLEAN ? "" : j->s.node); /* each node may hold folders of it */
    cmd->epoch = n->epoch;
    if (cmd->command == PST_JOB_COMMAND_TYPE_CLEAN || (deploy ? !n->proves : !*j->s.nonce_sha256)) {
        cmd->nonce = pst_strdup("");
    } else {
        cmd->nonce = make_nonce(c, j, pst_job_command_type_text(cmd->command));
        pst_nonce_digest(cmd->nonce, hex);
    }
    if (deploy) {
        tcore_set_text(&j->s.nonce_sha256, hex);
        tcore_set_text(&j->s.claim_sha256, "");
        if (*hex)
            pst_deploy_digest(cmd, hex);
        tcore_set_text(&j->s.spec_sha256, hex);
    } else if (*hex) {
        tcore_set_text(&j->s.claim_sha256, hex);
    }
}
