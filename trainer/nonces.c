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

/* Nodes of one generation share its nonce: the text that it is made of is the same in one step. */
void tcore_sign(tcore *c, trainer_job *j, const trainer_node *to, pst_job_command *cmd)
{
    char hex[65] = "";
    bool deploy = cmd->command == PST_JOB_COMMAND_TYPE_DEPLOY;
    cmd->epoch = to->epoch;
    if (cmd->command == PST_JOB_COMMAND_TYPE_CLEAN || (deploy ? !to->proves : !*j->s.nonce_sha256)) {
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
