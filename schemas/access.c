/* access.c - grants per component: topics by the columns of topics.def, and beside them the few groups and transactional ids that the services
 * use. Names of groups and ids are made where they are used; tests/live/test_acl.py runs every component under these grants and nothing else,
 * so a name that moves away from this table does not go unseen. */
#include "schemas/access.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *doc;
} components[PST_COMPONENT_COUNT] = {
    [PST_COMPONENT_UP] = {"up", "penstock up, penstock topics create: makes the topics, follows the pipelines"},
    [PST_COMPONENT_REGISTRY] = {"registry", "the built-in schema registry"},
    [PST_COMPONENT_TRAINER] = {"trainer", "admits, queues and concludes about jobs"},
    [PST_COMPONENT_LCM] = {"lcm", "starts learners; with their supervisors"},
    [PST_COMPONENT_GATEWAY] = {"gateway", "HTTP and the page"},
    [PST_COMPONENT_SCORER] = {"scorer", "scores streams; its pipelines' topics come with --pipeline FILE"},
    [PST_COMPONENT_USER] = {"user", "submits jobs, registers models, applies pipelines; with --pipeline FILE replays its dead letters"},
    [PST_COMPONENT_VIEWER] = {"viewer",
                              "list, show, logs, metrics, cat: looks and changes nothing; with --pipeline FILE at its dead letters"},
    [PST_COMPONENT_AUDITOR] = {"auditor", "reads what the gateway's users changed, and were refused: penstock cat -t"},
};

/* What is no topic of topics.def. `suffix` follows the prefix, except for a name that begins with '=' : that stands as it is. */
static const struct {
    pst_component who;
    const char *resource, *suffix;
    bool prefixed;
    const char *operation;
} others[] = {
    {PST_COMPONENT_UP, "topic", "", true, "Create"},
    {PST_COMPONENT_UP, "topic", "", true, "Describe"},
    {PST_COMPONENT_REGISTRY, "topic", "=_schemas", false, "Create"},
    {PST_COMPONENT_REGISTRY, "topic", "=_schemas", false, "Read"},
    {PST_COMPONENT_REGISTRY, "topic", "=_schemas", false, "Write"},
    {PST_COMPONENT_REGISTRY, "topic", "=_schemas", false, "DescribeConfigs"},
    {PST_COMPONENT_TRAINER, "group", "trainer", true, "Read"}, /* trainer, trainer.active */
    {PST_COMPONENT_TRAINER, "transactional-id", "trainer", false, "Write"},
    {PST_COMPONENT_LCM, "group", "lcm.", true, "Read"},
    {PST_COMPONENT_LCM, "transactional-id", "lcm.", true, "Write"},
    {PST_COMPONENT_SCORER, "transactional-id", "score.", true, "Write"},
    {PST_COMPONENT_VIEWER, "group", "", true, "Describe"}, /* lag */
    {PST_COMPONENT_USER, "group", "", true, "Describe"},
};

const char *pst_component_name(pst_component c)
{
    PST_ASSERT((int)c >= 0 && c < PST_COMPONENT_COUNT);
    return components[c].name;
}

const char *pst_component_doc(pst_component c)
{
    PST_ASSERT((int)c >= 0 && c < PST_COMPONENT_COUNT);
    return components[c].doc;
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

static void give(const char *resource, const char *name, bool prefixed, const char *operation, void (*fn)(void *arg, const pst_grant *g),
                 void *arg)
{
    fn(arg, &(pst_grant){.resource = resource, .name = name, .prefixed = prefixed, .operation = operation});
}

void pst_access_each(pst_component c, const char *prefix, void (*fn)(void *arg, const pst_grant *g), void *arg)
{
    const char *who = pst_component_name(c);
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        const pst_topic_def *d = pst_topic_get((pst_topic)t);
        char *name = pst_topic_name(prefix, (pst_topic)t);
        if (has_word(d->readers, who))
            give("topic", name, false, "Read", fn, arg);
        if (has_word(d->writers, who))
            give("topic", name, false, "Write", fn, arg);
        free(name);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].who != c)
            continue;
        const char *suffix = others[i].suffix;
        char *name = *suffix == '=' ? pst_strdup(suffix + 1) : pst_sprintf("%s%s", prefix, suffix);
        give(others[i].resource, name, others[i].prefixed, others[i].operation, fn, arg);
        free(name);
    }
}
