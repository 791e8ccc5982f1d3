/* lag.c - `penstock lag`: how far the consumer groups are behind, a row a partition. Partitions of which a group has committed nothing are rows like
 * the others: what stands there is its lag where it is known that the group reads it all; else its lag is not known, and that is said. */
#include "common/base/json.h"
#include "common/platform/verb.h"
#include "verbs.h"
#include "common/bus/bus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct lag_opts {
    const char *group;
    bool all;
} lag_opts;
static const pst_opt lag_table[] = {
    {"group", 'G', PST_OPT_STR, offsetof(lag_opts, group), "GROUP", NULL, "only this group"},
    {"all", 'a', PST_OPT_BOOL, offsetof(lag_opts, all), NULL, NULL, "partitions without lag too"},
};
static const pst_usage lag_usage = {
    "lag",
    "[GROUP]",
    "Show how many records each consumer group has still to read.",
    "The lag is counted in offsets, of which markers of transactions are some too; it is 0 where nothing "
    "but markers follows, for which the end of\nthe topic is read (without the right to read it: the offsets).\n"
    "Where a group has committed nothing yet (\"none yet\") its lag is what stands there if it is known to begin at the first record; "
    "else it is unknown (--json: null), since\n"
    "that is a setting of the group's own members.",
    "penstock lag\npenstock lag telemetry-scorer --all --json",
    lag_table,
    2,
    false};

/* What is not known (the end of a topic that was deleted) is null, and no number that somebody would add up. */
static json_t *known(int64_t n)
{
    return n >= 0 ? json_integer(n) : json_null();
}

static void print_json(const pst_group_lag *r)
{
    json_t *j = json_pack("{s:s, s:s, s:i, s:o, s:o, s:o}", "group", r->group, "topic", r->topic, "partition", (int)r->partition,
                          "committed", known(r->committed), "end", known(r->end), "lag", known(r->lag));
    pst_json_print(stdout, j);
    json_decref(j);
}

/* n, right aligned, or a word for what is not known. */
static void print_known(int width, int64_t n, const char *else_word)
{
    if (n >= 0)
        printf(" %*lld", width, (long long)n);
    else
        printf(" %*s", width, else_word);
}

static void print_row(const pst_group_lag *r)
{
    printf("%-32s %-28s %9d", r->group, r->topic, r->partition);
    print_known(12, r->committed, "none yet");
    print_known(12, r->end, "unknown");
    print_known(10, r->lag, "unknown");
    putchar('\n');
}

/* Without --all only those that are behind are shown; a group of which nothing is known is an error, as a name may be misspelt. */
static int lag_run(int argc, char **argv)
{
    lag_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &lag_usage, argc, argv, &o, 0, 1);
    if (status >= 0)
        return status;
    pst_group_lag *rows = NULL;
    size_t n = 0, shown = 0, unsaid = 0;
    if (v.n_args && o.group)
        return pst_verb_end(&v, pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                                            "the group is named twice, %.80s and %.80s; leave one out", o.group, v.args[0]));
    o.group = v.n_args ? v.args[0] : o.group;
    int rc = pst_admin_lag(v.client->bus, o.group, &rows, &n, 15000, &v.err);
    PST_ASSERT(rc || !n || rows);
    for (size_t i = 0; !rc && i < n; i++) {
        const pst_group_lag *r = &rows[i];
        unsaid += r->next < 0 && r->end >= 0;
        if (v.settings.json) {
            print_json(r);
        } else if (o.all || r->lag) {
            if (!shown++)
                printf("%-32s %-28s %9s %12s %12s %10s\n", "GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG");
            print_row(r);
        }
    }
    if (!rc && unsaid && !v.settings.quiet)
        fprintf(stderr,
                "of %zu partition%s nothing is committed, and only the group's members know where they begin there (auto.offset.reset)\n",
                unsaid, unsaid == 1 ? "" : "s");
    if (!rc && !n && o.group)
        rc = pst_err_set(&v.err, PST_ENOTFOUND, PST_CLASS_DATA, "kafka", 0,
                         "no consumer group %s has committed anything or has members; penstock lag shows all that have", o.group);
    if (!rc && !v.settings.json && !shown && !v.settings.quiet)
        fprintf(stderr, "%s\n", n ? "no group is behind (--all shows every partition)" : "no consumer groups yet");
    pst_group_lag_free(rows, n);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_lag_verb = {"lag", "how far consumer groups are behind", "streams", lag_run, PST_USAGES(&lag_usage)};
