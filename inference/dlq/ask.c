/* ask.c - options into a filter; what every verb here says about topics and strangers' texts. */
#include "inference/dlq/ask.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A time, or how long ago. */
static int moment(const char *option, const char *text, int64_t *ret_ms, pst_err *err)
{
    int64_t us, span;
    if (!text)
        return 0;
    if (pst_time_parse(text, &us) < 0) {
        if (pst_span_parse(text, &span) < 0)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                               "--%s %.80s is neither a time such as 2026-01-31T12:00:00Z nor how long ago, such as 90min", option, text);
        us = pst_now_us() - span;
    }
    *ret_ms = us / 1000;
    return 0;
}

int dlq_ask_filter(const pst_dlq_ask *ask, dlq_filter *ret, pst_err *err)
{
    *ret = (dlq_filter){.reason = ask->reason, .stage = ask->stage, .source = ask->source, .partition = -1, .to = INT64_MAX};
    int rc = ask->partition ? dlq_filter_partition(ret, ask->partition, err) : 0;
    if (!rc)
        rc = moment("since", ask->since, &ret->since_ms, err);
    return rc ? rc : moment("until", ask->until, &ret->until_ms, err);
}

int dlq_ask_topic(const pst_verb_run *v, const char *topic, pst_topic_info *ret, pst_err *err)
{
    if (!dlq_topic_name(topic)) {
        pst_buf shown = {0};
        dlq_ask_quote(&shown, (pst_slice){topic, strlen(topic)}, 80);
        int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "no topic can be called %s: letters, digits, '.', '_' and '-'",
                             shown.data);
        pst_buf_done(&shown);
        return rc;
    }
    int rc = pst_admin_topic(v->client->bus, topic, ret, 10000, err);
    if (rc == PST_ENOTFOUND)
        pst_err_prefix(err, "no pipeline and no topic of dead letters is called %.120s", topic);
    return rc;
}

int dlq_ask_none(const char *topic, int64_t records, pst_err *err)
{
    return pst_err_set(
        err, PST_ENOTFOUND, PST_CLASS_DATA, "config", 0,
        "%s holds no dead letters: none of its %lld records has the header __connect.errors.topic; penstock cat -t %s shows them", topic,
        (long long)records, topic);
}

dlq_ledger *dlq_ask_distrust(dlq_ledger *l, const pst_err *why)
{
    fprintf(stderr, "what was replayed is not known: %s\n", why->text);
    dlq_ledger_free(l);
    return NULL;
}

void dlq_ask_row(const pst_dlq_ask *ask, json_t *take)
{
    if (ask->row) {
        ask->row(ask->arg, take);
        return;
    }
    pst_json_print(stdout, take);
    json_decref(take);
}

void dlq_ask_quote(pst_buf *to, pst_slice text, size_t most)
{
    if (text.len)
        pst_term_quote(to, text.data, text.len, most);
    else
        pst_buf_adds(to, "-");
}
