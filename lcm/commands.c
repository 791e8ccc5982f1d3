/* commands.c - whether a command is the Trainer's is asked of the Trainer's state, not of the command: whoever may write to the topic could put
 * anything into it. The state comes by another topic and perhaps later, so a command may have to wait for it, bounded in number, bytes and time;
 * what comes for the same job meanwhile waits behind it, since a HALT must not overtake its DEPLOY. */
#include "lcm/commands.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/objects/rundir.h"
#include "schemas/manifest_secrets.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"

#include <stdlib.h>
#include <string.h>

enum {
    HOLD_US = 3000000,
    YOUNG_US = 500000,
    PROBE_EVERY_US = 1000000,
    HELD_MAX = 10000,
    HELD_BYTES_MAX = 64 << 20,
    SAID_A_SECOND = 10,
    RECENT_MS = 120000
};

typedef struct held {
    pst_job_command c;
    pst_trace of;
    int64_t since_us; /* monotonic */
    size_t bytes;
} held;

struct lcm_commands {
    lcm_commands_conf conf;
    held *at;
    size_t n, cap, bytes;
    pst_map ids; /* of the held: what comes after one of them waits behind it; values unused */
    int64_t probed_us, second_us;
    int said;
    uint64_t refused;
};

lcm_commands *lcm_commands_new(const lcm_commands_conf *conf)
{
    lcm_commands *cs = pst_alloc(sizeof *cs);
    cs->conf = *conf;
    return cs;
}

void lcm_commands_free(lcm_commands *cs)
{
    if (!cs)
        return;
    for (size_t i = 0; i < cs->n; i++)
        pst_event_clear(&pst_job_command_type, &cs->at[i].c);
    pst_map_done(&cs->ids, NULL);
    free(cs->at);
    free(cs);
}

size_t lcm_commands_held(const lcm_commands *cs)
{
    return cs->n;
}

bool lcm_commands_young(const lcm_commands *cs)
{
    return cs->n && pst_mono_us() - cs->at[cs->n - 1].since_us < YOUNG_US;
}

/* A stranger who floods must not fill log and topic. */
static void refuse(lcm_commands *cs, const pst_job_command *c, const char *reason)
{
    int64_t now = pst_mono_us();
    cs->refused++;
    if (now - cs->second_us >= 1000000) {
        cs->second_us = now;
        cs->said = 0;
    }
    if (cs->said++ >= SAID_A_SECOND)
        return;
    pst_log_limited(PST_LOG_WARN, "lcm", "command_refused",
                    "event=command_refused command=%s training_id=%s generation=%d count=%llu reason=\"%s\"",
                    pst_job_command_type_text(c->command), c->training_id, c->generation, (unsigned long long)cs->refused, reason);
    cs->conf.refused(cs->conf.arg, c, reason);
}

static bool is_well_formed(const pst_job_command *c)
{
    if (c->command == PST_JOB_COMMAND_TYPE_DRAIN || c->command == PST_JOB_COMMAND_TYPE_ACCEPT)
        return true;
    if (c->command == PST_JOB_COMMAND_TYPE_UNKNOWN || !pst_rundir_name_ok(c->training_id) || c->generation < 0)
        return false;
    return c->command != PST_JOB_COMMAND_TYPE_DEPLOY || (c->spec && c->generation >= 1);
}

static bool is_ours(const lcm_commands *cs, const pst_job_command *c)
{
    if (strcmp(c->site, cs->conf.site) || (*c->node && strcmp(c->node, cs->conf.node)))
        return false;
    /* Given to a site as a whole, by a Trainer of before nodes had ids: whoever does not have the generation has nothing to say about it. */
    bool stops = c->command == PST_JOB_COMMAND_TYPE_HALT || c->command == PST_JOB_COMMAND_TYPE_KILL;
    return *c->node || !stops || cs->conf.generation(cs->conf.arg, c->training_id) >= c->generation;
}

static pst_lcm_verdict judge(const lcm_commands *cs, const pst_job_command *c)
{
    /* Known already: doing it again is harmless, and whoever asks again may have missed the answer. */
    if (c->command == PST_JOB_COMMAND_TYPE_DEPLOY && cs->conf.generation(cs->conf.arg, c->training_id) >= c->generation)
        return PST_LCM_FOLLOW;
    pst_lcm_verdict v = lcm_expected_judge(cs->conf.expected, c);
    if (v != PST_LCM_FOLLOW || c->command != PST_JOB_COMMAND_TYPE_DEPLOY || *c->node)
        return v;
    /* Of a Trainer of before nodes had ids. Two that follow it are one job twice. */
    int alone = cs->conf.alone(cs->conf.arg);
    if (alone < 0) /* not known yet */
        return PST_LCM_WAIT;
    return alone ? PST_LCM_FOLLOW : PST_LCM_REFUSE;
}

static const char *why_refused(const pst_job_command *c)
{
    return c->command == PST_JOB_COMMAND_TYPE_DEPLOY && !*c->node
               ? "the Trainer that gave it is of an older version and names no node, and this site has several: upgrade the Trainer, which "
                 "then gives the job to one of them"
               : "the Trainer's state of the job asks for something else";
}

