/* wire_fake_net.c - see the header. Requests are written as a connection would write them, read as a broker reads them, and carried out by a model of
 * one: five remembered batches a producer and partition, epochs, one transactional id. Written from Kafka's protocol guide and KIPs 98, 360, 890. */
#include "wire_fake_net.h"

#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wire_call {
    size_t splices;
    struct wire_call *next;
    wire_net *net;
    const wire_api *api;
    int32_t node;
    wire_put_body put;
    wire_on_answer answered;
    void *owner;
    int16_t version;
    pst_buf body, answer;
    int state; /* 0 made, 1 written, 2 answered */
    bool forgotten, broken;
    int64_t until_us;
};

struct wire_net {
    wire_call *calls;
    int turns;
};

typedef struct seen { /* what a partition knows of a producer */
    int64_t pid;
    int16_t epoch;
    int32_t first[5], last[5];
    int64_t offset[5];
    int n;
} seen;

fake_cluster fake;

static struct {
    int leaders[FAKE_TOPICS][FAKE_PARTS];
    seen *seen[FAKE_TOPICS][FAKE_PARTS];
    size_t n_seen[FAKE_TOPICS][FAKE_PARTS];
    int64_t next_pid;
    int64_t txn_pid; /* of the one transactional id */
    int16_t txn_epoch;
    bool ongoing, in_txn[FAKE_TOPICS][FAKE_PARTS], group_in;
    int64_t pending_offsets;
    wire_call *late; /* requests that arrive though nobody waits for them */
    uint64_t rng;
} model;

static const char *const names[FAKE_TOPICS] = {"one", "two"};

static uint64_t chance(void)
{
    model.rng ^= model.rng << 13;
    model.rng ^= model.rng >> 7;
    return model.rng ^= model.rng << 17;
}

static bool happens(int in_a_thousand)
{
    return (int)(chance() % 1000) < in_a_thousand;
}

void fake_done(void)
{
    for (int t = 0; t < FAKE_TOPICS; t++)
        for (int p = 0; p < FAKE_PARTS; p++) {
            free(fake.logs[t][p].at);
            free(model.seen[t][p]);
        }
    while (model.late) {
        wire_call *c = model.late;
        model.late = c->next;
        pst_buf_done(&c->body);
        free(c);
    }
    memset(&fake, 0, sizeof fake);
    memset(&model, 0, sizeof model);
}

void fake_reset(uint64_t seed)
{
    fake_done();
    model.rng = seed * 0x9e3779b97f4a7c15ULL + 1;
    model.next_pid = 100;
    model.txn_pid = -1;
    fake.known_topics = FAKE_TOPICS;
    for (int t = 0; t < FAKE_TOPICS; t++)
        for (int p = 0; p < FAKE_PARTS; p++)
            model.leaders[t][p] = p % FAKE_NODES;
}

void fake_fence(void)
{
    model.txn_epoch++;
}

/* ---- the brokers --------------------------------------------------------------------------------------------------------------------- */

static int topic_of(wire_str name)
{
    for (int t = 0; t < fake.known_topics; t++)
        if (wire_str_is(name, names[t]))
            return t;
    return -1;
}

static seen *seen_of(int t, int p, int64_t pid)
{
    for (size_t i = 0; i < model.n_seen[t][p]; i++)
        if (model.seen[t][p][i].pid == pid)
            return &model.seen[t][p][i];
    model.seen[t][p] = pst_realloc(model.seen[t][p], (model.n_seen[t][p] + 1) * sizeof(seen));
    seen *s = &model.seen[t][p][model.n_seen[t][p]++];
    *s = (seen){.pid = pid, .epoch = -1};
    return s;
}

