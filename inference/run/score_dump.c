/* score_dump.c - what a scorer holds, for whoever looks into one that stands still (common/base/dump.h): its model, its partitions, its round, and
 * what it waits for. Made by the scorer's own thread between two rounds, so the numbers belong together, which those of /metrics need not. */
#include "common/bus/bus.h"
#include "common/base/json.h"
#include "inference/run/score_priv.h"

enum { RANGES_MAX = 256 };

static json_t *models(const scorer *s)
{
    static const char *const names[] = {"primary", "canary", "shadow"};
    json_t *all = json_object();
    for (int v = 0; v < 3; v++) {
        const pst_binding *b = pst_score_core_binding(s->core, (pst_variant)v);
        if (b)
            json_object_set_new(all, names[v],
                                json_pack("{s:s?, s:i, s:s?, s:b}", "name", pst_binding_name(b), "version", pst_binding_version(b),
                                          "digest", pst_binding_digest(b), "next_one_waits", s->held[v].binding != NULL));
    }
    return all;
}

static json_t *partitions(const scorer *s)
{
    pst_range at[RANGES_MAX];
    json_t *list = json_array();
    size_t n = s->consumer ? pst_consumer_assignment(s->consumer, at, RANGES_MAX) : 0;
    for (size_t i = 0; i < n && i < RANGES_MAX; i++)
        json_array_append_new(list, json_pack("{s:s, s:i}", "topic", at[i].topic, "partition", (int)at[i].partition));
    return list;
}

static json_t *waits(score_stats *st)
{
    char what[32];
    pst_buf why = {0};
    score_stats_waits_now(st, what, &why);
    json_t *j = *what ? json_pack("{s:s, s:s}", "for", what, "why", why.data) : json_object();
    pst_buf_done(&why);
    pthread_mutex_lock(&st->wait_lock); /* other threads read this text, too */
    if (*st->refused)
        json_object_set_new(j, "model_refused", json_string(st->refused));
    if (*st->canary_why)
        json_object_set_new(j, "canary_stopped", json_string(st->canary_why));
    pthread_mutex_unlock(&st->wait_lock);
    return j;
}

void scorer_dump(void *arg, json_t *to)
{
    const scorer *s = arg;
    const score_stats *st = s->stats;
    json_object_set_new(to, "pipeline", json_string(s->p->name));
    json_object_set_new(to, "worker", json_string(s->worker));
    json_object_set_new(to, "group", json_string(s->group));
    json_object_set_new(to, "ready", json_boolean(st->ready));
    json_object_set_new(to, "waits", waits(s->stats));
    json_object_set_new(to, "models", models(s));
    json_object_set_new(to, "partitions", partitions(s));
    json_object_set_new(to, "round_open", json_boolean(s->round.open));
    json_object_set_new(to, "rounds_thrown_away_in_a_row", json_integer(s->again));
    json_object_set_new(to, "unknown_schemas", json_integer((json_int_t)pst_unknown_count(s->unknown)));
    json_object_set_new(to, "lag", st->lag >= 0 ? json_integer(st->lag) : json_null());
    json_object_set_new(to, "counts",
                        json_pack("{s:I, s:I, s:I, s:I, s:I}", "records", (json_int_t)st->records, "scored", (json_int_t)st->scored,
                                  "dead_letters", (json_int_t)st->dead_letters, "commits", (json_int_t)st->commits, "aborts",
                                  (json_int_t)st->aborts));
}
