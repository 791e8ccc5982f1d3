/* wire_meta.h - ApiVersions, Metadata, FindCoordinator: what is asked, and the answers as structs. Pure: bytes in, structs out; counts are held against the bytes that
 * are there before memory is taken for them, so that no answer costs more than a small multiple of its own size.
 *
 *     ApiVersions      0–4    KIP-511 (name and version of the client; the way back to version 0), KIP-584 (features)
 *     Metadata         7–13   leader epochs since 7 (KIP-320), flexible since 9, topic ids since 10 (KIP-516)
 *     FindCoordinator  1–5    transactions since 1, flexible since 3, several keys since 4 (KIP-699)
 * @thread any */
#ifndef PST_WIRE_META_H
#define PST_WIRE_META_H

#include "common/bus/wire/wire_net.h"

extern const wire_api wire_api_versions, wire_api_metadata, wire_api_find_coordinator;

/* ---- ApiVersions ------------------------------------------------------------------------------------------------------------------ */

enum { WIRE_APIS = 128, WIRE_FEATURES = 16 }; /* keys from 128 on, and features beyond 16, are none that we use */

typedef struct wire_feature {
    char name[48];
    int level;
} wire_feature;

typedef struct wire_versions {
    int code;
    struct {
        int16_t min, max; /* -1, -1 = none */
    } api[WIRE_APIS];
    int64_t epoch; /* of the features; -1 = none was said */
    wire_feature features[WIRE_FEATURES];
    size_t n_features;
} wire_versions;

void wire_versions_put(int16_t version, wire_out *out);
/* PST_EPARSE: it is none. An answer with UNSUPPORTED_VERSION is always one of version 0 (KIP-511). */
int wire_versions_get(wire_in *in, int16_t version, wire_versions *ret);
/* The version to speak: the highest that both have; -1 = none. */
int16_t wire_versions_best(const wire_versions *v, const wire_api *api);

/* ---- Metadata --------------------------------------------------------------------------------------------------------------------- */

typedef struct wire_broker {
    int32_t id;
    char *host;
    int port;
    char *rack; /* NULL = none */
} wire_broker;

typedef struct wire_meta_topic {
    int code;
    char *name; /* NULL: only the id is known */
    uint8_t id[16];
    int32_t n;
    int32_t *leader, *epoch;
} wire_meta_topic;

typedef struct wire_metadata {
    char *cluster_id;
    wire_broker *brokers;
    size_t n_brokers;
    wire_meta_topic *topics;
    size_t n_topics;
    int code; /* of the whole, since version 13 */
} wire_metadata;

void wire_metadata_put(int16_t version, const char *const *topics, size_t n, bool auto_create, wire_out *out);
int wire_metadata_get(wire_in *in, int16_t version, wire_metadata *ret); /* PST_EPARSE; ret is to be cleared in no case of error */
void wire_metadata_clear(wire_metadata *m);

/* ---- FindCoordinator ---------------------------------------------------------------------------------------------------------------- */

typedef struct wire_found {
    int code;
    wire_broker at; /* host "" where there is none */
} wire_found;

void wire_coordinator_put(int16_t version, wire_coordinator_kind kind, const char *key, wire_out *out);
int wire_coordinator_get(wire_in *in, int16_t version, const char *key, wire_found *ret);
void wire_found_clear(wire_found *f);

#endif