static int check_numbers(seen *s, const wire_batch_head *h, int64_t *ret_offset)
{
    int32_t last = (int32_t)(((uint32_t)h->base_sequence + h->n - 1) & 0x7fffffff);
    if (h->producer_epoch < s->epoch)
        return BUS_ERR_INVALID_PRODUCER_EPOCH;
    if (h->producer_epoch > s->epoch) {
        if (h->base_sequence != 0)
            return BUS_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        *s = (seen){.pid = s->pid, .epoch = h->producer_epoch};
    }
    for (int i = 0; i < s->n; i++)
        if (s->first[i] == h->base_sequence && s->last[i] == last) {
            *ret_offset = s->offset[i];
            return 46;
        }
    int32_t expected = s->n ? (int32_t)(((uint32_t)s->last[s->n - 1] + 1) & 0x7fffffff) : 0;
    return h->base_sequence == expected ? 0 : BUS_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
}

static void remember(seen *s, const wire_batch_head *h, int64_t offset)
{
    if (s->n == 5) {
        memmove(s->first, s->first + 1, 4 * sizeof *s->first);
        memmove(s->last, s->last + 1, 4 * sizeof *s->last);
        memmove(s->offset, s->offset + 1, 4 * sizeof *s->offset);
        s->n = 4;
    }
    s->first[s->n] = h->base_sequence;
    s->last[s->n] = (int32_t)(((uint32_t)h->base_sequence + h->n - 1) & 0x7fffffff);
    s->offset[s->n++] = offset;
}

static void write_records(int t, int p, const wire_batch_head *h)
{
    fake_log *log = &fake.logs[t][p];
    wire_records r = {0};
    wire_block *copy = wire_block_new(h->records_len);
    memcpy(copy->data, h->records, h->records_len);
    copy->len = h->records_len;
    wire_batch_head of = *h;
    of.records = copy->data;
    pst_err err = {0};
    PST_ASSERT(wire_records_begin(&of, copy, &r, &err) == 0);
    pst_record rec = {0};
    while (wire_records_next(&r, &rec, 1, &err) == 1) {
        if (log->n == log->cap) {
            log->cap = log->cap ? 2 * log->cap : 64;
            log->at = pst_realloc(log->at, log->cap * sizeof *log->at);
        }
        fake_record *w = &log->at[log->n++];
        *w = (fake_record){.pid = h->producer_id, .epoch = h->producer_epoch, .number = -1, .fate = !h->transactional};
        if (rec.value_len >= 4)
            memcpy(&w->number, rec.value, 4);
        if (rec.has_headers) {
            pst_header some[4];
            w->headers = wire_record_headers(&rec, some, 4);
        }
        snprintf(w->key, sizeof w->key, "%.*s", (int)(rec.key_len < 15 ? rec.key_len : 15), rec.key ? (const char *)rec.key : "");
    }
    PST_ASSERT(!err.code);
    wire_records_done(&r);
    wire_block_drop(copy);
}

static int produce_to(int t, int p, int32_t node, wire_str records, bool by_produce, int64_t *ret_offset)
{
    wire_in in = wire_in_of(records.at, records.len, false);
    wire_batch_head h;
    pst_err err = {0};
    PST_ASSERT(wire_batch_next(&in, true, &h, &err) == 1); /* also its checksum */
    PST_ASSERT(wire_in_left(&in) == 0);
    if ((int)h.n > fake.batch_max)
        fake.batch_max = (int)h.n;
    if (model.leaders[t][p] != node)
        return BUS_ERR_NOT_LEADER_FOR_PARTITION;
    if (happens(fake.chances.refuse))
        return BUS_ERR_NOT_ENOUGH_REPLICAS;
    if (h.transactional) {
        if (h.producer_id != model.txn_pid)
            return 49;
        if (h.producer_epoch != model.txn_epoch)
            return BUS_ERR_INVALID_PRODUCER_EPOCH;
        if (by_produce)
            model.ongoing = model.in_txn[t][p] = true;
        if (!model.in_txn[t][p])
            return BUS_ERR_INVALID_TXN_STATE;
    }
    seen *s = seen_of(t, p, h.producer_id);
    int code = check_numbers(s, &h, ret_offset);
    if (code)
        return code;
    *ret_offset = (int64_t)fake.logs[t][p].n;
    remember(s, &h, *ret_offset);
    write_records(t, p, &h);
    return 0;
}

