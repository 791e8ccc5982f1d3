/* deploy_digest.c - fields one after the other, each text with its length, in an order that never changes: the digest is compared between programs
 * of different age, so a new field of the event is in it only where older programs
 * never see it filled. */
#include "schemas/deploy_digest.h"

#include "common/base/buf.h"
#include "common/base/hash.h"

#include <string.h>

/* With its length, so that no two lists of texts look alike. */
static void add(pst_buf *b, const char *text)
{
    text = text ? text : "";
    pst_buf_printf(b, "%zu:%s", strlen(text), text);
}

void pst_deploy_digest(const pst_job_command *c, char ret_hex[65])
{
    pst_buf b = {0};
    const pst_deploy_spec *s = c->spec;
    add(&b, c->training_id);
    add(&b, c->site);
    add(&b, s && s->n_nodes ? "" : c->node); /* over several nodes it is one DEPLOY, addressed to each of those that it names */
    add(&b, c->nonce);
    pst_buf_printf(&b, "%d;", c->generation);
    if (s) {
        add(&b, s->name);
        add(&b, s->user);
        add(&b, s->manifest);
        add(&b, s->code ? s->code->uri : NULL);
        add(&b, s->code ? s->code->sha256 : NULL);
        add(&b, s->code ? s->code->media_type : NULL);
        pst_buf_printf(&b, "%d;%.17g;%d;%lld;%d", s->learners, s->cpus, s->gpus, (long long)s->memory_bytes, s->grace_ms);
        for (size_t i = 0; i < s->n_nodes; i++) /* only a Trainer that knows several nodes fills it, for LCMs that do */
            add(&b, s->nodes[i]);
    }
    pst_sha256_hex(b.data, b.len, ret_hex);
    pst_buf_done(&b);
}

void pst_nonce_digest(const char *nonce, char ret_hex[65])
{
    pst_sha256_hex(nonce, strlen(nonce), ret_hex);
}