static void hold(lcm_commands *cs, pst_job_command *take, const pst_trace *of, size_t bytes)
{
    PST_ASSERT(cs->n < HELD_MAX);
    cs->at = pst_array_room(cs->at, cs->n, &cs->cap, sizeof *cs->at);
    cs->at[cs->n++] = (held){.c = *take, .of = *of, .since_us = pst_mono_us(), .bytes = bytes};
    cs->bytes += bytes;
    pst_map_put(&cs->ids, take->training_id, cs);
    memset(take, 0, sizeof *take);
}

static void decide(lcm_commands *cs, const pst_record *r, pst_job_command *c)
{
    bool old = lcm_expected_is_old(cs->conf.expected, r) && pst_now_us() / 1000 - r->timestamp_ms > RECENT_MS;
    pst_trace of;
    pst_trace_of_record(r, &of);
    bool behind = pst_map_get(&cs->ids, c->training_id);
    pst_lcm_verdict v = behind ? PST_LCM_WAIT : judge(cs, c);
    if (v == PST_LCM_FOLLOW)
        cs->conf.follow(cs->conf.arg, c, &of);
    else if (old && !behind)
        pst_log(PST_LOG_DEBUG, "lcm", "event=command_outdated training_id=%s generation=%d", c->training_id, c->generation);
    else if (v == PST_LCM_REFUSE)
        refuse(cs, c, why_refused(c));
    else if (cs->n >= HELD_MAX || cs->bytes + r->value_len > HELD_BYTES_MAX)
        refuse(cs, c, "too many commands wait for the Trainer's state of their job");
    else
        hold(cs, c, &of, r->value_len);
}

/* A DEPLOY may carry its manifest with the secrets sealed; everything else here is about the text as it was submitted. */
static bool open_manifest(const lcm_commands *cs, pst_job_command *c)
{
    if (!c->spec)
        return true;
    char *plain = pst_manifest_unseal(c->spec->manifest, cs->conf.key, c->training_id);
    if (!plain)
        return false;
    free(c->spec->manifest);
    c->spec->manifest = plain;
    return true;
}

int lcm_commands_take(lcm_commands *cs, const pst_record *r, pst_err *err)
{
    pst_job_command c;
    if (!r->value)
        return 0;
    int rc = pst_codec_decode(cs->conf.client->codec, &pst_job_command_type, r->value, r->value_len, r->timestamp_ms, &c, err);
    if (rc < 0 && err->cls == PST_CLASS_RETRY)
        return rc;
    if (rc < 0) {
        pst_err_prefix(err, "command %s[%d] offset %lld is left out", r->topic, r->partition, (long long)r->offset);
        pst_log_err("lcm", err);
        pst_err_clear(err);
        return 0;
    }
    const char *before = pst_log_job(c.training_id);
    if (!is_ours(cs, &c)) {
        /* another node's */
    } else if (!is_well_formed(&c)) {
        pst_log_limited(PST_LOG_WARN, "lcm", "command_malformed", "event=command_malformed training_id=%.100s command=%d", c.training_id,
                        (int)c.command);
    } else if (!open_manifest(cs, &c)) {
        refuse(cs, &c, "the secrets of its manifest were sealed with another key than seal.key of this node's state folder");
    } else {
        decide(cs, r, &c);
    }
    pst_log_job(before);
    pst_event_clear(&pst_job_command_type, &c);
    return 0;
}

/* Commands of one job stay in order: while one waits, those behind it wait too (ids). One that no state asked for after HOLD_US is refused,
 * but only when the states are known to be newer than it (fresh): until then a probe asks how far they are. */
void lcm_commands_again(lcm_commands *cs)
{
    int64_t now = pst_mono_us(), fresh = lcm_expected_fresh(cs->conf.expected);
    size_t kept = 0;
    bool overdue = false;
    pst_map_done(&cs->ids, NULL);
    for (size_t i = 0; i < cs->n; i++) {
        held h = cs->at[i];
        pst_lcm_verdict v = pst_map_get(&cs->ids, h.c.training_id) ? PST_LCM_WAIT : judge(cs, &h.c);
        bool late = now - h.since_us >= HOLD_US;
        if (v == PST_LCM_WAIT && !(late && fresh > h.since_us)) {
            overdue |= late;
            cs->at[kept++] = h;
            pst_map_put(&cs->ids, h.c.training_id, cs);
            continue;
        }
        const char *before = pst_log_job(h.c.training_id);
        if (v == PST_LCM_FOLLOW)
            cs->conf.follow(cs->conf.arg, &h.c, &h.of);
        else
            refuse(cs, &h.c, v == PST_LCM_WAIT ? "no Trainer gave it: no state of the job asks for it" : why_refused(&h.c));
        pst_log_job(before);
        cs->bytes -= h.bytes;
        pst_event_clear(&pst_job_command_type, &h.c);
    }
    cs->n = kept;
    if (overdue && now - cs->probed_us >= PROBE_EVERY_US) {
        cs->probed_us = now;
        lcm_expected_probe(cs->conf.expected);
    }
}