static void produce(wire_call *c, wire_in *in, wire_out *out)
{
    fake.produces++;
    int code_all = 0;
    if (fake.next_code && fake.next_from-- <= 0) {
        code_all = fake.next_code;
        fake.next_code = 0;
    }
    wire_get_str(in);
    PST_ASSERT(wire_get_i16(in) == -1); /* acks=all */
    wire_get_i32(in);
    size_t topics = wire_get_count(in, 1, NULL);
    wire_put_count(out, topics);
    for (; topics; topics--) {
        wire_str name = wire_get_str(in);
        int t = topic_of(name);
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)name.len, name.at);
        wire_put_str(out, text);
        size_t n = wire_get_count(in, 1, NULL);
        wire_put_count(out, n);
        for (; n; n--) {
            int32_t p = wire_get_i32(in);
            wire_str records = wire_get_blob(in);
            wire_get_tags(in);
            int64_t offset = -1;
            int code = code_all;
            if (!code)
                code = t < 0 || p >= FAKE_PARTS ? BUS_ERR_UNKNOWN_TOPIC_OR_PART
                                                : produce_to(t, p, c->node, records, c->version >= 12, &offset);
            wire_put_i32(out, p);
            wire_put_i16(out, (int16_t)code);
            wire_put_i64(out, offset);
            wire_put_i64(out, -1);
            wire_put_i64(out, 0);
            if (c->version >= 8) {
                wire_put_count(out, 0);
                wire_put_str(out, code ? "the model says no" : NULL);
            }
            wire_put_tags(out);
        }
        wire_get_tags(in);
        wire_put_tags(out);
    }
    wire_get_tags(in);
    wire_put_i32(out, 0);
    wire_put_tags(out);
}

static void end_all(bool commit)
{
    for (int t = 0; t < FAKE_TOPICS; t++)
        for (int p = 0; p < FAKE_PARTS; p++) {
            for (size_t i = 0; i < fake.logs[t][p].n; i++) {
                fake_record *r = &fake.logs[t][p].at[i];
                if (model.in_txn[t][p] && r->pid == model.txn_pid && !r->fate)
                    r->fate = commit ? 1 : 2;
            }
            model.in_txn[t][p] = false;
        }
    if (commit)
        fake.offset_sum += model.pending_offsets;
    model.pending_offsets = 0;
    model.ongoing = model.group_in = false;
}

static void init(wire_call *c, wire_in *in, wire_out *out)
{
    fake.inits++;
    wire_str id = wire_get_str(in);
    wire_get_i32(in);
    int64_t pid = c->version >= 3 ? wire_get_i64(in) : -1;
    int16_t epoch = c->version >= 3 ? wire_get_i16(in) : -1;
    wire_get_tags(in);
    int code = 0;
    wire_put_i32(out, 0);
    if (!id.at) {
        wire_put_i16(out, 0);
        wire_put_i64(out, model.next_pid++);
        wire_put_i16(out, 0);
    } else {
        if (pid >= 0 && (pid != model.txn_pid || epoch != model.txn_epoch))
            code = BUS_ERR_PRODUCER_FENCED;
        else if (model.ongoing) {
            end_all(false);
            code = BUS_ERR_CONCURRENT_TRANSACTIONS;
            model.txn_epoch++;
        } else if (model.txn_pid < 0)
            model.txn_pid = model.next_pid++;
        else
            model.txn_epoch++;
        wire_put_i16(out, (int16_t)code);
        wire_put_i64(out, code ? -1 : model.txn_pid);
        wire_put_i16(out, code ? -1 : model.txn_epoch);
    }
    wire_put_tags(out);
}

