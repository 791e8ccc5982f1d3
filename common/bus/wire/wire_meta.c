/* wire_meta.c - the requests and answers of wire_meta.h, field by field as Kafka's message definitions have them. What we do not use is read all the same: an answer must
 * be used up to its last byte, or it is none. A name with a NUL inside would be another one to C than to the broker; such an answer is broken. */
#include "common/bus/wire/wire_meta.h"
#include "common/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const wire_api wire_api_versions = {.key = 18, .min = 0, .max = 4, .flexible = 3, .name = "ApiVersions"};
const wire_api wire_api_metadata = {.key = 3, .min = 7, .max = 13, .flexible = 9, .name = "Metadata"};
const wire_api wire_api_find_coordinator = {.key = 10, .min = 1, .max = 5, .flexible = 3, .name = "FindCoordinator"};

enum { FLEXIBLE_VERSIONS = 3 };

/* ---- ApiVersions ------------------------------------------------------------------------------------------------------------------ */

void wire_versions_put(int16_t version, wire_out *out)
{
    if (version < FLEXIBLE_VERSIONS)
        return;
    wire_put_str(out, "penstock");
    wire_put_str(out, PST_VERSION);
    wire_put_tags(out);
}

static void get_features(wire_in *in, wire_versions *ret)
{
    size_t n = wire_get_count(in, 6, NULL);
    for (size_t i = 0; i < n && !in->bad; i++) {
        wire_str name = wire_get_str(in);
        int max = wire_get_i16(in);
        wire_get_i16(in);
        wire_get_tags(in);
        if (in->bad || !name.at || name.len >= sizeof ret->features->name || ret->n_features == WIRE_FEATURES)
            continue;
        wire_feature *f = &ret->features[ret->n_features++];
        memcpy(f->name, name.at, name.len);
        f->name[name.len] = 0;
        f->level = max < 0 ? 0 : max;
    }
}

/* Tagged fields: 1 = epoch of the finalised features, 2 = these. Others are skipped. Each is read within its own length. */
static void get_version_tags(wire_in *in, wire_versions *ret)
{
    uint32_t n = wire_get_uvarint(in);
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        uint32_t tag = wire_get_uvarint(in), len = wire_get_uvarint(in);
        const uint8_t *at = wire_get_bytes(in, len);
        if (!at)
            return;
        wire_in field = wire_in_of(at, len, true);
        if (tag == 1)
            ret->epoch = wire_get_i64(&field);
        else if (tag == 2)
            get_features(&field, ret);
        else
            continue;
        in->bad |= !wire_in_done(&field);
    }
}

int wire_versions_get(wire_in *in, int16_t version, wire_versions *ret)
{
    wire_versions v = {.epoch = -1};
    for (size_t i = 0; i < WIRE_APIS; i++)
        v.api[i].min = v.api[i].max = -1;
    v.code = wire_get_i16(in);
    if (v.code == BUS_ERR_UNSUPPORTED_VERSION)
        version = 0;
    bool flexible = version >= FLEXIBLE_VERSIONS;
    in->flexible = flexible;
    size_t n = wire_get_count(in, flexible ? 7 : 6, NULL);
    for (size_t i = 0; i < n && !in->bad; i++) {
        int key = wire_get_i16(in);
        int16_t min = wire_get_i16(in), max = wire_get_i16(in);
        wire_get_tags(in);
        if (key >= 0 && key < WIRE_APIS && min >= 0 && max >= min) {
            v.api[key].min = min;
            v.api[key].max = max;
        }
    }
    if (version >= 1)
        wire_get_i32(in); /* throttled for so long */
    if (flexible)
        get_version_tags(in, &v);
    if (!wire_in_done(in))
        return PST_EPARSE;
    *ret = v;
    return 0;
}

int16_t wire_versions_best(const wire_versions *v, const wire_api *api)
{
    if (api->key < 0 || api->key >= WIRE_APIS)
        return -1;
    int16_t min = v->api[api->key].min, max = v->api[api->key].max;
    if (max < 0 || max < api->min || min > api->max)
        return -1;
    return max < api->max ? max : api->max;
}

/* ---- Metadata --------------------------------------------------------------------------------------------------------------------- */

void wire_metadata_put(int16_t version, const char *const *topics, size_t n, bool auto_create, wire_out *out)
{
    static const uint8_t no_id[16];
    wire_put_count(out, n);
    for (size_t i = 0; i < n; i++) {
        if (version >= 10)
            wire_put_uuid(out, no_id);
        wire_put_str(out, topics[i]);
        wire_put_tags(out);
    }
    wire_put_bool(out, auto_create);
    if (version >= 8 && version <= 10)
        wire_put_bool(out, false); /* what we may do with the cluster, */
    if (version >= 8)
        wire_put_bool(out, false); /* and with the topics: not asked */
    wire_put_tags(out);
}

/* NULL of null; a NUL inside breaks the answer. */
static char *get_text(wire_in *in)
{
    wire_str s = wire_get_str(in);
    if (in->bad || !s.at)
        return NULL;
    if (memchr(s.at, 0, s.len)) {
        in->bad = true;
        return NULL;
    }
    return wire_str_dup(s);
}

static void skip_i32s(wire_in *in)
{
    size_t n = wire_get_count(in, 4, NULL);
    wire_get_bytes(in, n * 4);
}

