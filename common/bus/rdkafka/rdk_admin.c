/* rdk_admin.c - librdkafka's admin calls: each puts one request on a queue and waits for its answer there. */
#include "common/bus/rdkafka/rdk.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_US 1000000 /* its own time-out tells more than ours: it gets the time to do so */

/* A consumer client does not make a broker create the topics it asks about; a producer client may. */
static int admin_open(const pst_bus_conf *conf, const char *group, bool may_create, const bus_listener *to, bus_handle **ret, pst_err *err)
{
    const bus_kv defaults[] = {{"topic.metadata.refresh.interval.ms", "-1"}, {NULL, NULL}};
    const bus_kv forced[] = {{"group.id", group}, {"enable.auto.commit", "false"}, {"group.instance.id", NULL}, {NULL, NULL}};
    rdk *h = pst_alloc(sizeof *h);
    h->to = *to;
    rd_kafka_conf_t *k = rdk_conf_build(conf, RDK_ADMIN, may_create ? defaults : NULL, may_create ? NULL : forced, h, err);
    if (!k || rdk_new(may_create ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, k, h, err) < 0) {
        free(h);
        return PST_EINVAL;
    }
    *ret = (bus_handle *)h;
    return 0;
}

/* One request and what belongs to it; whatever came of it, question_end lets all of it go. */
typedef struct question {
    rdk *h;
    rd_kafka_queue_t *q;
    rd_kafka_AdminOptions_t *how; /* NULL: as librdkafka has it */
    rd_kafka_event_t *answer;     /* NULL: there is none */
} question;

static question question_new(bus_handle *h)
{
    rdk *of = rdk_of(h);
    return (question){.h = of, .q = rd_kafka_queue_new(of->rk)};
}

/* 0: there is an answer; else the code of why there is none. */
static int await_answer(question *x, int timeout_ms, char *why, size_t size)
{
    PST_ASSERT(!x->answer); /* a question is asked once */
    rdk *h = x->h;
    int64_t until = pst_mono_us() + timeout_ms * 1000LL + LATE_US;
    rd_kafka_event_t *ev;
    while (!(ev = rd_kafka_queue_poll(x->q, 50))) {
        rd_kafka_poll(h->rk, 0);
        if (pst_mono_us() > until || (h->to.give_up && h->to.give_up(h->to.owner)))
            return RD_KAFKA_RESP_ERR__TIMED_OUT;
    }
    int code = rd_kafka_event_error(ev);
    if (!code) {
        x->answer = ev;
        return 0;
    }
    rd_kafka_poll(h->rk, 0);
    snprintf(why, size, "%s", rd_kafka_event_error_string(ev));
    rd_kafka_event_destroy(ev);
    return code;
}

static void question_end(question *x)
{
    if (x->answer)
        rd_kafka_event_destroy(x->answer);
    if (x->how)
        rd_kafka_AdminOptions_destroy(x->how);
    rd_kafka_queue_destroy(x->q);
}

static void say(char *why, size_t size, const char *text)
{
    snprintf(why, size, "%s", text ? text : "");
}

/* ---- topics ---------------------------------------------------------------------------------------------------------------- */

static int topics(bus_handle *h, int timeout_ms, pst_topic_info **ret_topics, size_t *ret_n, int *ret_brokers)
{
    const rd_kafka_metadata_t *m;
    rd_kafka_resp_err_t code = rd_kafka_metadata(rdk_of(h)->rk, 1, NULL, &m, timeout_ms);
    if (code)
        return code;
    pst_topic_info *list = pst_alloc((m->topic_cnt + 1) * sizeof *list);
    for (int i = 0; i < m->topic_cnt; i++)
        list[i] = (pst_topic_info){.name = pst_strdup(m->topics[i].topic), .partitions = m->topics[i].partition_cnt};
    *ret_topics = list;
    *ret_n = m->topic_cnt;
    *ret_brokers = m->broker_cnt;
    rd_kafka_metadata_destroy(m);
    return 0;
}

static rd_kafka_NewTopic_t *new_topic(const pst_topic_spec *spec, char *why, size_t size)
{
    rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(spec->name, spec->partitions > 0 ? spec->partitions : -1,
                                                   spec->replication > 0 ? spec->replication : -1, why, size);
    for (const char *const *kv = spec->configs; t && kv && kv[0] && kv[1]; kv += 2)
        rd_kafka_NewTopic_set_config(t, kv[0], kv[1]);
    return t;
}