static int owner_code(int64_t pid, int16_t epoch)
{
    return pid != model.txn_pid ? 49 : epoch != model.txn_epoch ? BUS_ERR_PRODUCER_FENCED : 0;
}

static void join(wire_call *c, wire_in *in, wire_out *out)
{
    fake.joins++;
    wire_get_str(in);
    int64_t pid = wire_get_i64(in);
    int code = owner_code(pid, wire_get_i16(in));
    if (!code && happens(fake.chances.refuse))
        code = BUS_ERR_CONCURRENT_TRANSACTIONS;
    wire_put_i32(out, 0);
    size_t topics = wire_get_count(in, 1, NULL);
    wire_put_count(out, topics);
    for (; topics; topics--) {
        wire_str name = wire_get_str(in);
        int t = topic_of(name);
        wire_put_str(out, t < 0 ? "?" : names[t]);
        size_t n = wire_get_count(in, 4, NULL);
        wire_put_count(out, n);
        for (; n; n--) {
            int32_t p = wire_get_i32(in);
            if (!code && t >= 0)
                model.ongoing = model.in_txn[t][p] = true;
            wire_put_i32(out, p);
            wire_put_i16(out, (int16_t)(t < 0 ? BUS_ERR_UNKNOWN_TOPIC_OR_PART : code));
            wire_put_tags(out);
        }
        wire_get_tags(in);
        wire_put_tags(out);
    }
    wire_put_tags(out);
}

static void join_group(wire_call *c, wire_in *in, wire_out *out)
{
    wire_get_str(in);
    int64_t pid = wire_get_i64(in);
    int code = owner_code(pid, wire_get_i16(in));
    if (!code)
        model.ongoing = model.group_in = true;
    wire_put_i32(out, 0);
    wire_put_i16(out, (int16_t)code);
    wire_put_tags(out);
}

static void take_offsets(wire_call *c, wire_in *in, wire_out *out)
{
    fake.offsets++;
    wire_get_str(in);
    wire_get_str(in);
    int64_t pid = wire_get_i64(in);
    int code = owner_code(pid, wire_get_i16(in));
    int32_t generation = wire_get_i32(in);
    if (!code && generation != 7)
        code = BUS_ERR_ILLEGAL_GENERATION;
    wire_get_str(in);
    wire_get_str(in);
    if (!code && c->version >= 5)
        model.ongoing = model.group_in = true;
    if (!code && !model.group_in)
        code = BUS_ERR_INVALID_TXN_STATE;
    int64_t sum = 0;
    wire_put_i32(out, 0);
    size_t topics = wire_get_count(in, 1, NULL);
    wire_put_count(out, topics);
    for (; topics; topics--) {
        wire_get_str(in);
        wire_put_str(out, "in");
        size_t n = wire_get_count(in, 4, NULL);
        wire_put_count(out, n);
        for (; n; n--) {
            int32_t p = wire_get_i32(in);
            sum += wire_get_i64(in);
            wire_get_i32(in);
            wire_get_str(in);
            wire_get_tags(in);
            wire_put_i32(out, p);
            wire_put_i16(out, (int16_t)code);
            wire_put_tags(out);
        }
        wire_get_tags(in);
        wire_put_tags(out);
    }
    PST_ASSERT(!in->bad);
    wire_put_tags(out);
    if (!code)
        model.pending_offsets = sum;
}