static void get_broker(wire_in *in, wire_broker *b)
{
    b->id = wire_get_i32(in);
    b->host = get_text(in);
    b->port = wire_get_i32(in);
    b->rack = get_text(in);
    wire_get_tags(in);
    if (!b->host || b->id < 0 || b->port < 1 || b->port > 65535)
        in->bad = true;
}

static void get_partitions(wire_in *in, int16_t version, wire_meta_topic *t)
{
    size_t n = wire_get_count(in, version >= 9 ? 18 : 26, NULL);
    if (in->bad || !n)
        return;
    t->leader = pst_alloc(n * sizeof *t->leader);
    t->epoch = pst_alloc(n * sizeof *t->epoch);
    t->n = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        t->leader[i] = t->epoch[i] = -1;
    for (size_t i = 0; i < n && !in->bad; i++) {
        int code = wire_get_i16(in);
        int32_t p = wire_get_i32(in), leader = wire_get_i32(in), epoch = wire_get_i32(in);
        skip_i32s(in);
        skip_i32s(in);
        skip_i32s(in);
        wire_get_tags(in);
        if (in->bad)
            return;
        if (p < 0 || (size_t)p >= n) { /* they are numbered from 0, and all of them are told */
            in->bad = true;
            return;
        }
        /* REPLICA_NOT_AVAILABLE is about followers: the leader is there. */
        bool has = leader >= 0 && (!code || code == BUS_ERR_REPLICA_NOT_AVAILABLE);
        t->leader[p] = has ? leader : -1;
        t->epoch[p] = epoch;
    }
}

static void get_topic(wire_in *in, int16_t version, wire_meta_topic *t)
{
    t->code = wire_get_i16(in);
    t->name = get_text(in);
    if (version >= 10)
        wire_get_uuid(in, t->id);
    wire_get_bool(in); /* internal */
    get_partitions(in, version, t);
    if (version >= 8)
        wire_get_i32(in); /* what we may do */
    wire_get_tags(in);
    if (!t->name && version < 12)
        in->bad = true;
}

int wire_metadata_get(wire_in *in, int16_t version, wire_metadata *ret)
{
    wire_metadata m = {0};
    bool flexible = version >= wire_api_metadata.flexible;
    wire_get_i32(in); /* throttled for so long */
    size_t n = wire_get_count(in, flexible ? 11 : 12, NULL);
    m.brokers = pst_alloc((n + 1) * sizeof *m.brokers);
    for (; m.n_brokers < n && !in->bad; m.n_brokers++)
        get_broker(in, &m.brokers[m.n_brokers]);
    m.cluster_id = get_text(in);
    wire_get_i32(in); /* the controller */
    n = wire_get_count(in, flexible ? 6 : 9, NULL);
    m.topics = pst_alloc((n + 1) * sizeof *m.topics);
    for (; m.n_topics < n && !in->bad; m.n_topics++)
        get_topic(in, version, &m.topics[m.n_topics]);
    if (version >= 8 && version <= 10)
        wire_get_i32(in);
    if (version >= 13)
        m.code = wire_get_i16(in);
    wire_get_tags(in);
    if (!wire_in_done(in)) {
        wire_metadata_clear(&m);
        return PST_EPARSE;
    }
    *ret = m;
    return 0;
}

void wire_metadata_clear(wire_metadata *m)
{
    for (size_t i = 0; i < m->n_brokers; i++) {
        free(m->brokers[i].host);
        free(m->brokers[i].rack);
    }
    for (size_t i = 0; i < m->n_topics; i++) {
        free(m->topics[i].name);
        free(m->topics[i].leader);
        free(m->topics[i].epoch);
    }
    free(m->brokers);
    free(m->topics);
    free(m->cluster_id);
    memset(m, 0, sizeof *m);
}

/* ---- FindCoordinator ---------------------------------------------------------------------------------------------------------------- */

enum { SEVERAL_KEYS = 4 };

void wire_coordinator_put(int16_t version, wire_coordinator_kind kind, const char *key, wire_out *out)
{
    if (version < SEVERAL_KEYS)
        wire_put_str(out, key);
    wire_put_i8(out, (int8_t)kind);
    if (version >= SEVERAL_KEYS) {
        wire_put_count(out, 1);
        wire_put_str(out, key);
    }
    wire_put_tags(out);
}

static void get_place(wire_in *in, wire_found *f)
{
    f->at.id = wire_get_i32(in);
    f->at.host = get_text(in);
    f->at.port = wire_get_i32(in);
}

int wire_coordinator_get(wire_in *in, int16_t version, const char *key, wire_found *ret)
{
    wire_found f = {0};
    wire_get_i32(in); /* throttled for so long */
    if (version < SEVERAL_KEYS) {
        f.code = wire_get_i16(in);
        wire_get_str(in); /* a sentence */
        get_place(in, &f);
    } else {
        size_t n = wire_get_count(in, 14, NULL);
        in->bad |= n != 1 || !wire_str_is(wire_get_str(in), key); /* we ask for one */
        get_place(in, &f);
        f.code = wire_get_i16(in);
        wire_get_str(in);
        wire_get_tags(in);
    }
    wire_get_tags(in);
    bool sound = wire_in_done(in) && (f.code || (f.at.host && *f.at.host && f.at.id >= 0 && f.at.port > 0 && f.at.port < 65536));
    if (!sound) {
        wire_found_clear(&f);
        return PST_EPARSE;
    }
    *ret = f;
    return 0;
}

void wire_found_clear(wire_found *f)
{
    free(f->at.host);
    memset(f, 0, sizeof *f);
}
