/* answers.c - the consumer that reads the Trainer's answers. It begins at the topic's end as it stood before the request was published: so no answer can
 * be missed, however quick the Trainer is, and no earlier event is taken for one. */
#include "producers/answers.h"

#include "common/base/buf.h"
#include "common/base/settings.h"
#include "schemas/topics.h"

#include <stdlib.h>

int jobs_answers_open(pst_client *c, pst_consumer **ret_consumer, pst_err *err)
{
    const char *topic = pst_client_topic(c, PST_TOPIC_JOBS_EVENTS);
    pst_topic_info info = {0};
    pst_err e = {0};
    int rc = pst_admin_topic(c->bus, topic, &info, 10000, &e);
    if (rc == PST_EUNREACH)
        pst_err_set(err, rc, e.cls, "kafka", e.native, "nothing was published, for no broker answers at %s (%.200s)",
                    c->settings->bootstrap.value, e.text);
    else if (rc < 0)
        *err = e;
    pst_range *ranges = pst_alloc((size_t)(info.partitions + 1) * sizeof *ranges);
    for (int i = 0; !rc && i < info.partitions; i++)
        ranges[i] = (pst_range){topic, i, info.high[i], -1};
    if (!rc)
        rc = pst_consumer_new(c->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = (size_t)info.partitions}, ret_consumer, err);
    free(ranges);
    pst_topic_info_done(&info);
    return rc;
}