static void end(wire_call *c, wire_in *in, wire_out *out)
{
    static bool last_commit;
    fake.ends++;
    wire_get_str(in);
    int64_t pid = wire_get_i64(in);
    int16_t epoch = wire_get_i16(in);
    bool commit = wire_get_bool(in);
    int code = fake.next_end_code ? fake.next_end_code : owner_code(pid, epoch);
    fake.next_end_code = 0;
    bool again = c->version >= 5 && pid == model.txn_pid && epoch + 1 == model.txn_epoch && !model.ongoing && commit == last_commit;
    if (again)
        code = 0;
    else if (!code && !model.ongoing && c->version >= 5 && commit)
        code = BUS_ERR_INVALID_TXN_STATE;
    else if (!code) {
        end_all(commit);
        last_commit = commit;
        model.txn_epoch += c->version >= 5;
    }
    wire_put_i32(out, 0);
    wire_put_i16(out, (int16_t)code);
    if (c->version >= 5) {
        wire_put_i64(out, model.txn_pid);
        wire_put_i16(out, model.txn_epoch);
    }
    wire_put_tags(out);
}

static void carry_out(wire_call *c)
{
    bool flexible = c->version >= c->api->flexible;
    wire_in in = wire_in_of(c->body.data, c->body.len, flexible);
    wire_out out = {.to = &c->answer, .flexible = flexible};
    switch (c->api->key) {
    case 0: produce(c, &in, &out); break;
    case 22: init(c, &in, &out); break;
    case 24: join(c, &in, &out); break;
    case 25: join_group(c, &in, &out); break;
    case 26: end(c, &in, &out); break;
    case 28: take_offsets(c, &in, &out); break;
    default: PST_ASSERT(!"a request of no producer");
    }
    PST_ASSERT(!in.bad);
}

/* ---- the network ------------------------------------------------------------------------------------------------------------------------ */

int wire_net_open(const wire_conf *conf, const bus_listener *to, wire_net **ret, pst_err *err)
{
    *ret = pst_alloc(sizeof **ret);
    return 0;
}

static void free_call(wire_call *c)
{
    pst_buf_done(&c->body);
    pst_buf_done(&c->answer);
    free(c);
}

void wire_net_free(wire_net *net)
{
    while (net->calls) {
        wire_call *c = net->calls;
        net->calls = c->next;
        free_call(c);
    }
    free(net);
}

int wire_net_fatal(const wire_net *net, char *text, size_t size)
{
    return 0;
}

const wire_topic *wire_net_topic(wire_net *net, const char *name)
{
    static int32_t leaders[FAKE_PARTS];
    static wire_topic t;
    if (fake.down)
        return NULL;
    t = (wire_topic){.name = name, .code = BUS_ERR_UNKNOWN_TOPIC_OR_PART};
    for (int i = 0; i < fake.known_topics; i++)
        if (!strcmp(names[i], name)) {
            for (int p = 0; p < FAKE_PARTS; p++)
                leaders[p] = model.leaders[i][p];
            t = (wire_topic){.name = name, .n = FAKE_PARTS, .leader = leaders};
        }
    return &t;
}

int32_t wire_net_leader(wire_net *net, const char *topic, int32_t partition)
{
    const wire_topic *t = wire_net_topic(net, topic);
    return t && partition < t->n ? t->leader[partition] : -1;
}

void wire_net_stale(wire_net *net, const char *topic)
{
}

int32_t wire_net_coordinator(wire_net *net, wire_coordinator_kind kind, const char *key, int *ret_code)
{
    if (ret_code)
        *ret_code = 0;
    return fake.down ? -1 : 0;
}

void wire_net_coordinator_stale(wire_net *net, wire_coordinator_kind kind, const char *key)
{
}

int32_t wire_net_any(wire_net *net)
{
    return fake.down ? -1 : 1;
}

int wire_net_feature(const wire_net *net, const char *name)
{
    return fake.level;
}

wire_call *wire_net_call(wire_net *net, int32_t node, const wire_api *api, int timeout_ms, wire_put_body put, wire_on_answer answered,
                         void *owner)
{
    wire_call *c = pst_alloc(sizeof *c), **at = &net->calls;
    *c = (wire_call){.net = net,
                     .api = api,
                     .node = node,
                     .put = put,
                     .answered = answered,
                     .owner = owner,
                     .version = api->max,
                     .until_us = pst_mono_us() + timeout_ms * 1000LL};
    while (*at)
        at = &(*at)->next;
    return *at = c;
}