static int first_refused(rd_kafka_event_t *ev, const pst_topic_spec *specs, size_t n_specs, const char **ret_topic, char *why, size_t size)
{
    size_t n = 0;
    const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(ev), &n);
    for (size_t i = 0; i < n; i++) {
        rd_kafka_resp_err_t code = rd_kafka_topic_result_error(results[i]);
        if (!code || code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
            continue;
        for (size_t k = 0; k < n_specs; k++)
            if (!strcmp(specs[k].name, rd_kafka_topic_result_name(results[i])))
                *ret_topic = specs[k].name;
        say(why, size, rd_kafka_topic_result_error_string(results[i]));
        return code;
    }
    return 0;
}

static int ask_to_create(bus_handle *h, rd_kafka_NewTopic_t **list, const pst_topic_spec *specs, size_t n, int timeout_ms,
                         const char **ret_topic, char *why, size_t size)
{
    char ignored[100];
    question x = question_new(h);
    x.how = rd_kafka_AdminOptions_new(x.h->rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_AdminOptions_set_request_timeout(x.how, timeout_ms, ignored, sizeof ignored);
    rd_kafka_AdminOptions_set_operation_timeout(x.how, timeout_ms, ignored, sizeof ignored);
    rd_kafka_CreateTopics(x.h->rk, list, n, x.how, x.q);
    int code = await_answer(&x, timeout_ms, why, size);
    if (!code)
        code = first_refused(x.answer, specs, n, ret_topic, why, size);
    question_end(&x);
    return code;
}

static int create(bus_handle *h, const pst_topic_spec *specs, size_t n, int timeout_ms, const char **ret_topic, char *why, size_t size)
{
    int code = 0;
    rd_kafka_NewTopic_t **list = pst_alloc(n * sizeof *list);
    for (size_t i = 0; i < n && !code; i++) {
        list[i] = new_topic(&specs[i], why, size);
        if (!list[i]) {
            *ret_topic = specs[i].name;
            code = RD_KAFKA_RESP_ERR__INVALID_ARG;
        }
    }
    if (!code)
        code = ask_to_create(h, list, specs, n, timeout_ms, ret_topic, why, size);
    for (size_t i = 0; i < n; i++)
        if (list[i])
            rd_kafka_NewTopic_destroy(list[i]);
    free(list);
    return code;
}

/* All settings of the topic are asked for, since Kafka tells defaults too: a key that is not among them does not exist. */
static int topic_config(bus_handle *h, const char *topic, const char *key, int timeout_ms, char **ret_value, char *why, size_t size)
{
    question x = question_new(h);
    rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    rd_kafka_DescribeConfigs(x.h->rk, &resource, 1, NULL, x.q);
    int code = await_answer(&x, timeout_ms, why, size);
    size_t n = 0, m = 0;
    const rd_kafka_ConfigResource_t **found =
        code ? NULL : rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(x.answer), &n);
    if (n)
        code = rd_kafka_ConfigResource_error(found[0]);
    if (n && code)
        say(why, size, rd_kafka_ConfigResource_error_string(found[0]));
    const rd_kafka_ConfigEntry_t **entries = n && !code ? rd_kafka_ConfigResource_configs(found[0], &m) : NULL;
    const char *value = NULL;
    for (size_t i = 0; i < m && !value; i++) {
        if (!strcmp(rd_kafka_ConfigEntry_name(entries[i]), key))
            value = rd_kafka_ConfigEntry_value(entries[i]);
    }
    *ret_value = pst_strdup(value);
    rd_kafka_ConfigResource_destroy(resource);
    question_end(&x);
    return code;
}

/* ---- groups ---------------------------------------------------------------------------------------------------------------- */

static int groups(bus_handle *h, int timeout_ms, char ***ret_names, char *why, size_t size)
{
    question x = question_new(h);
    rd_kafka_ListConsumerGroups(x.h->rk, NULL, x.q);
    int code = await_answer(&x, timeout_ms, why, size);
    if (!code) {
        size_t n = 0;
        const rd_kafka_ConsumerGroupListing_t **list =
            rd_kafka_ListConsumerGroups_result_valid(rd_kafka_event_ListConsumerGroups_result(x.answer), &n);
        char **names = pst_alloc((n + 1) * sizeof *names);
        for (size_t i = 0; i < n; i++)
            names[i] = pst_strdup(rd_kafka_ConsumerGroupListing_group_id(list[i]));
        *ret_names = names;
    }
    question_end(&x);
    return code;
}

/* An answer about groups has a result for each that was asked for, which is one; its error is the group's. */
static int of_one_group(size_t n, const rd_kafka_error_t *e, char *why, size_t size)
{
    if (!n)
        return RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (!e)
        return 0;
    say(why, size, rd_kafka_error_string(e));
    return rd_kafka_error_code(e);
}

