/* process_sets.c - names are made from prefix and number, and looked for by making none: the number behind the last '-' says which one it is. */
#include "common/objects/process_sets.h"

#include "common/base/err.h"
#include "common/base/json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 256, NUMBER_MAX = 100000 };

int pst_process_sets_count(const pst_process_set *sets, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++)
        count += sets[i].count;
    return count;
}

void pst_process_sets_name(const pst_process_set *sets, size_t n, int i, char ret_name[32])
{
    PST_ASSERT(i >= 0 && i < pst_process_sets_count(sets, n));
    for (; i >= sets->count; sets++)
        i -= sets->count;
    snprintf(ret_name, 32, "%s-%d", sets->prefix, (sets->first + i) % NUMBER_MAX);
}

const pst_process_set *pst_process_sets_find(const pst_process_set *sets, size_t n, const char *process, int *ret_index)
{
    const char *dash = strrchr(process, '-');
    char *end = NULL;
    long number = dash && isdigit((unsigned char)dash[1]) && dash[1] != '0' ? strtol(dash + 1, &end, 10) : 0;
    for (size_t i = 0; end && !*end && i < n; i++) {
        size_t len = strlen(sets[i].prefix);
        bool here = len == (size_t)(dash - process) && !strncmp(sets[i].prefix, process, len);
        if (here && number >= sets[i].first && number < (long)sets[i].first + sets[i].count) {
            *ret_index = (int)(number - sets[i].first);
            return &sets[i];
        }
    }
    return NULL;
}

json_t *pst_process_sets_json(const pst_process_set *sets, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, json_pack("{s:s, s:i, s:i, s:i, s:i}", "prefix", sets[i].prefix, "first", sets[i].first, "count",
                                             sets[i].count, "gpus", sets[i].gpus, "rank", sets[i].rank));
    return all;
}

/* An index is made of it, and names of paths: nothing is taken that could not have been written. */
static bool read_one(const json_t *j, pst_process_set *s)
{
    const char *prefix = pst_json_str(j, "prefix", "");
    int64_t first = pst_json_int(j, "first", 0), count = pst_json_int(j, "count", 0), gpus = pst_json_int(j, "gpus", 0),
            rank = pst_json_int(j, "rank", -1);
    bool ok = *prefix && strlen(prefix) < sizeof s->prefix && isalnum((unsigned char)*prefix) && !strpbrk(prefix, "/.") && first >= 1 &&
              first < NUMBER_MAX && count >= 1 && count <= COUNT_MAX && gpus >= 0 && gpus <= COUNT_MAX * 4 && rank >= -1 &&
              rank < NUMBER_MAX;
    if (!ok)
        return false;
    *s = (pst_process_set){.first = (int)first, .count = (int)count, .gpus = (int)gpus, .rank = (int)rank};
    snprintf(s->prefix, sizeof s->prefix, "%s", prefix);
    return true;
}

int pst_process_sets_read(const json_t *spec, pst_process_set ret_sets[PST_PROCESS_SETS_MAX], size_t *ret_n)
{
    const json_t *all = json_object_get(spec, "processes");
    pst_process_set *s = ret_sets;
    *ret_n = 0;
    if (!all) {
        int64_t learners = pst_json_int(spec, "learners", 1), servers = pst_json_int(spec, "parameter_servers", 0);
        if (learners < 1 || learners > COUNT_MAX || servers < 0 || servers > COUNT_MAX)
            return PST_EPARSE;
        *s++ = (pst_process_set){.prefix = "learner", .first = 1, .count = (int)learners, .gpus = (int)pst_json_int(spec, "gpus", 0)};
        if (servers)
            *s++ = (pst_process_set){.prefix = "ps", .first = 1, .count = (int)servers, .rank = -1};
        *ret_n = (size_t)(s - ret_sets);
        return 0;
    }
    size_t n = json_array_size(all);
    if (!json_is_array(all) || !n || n > PST_PROCESS_SETS_MAX)
        return PST_EPARSE;
    for (size_t i = 0; i < n; i++)
        if (!read_one(json_array_get(all, i), s++))
            return PST_EPARSE;
    *ret_n = n;
    return 0;
}