void wire_call_splice(wire_call *call, wire_block *block)
{
    call->splices++;
    PST_ASSERT(call->splices <= WIRE_SPLICES);
    pst_buf_add(&call->body, block->data, block->len);
}

void wire_call_throttled(const wire_call *call, int32_t ms)
{
}

void wire_call_forget(wire_call *call)
{
    call->forgotten = true;
}

/* Its connection breaks: what was on it is lost, or comes later all the same. */
static void break_off(wire_net *net, int32_t node)
{
    for (wire_call *c = net->calls; c; c = c->next) {
        if (c->node != node || c->broken || c->state == 0)
            continue;
        c->broken = true;
        if (c->state == 1 && happens(fake.chances.late) && (c->api->key == 0 || c->api->key == 26)) {
            wire_call *z = pst_alloc(sizeof *z);
            z->api = c->api;
            z->version = c->version;
            z->node = c->node;
            pst_buf_add(&z->body, c->body.data, c->body.len);
            wire_call **at = &model.late;
            while (*at)
                at = &(*at)->next;
            *at = z;
        }
    }
}

static void deliver(wire_call *c)
{
    wire_answer a = {.version = c->version, .node = c->node, .sent = c->state > 0};
    if (c->broken)
        a.code = BUS_ERR__TRANSPORT;
    else if (c->state < 2)
        a.code = BUS_ERR__TIMED_OUT;
    else
        a.body = wire_in_of(c->answer.data, c->answer.len, c->version >= c->api->flexible);
    if (!c->forgotten)
        c->answered(c->owner, c, &a);
}

static void step(wire_net *net, wire_call *c)
{
    if (c->state == 1 && !c->broken) {
        if (happens(fake.chances.lose)) {
            break_off(net, c->node);
            return;
        }
        carry_out(c);
        c->state = 2;
        if (happens(fake.chances.mute))
            break_off(net, c->node);
    } else if (c->state == 0 && !fake.down && !c->forgotten) {
        wire_out out = {.to = &c->body, .flexible = c->version >= c->api->flexible};
        pst_buf_reserve(&c->body, 64);
        c->put(c->owner, c, c->version, &out);
        c->state = 1;
    }
}

static void late_ones(void)
{
    wire_call *c = model.late;
    if (!c || chance() % 8)
        return;
    model.late = c->next;
    carry_out(c);
    free_call(c);
}

int wire_net_turn(wire_net *net, int timeout_ms)
{
    int told = 0;
    net->turns++;
    late_ones();
    if (happens(fake.chances.move)) {
        int t = (int)(chance() % FAKE_TOPICS), p = (int)(chance() % FAKE_PARTS);
        model.leaders[t][p] = (model.leaders[t][p] + 1) % FAKE_NODES;
    }
    int64_t now = pst_mono_us();
    for (wire_call **at = &net->calls, *c; (c = *at);) {
        if (c->state == 2 || c->broken || now >= c->until_us || (c->forgotten && c->state == 0)) {
            *at = c->next;
            told += !c->forgotten;
            deliver(c);
            free_call(c);
            continue;
        }
        at = &c->next;
    }
    for (wire_call *c = net->calls; c; c = c->next)
        step(net, c);
    if (!net->calls && timeout_ms > 0)
        pst_sleep_ms(1);
    return told;
}

/* ---- and what else a producer calls ----------------------------------------------------------------------------------------------------- */

static const char *code_text(int code)
{
    static char text[32];
    snprintf(text, sizeof text, "code %d", code);
    return text;
}

static const bus_common_ops common_ops = {.code_text = code_text};
const bus_client pst_wire_client = {.name = "wire", .common = &common_ops, .producer = &wire_producer_ops};
