/* topics.c - the table of topics.def and the full names made of it; nothing else in the program spells a topic. */
#include "schemas/topics.h"

static const pst_topic_def topics[] = {
#define PST_TOPIC(ID, suffix, type, partitions, cleanup, retention_ms, writers, readers, doc) \
    {suffix, #type, partitions, cleanup, retention_ms, writers, readers, doc},
#include "schemas/topics.def"
#undef PST_TOPIC
};

const pst_topic_def *pst_topic_get(pst_topic t)
{
    PST_ASSERT((int)t >= 0 && t < PST_TOPIC_COUNT);
    return &topics[t];
}

char *pst_topic_name(const char *prefix, pst_topic t)
{
    return pst_sprintf("%s%s", prefix, pst_topic_get(t)->suffix);
}