/* Into the places that were named, or new ones. */
static void take_offsets(const rd_kafka_topic_partition_list_t *list, bus_places *places)
{
    bool named = places->n > 0;
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[i];
        for (size_t k = 0; named && k < places->n; k++)
            if (places->at[k].partition == tp->partition && !strcmp(places->at[k].topic, tp->topic))
                rdk_place_set(&places->at[k], tp);
    }
    if (named)
        return;
    places->at = pst_alloc((list->cnt + 1) * sizeof *places->at);
    places->n = places->cap = list->cnt;
    for (int i = 0; i < list->cnt; i++) {
        places->at[i] = (bus_place){.topic = pst_strdup(list->elems[i].topic), .partition = list->elems[i].partition};
        rdk_place_set(&places->at[i], &list->elems[i]);
    }
}

/* The errors of single places stay with them. */
static int group_offsets(bus_handle *h, const char *group, bool stable, int timeout_ms, bus_places *places, char *why, size_t size)
{
    question x = question_new(h);
    rd_kafka_topic_partition_list_t *of = places->n ? rdk_list(places) : NULL;
    rd_kafka_ListConsumerGroupOffsets_t *ask = rd_kafka_ListConsumerGroupOffsets_new(group, of);
    x.how = rd_kafka_AdminOptions_new(x.h->rk, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS);
    rd_kafka_error_destroy(rd_kafka_AdminOptions_set_require_stable_offsets(x.how, stable));
    rd_kafka_ListConsumerGroupOffsets(x.h->rk, &ask, 1, x.how, x.q);
    int code = await_answer(&x, timeout_ms, why, size);
    if (!code) {
        size_t n = 0;
        const rd_kafka_group_result_t **results =
            rd_kafka_ListConsumerGroupOffsets_result_groups(rd_kafka_event_ListConsumerGroupOffsets_result(x.answer), &n);
        const rd_kafka_topic_partition_list_t *list = n ? rd_kafka_group_result_partitions(results[0]) : NULL;
        code = of_one_group(n, n ? rd_kafka_group_result_error(results[0]) : NULL, why, size);
        if (!code && list)
            take_offsets(list, places);
    }
    if (of)
        rd_kafka_topic_partition_list_destroy(of);
    rd_kafka_ListConsumerGroupOffsets_destroy(ask);
    question_end(&x);
    return code;
}

static void take_given(const rd_kafka_topic_partition_list_t *list, bus_places *given)
{
    for (int i = 0; list && i < list->cnt; i++) {
        given->at = pst_array_room(given->at, given->n, &given->cap, sizeof *given->at);
        given->at[given->n++] =
            (bus_place){.topic = pst_strdup(list->elems[i].topic), .partition = list->elems[i].partition, .offset = BUS_OFFSET_NONE};
    }
}

static void take_members(const rd_kafka_ConsumerGroupDescription_t *group, bus_members *ret)
{
    size_t n = rd_kafka_ConsumerGroupDescription_member_count(group);
    *ret = (bus_members){.instances = pst_alloc((n + 1) * sizeof *ret->instances),
                         .stable = rd_kafka_ConsumerGroupDescription_state(group) == RD_KAFKA_CONSUMER_GROUP_STATE_STABLE};
    for (size_t i = 0; i < n; i++) {
        const rd_kafka_MemberDescription_t *member = rd_kafka_ConsumerGroupDescription_member(group, i);
        const rd_kafka_MemberAssignment_t *given = rd_kafka_MemberDescription_assignment(member);
        const rd_kafka_topic_partition_list_t *list = given ? rd_kafka_MemberAssignment_partitions(given) : NULL;
        const char *instance = rd_kafka_MemberDescription_group_instance_id(member);
        take_given(list, &ret->given);
        if (instance)
            ret->instances[ret->n++] = pst_strdup(instance);
    }
}

static int group_members(bus_handle *h, const char *group, int timeout_ms, bus_members *ret, char *why, size_t size)
{
    question x = question_new(h);
    x.how = rd_kafka_AdminOptions_new(x.h->rk, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS);
    rd_kafka_DescribeConsumerGroups(x.h->rk, &group, 1, x.how, x.q);
    int code = await_answer(&x, timeout_ms, why, size);
    if (!code) {
        size_t n = 0;
        const rd_kafka_ConsumerGroupDescription_t **list =
            rd_kafka_DescribeConsumerGroups_result_groups(rd_kafka_event_DescribeConsumerGroups_result(x.answer), &n);
        code = of_one_group(n, n ? rd_kafka_ConsumerGroupDescription_error(list[0]) : NULL, why, size);
        if (!code)
            take_members(list[0], ret);
    }
    question_end(&x);
    return code;
}

const bus_admin_ops rdk_admin_ops = {
    .open = admin_open,
    .topics = topics,
    .create = create,
    .topic_config = topic_config,
    .groups = groups,
    .group_offsets = group_offsets,
    .group_members = group_members,
};
