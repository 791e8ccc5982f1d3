/* score_refused.c - a topic refused a round because of one of its records. The same round would be refused again, so the record is looked for
 * (inference/state/suspect.h), and the topics are asked what they do not take (takes.h): a stream of such records would else cost rounds of one each. */
#include "inference/run/score_priv.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdlib.h>

enum { ASK_MS = 5000, SETTINGS_MAX = 8, WAITS_US = 5000000, SHADOW_RESTS_US = 30000000 };

/* False: that cannot be found out now, and no other topic's either. */
static bool ask_topic(scorer *s, const char *topic, pst_takes *takes)
{
    char *values[SETTINGS_MAX] = {0};
    pst_err e = {0};
    bool there = true;
    for (size_t i = 0; there && pst_takes_settings[i]; i++) {
        PST_ASSERT(i < SETTINGS_MAX);
        pst_err_clear(&e);
        there = pst_admin_topic_config(s->client->bus, topic, pst_takes_settings[i], &values[i], ASK_MS, &e) == 0 ||
                e.code == PST_ENOTFOUND ||
                e.code == PST_EAUTH; /* who may not be told knows nothing of this topic, and goes on to the next */
    }
    if (there)
        pst_takes_learn(takes, (const char *const *)values, pst_mono_us());
    else
        pst_log_limited(PST_LOG_WARN, "score", "settings_unknown", "event=settings_unknown pipeline=%s topic=%s why=\"%s\"", s->p->name,
                        topic, e.text);
    for (size_t i = 0; i < SETTINGS_MAX; i++)
        free(values[i]);
    return there;
}

static void ask_topics(scorer *s)
{
    int64_t now = pst_mono_us();
    if (!pst_takes_is_old(&s->takes, now) || now - s->takes_asked_us < WAITS_US)
        return;
    s->takes_asked_us = now; /* also where no answer comes */
    if (!ask_topic(s, s->p->output_topic, &s->takes))
        return;
    bool there = !s->p->shadow_topic || ask_topic(s, s->p->shadow_topic, &s->shadow_takes);
    for (size_t i = 0; there && i < s->p->n_topics && !s->p->tolerance_none; i++)
        there = ask_topic(s, s->inputs[i].dlq, &s->inputs[i].dlq_takes);
}

bool scorer_was_refused(scorer *s)
{
    const struct score_round_end *last = score_round_last(&s->round);
    if (!last || !pst_bus_refuses_record(&s->err))
        return false;
    pst_suspects_refused(&s->suspects, s->round.records, last->topic, last->partition, last->next - 1, s->round.shadowed > 0, s->err.text);
    pst_log(PST_LOG_DEBUG, "score", "event=round_refused pipeline=%s records=%llu next=%llu last=%s[%d]@%lld why=\"%s\"", s->p->name,
            (unsigned long long)s->round.records, (unsigned long long)s->suspects.most, last->topic, last->partition,
            (long long)last->next - 1, s->err.text);
    ask_topics(s);
    return true;
}

void scorer_was_taken(scorer *s)
{
    pst_suspects_passed(&s->suspects, s->round.records);
    for (size_t i = 0; i < s->round.n_ends; i++) {
        const struct score_round_end *e = &s->round.ends[i];
        if (e->next < 0)
            continue;
        const pst_suspect *x = pst_suspects_of_partition(&s->suspects, e->topic, e->partition);
        if (x && x->stage == PST_SUSPECT_NO_SHADOW &&
            x->offset < e->next) /* it was the shadow's topic: a trial, which may not hold the stream */
            s->shadow_rests_us = pst_mono_us() + SHADOW_RESTS_US;
        pst_suspects_passed_to(&s->suspects, e->topic, e->partition, e->next);
        score_note_passed(s->note, e->topic, e->partition, e->next);
    }
}

static pst_takes_verdict says(const pst_takes *x, const pst_record *r)
{
    return x->asked_us ? pst_takes_says(x, r, pst_mono_us(), pst_now_us() / 1000) : PST_TAKES_IT;
}

bool scorer_is_refused(scorer *s, const pst_record *r, char *why, size_t size)
{
    const pst_suspect *x = pst_suspects_find(&s->suspects, r);
    pst_takes_verdict v = says(&s->takes, r);
    if (x && x->stage >= PST_SUSPECT_LETTER)
        snprintf(why, size, "%s", x->why);
    else if (v == PST_TAKES_NO_KEYLESS)
        snprintf(why, size, "topic %s takes no record without a key: cleanup.policy=compact", s->p->output_topic);
    else if (v == PST_TAKES_NO_SUCH_TIME)
        snprintf(why, size, "topic %s does not take the record's timestamp: message.timestamp.before.max.ms, after.max.ms",
                 s->p->output_topic);
    else
        return false;
    return true;
}

bool scorer_shadow_is_refused(const scorer *s, const pst_record *r)
{
    return (s->shadow_rests_us && pst_mono_us() < s->shadow_rests_us) || pst_suspects_find(&s->suspects, r) ||
           says(&s->shadow_takes, r) != PST_TAKES_IT;
}

int scorer_letter_own_time(scorer *s, const pst_record *r, score_input_topic *in, bool *ret_own_time)
{
    const pst_suspect *x = pst_suspects_find(&s->suspects, r);
    pst_takes_verdict v = says(&in->dlq_takes, r);
    if (v == PST_TAKES_NO_KEYLESS && pst_mono_us() - in->dlq_asked_us > WAITS_US) { /* to mend it is the cure */
        in->dlq_asked_us = pst_mono_us();
        ask_topic(s, in->dlq, &in->dlq_takes);
        v = says(&in->dlq_takes, r);
    }
    *ret_own_time = v == PST_TAKES_NO_SUCH_TIME || (x && x->stage == PST_SUSPECT_LETTER_NOW);
    if (v != PST_TAKES_NO_KEYLESS && (!x || x->stage != PST_SUSPECT_WAITS))
        return 0;
    if (x && x->stage == PST_SUSPECT_WAITS)
        pst_suspects_waited(&s->suspects, r);
    bool ends = s->opts->exit_on_eof || s->opts->records_max; /* a run that nobody watches */
    return pst_err_set(&s->err, PST_EINVAL, ends ? PST_CLASS_DATA : PST_CLASS_RETRY, "kafka", 0,
                       "%s[%d]@%lld cannot be scored, and the dead-letter topic %s does not take it either%s: mend that topic's settings "
                       "(cleanup.policy, message.timestamp.*); %.300s",
                       r->topic, r->partition, (long long)r->offset, in->dlq,
                       v == PST_TAKES_NO_KEYLESS ? " (a compacted topic takes no record without a key)" : "", x ? x->why : "");
}
