/* fuzz_wire_meta.c - a broker's answers to ApiVersions, Metadata and FindCoordinator, in every version, and its tokens of a login. First byte: which answer and
 * version. What is taken must keep its promises; what memory it takes is bounded by what was sent. */
#include "common/bus/wire/wire_meta.h"
#include "common/bus/wire/wire_sasl.h"

#include "common/base/err.h"

#include <stdlib.h>
#include <string.h>

static void versions(wire_in in, int16_t version)
{
    static const wire_api any = {.key = 3, .min = 2, .max = 9, .flexible = 9, .name = "any"};
    wire_versions v;
    if (wire_versions_get(&in, version, &v) < 0)
        return;
    PST_ASSERT(v.n_features <= WIRE_FEATURES);
    for (size_t i = 0; i < v.n_features; i++)
        PST_ASSERT(strlen(v.features[i].name) < sizeof v.features[i].name && v.features[i].level >= 0);
    int16_t best = wire_versions_best(&v, &any);
    PST_ASSERT(best == -1 || (best >= 2 && best <= 9 && best <= v.api[3].max));
}

static void metadata(wire_in in, int16_t version, size_t size)
{
    wire_metadata m;
    if (wire_metadata_get(&in, version, &m) < 0)
        return;
    PST_ASSERT(m.n_brokers <= size && m.n_topics <= size);
    for (size_t i = 0; i < m.n_brokers; i++)
        PST_ASSERT(m.brokers[i].id >= 0 && m.brokers[i].host && m.brokers[i].port > 0 && m.brokers[i].port < 65536);
    for (size_t i = 0; i < m.n_topics; i++) {
        PST_ASSERT((size_t)m.topics[i].n <= size && (m.topics[i].name || version >= 12));
        for (int32_t k = 0; k < m.topics[i].n; k++)
            PST_ASSERT(m.topics[i].leader[k] >= -1);
    }
    wire_metadata_clear(&m);
}

static void coordinator(wire_in in, int16_t version)
{
    wire_found f;
    if (wire_coordinator_get(&in, version, "g", &f) < 0)
        return;
    PST_ASSERT(f.code || (*f.at.host && f.at.id >= 0));
    wire_found_clear(&f);
}

/* Nobody but who has the password comes to the end of SCRAM. */
static void login(const uint8_t *data, size_t size)
{
    static const wire_conf conf = {.mechanism = WIRE_SCRAM_256, .username = (char *)"user", .password = (char *)"password"};
    pst_err err = {0};
    PST_ASSERT(wire_sasl_open(&conf, &err) == 0);
    wire_sasl *s = wire_sasl_new(&conf);
    pst_buf out = {0}, theirs = {0};
    PST_ASSERT(wire_sasl_step(s, NULL, 0, &out, &err) == 1);
    if (size && data[0] & 1)
        pst_buf_printf(&theirs, "r=%s", strstr(out.data, ",r=") + 3);
    size_t half = size / 2;
    pst_buf_add(&theirs, data, half);
    if (wire_sasl_step(s, theirs.data ? theirs.data : "", theirs.len, &out, &err) == 1)
        PST_ASSERT(wire_sasl_step(s, data + half, size - half, &out, &err) < 0);
    wire_sasl_free(s);
    pst_buf_done(&out);
    pst_buf_done(&theirs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    int which = data[0] >> 6;
    int16_t version = data[0] & 15;
    data++;
    size--;
    if (which == 0 && version <= wire_api_versions.max)
        versions(wire_in_of(data, size, false), version);
    else if (which == 1 && version >= wire_api_metadata.min && version <= wire_api_metadata.max)
        metadata(wire_in_of(data, size, version >= wire_api_metadata.flexible), version, size);
    else if (which == 2 && version >= wire_api_find_coordinator.min && version <= wire_api_find_coordinator.max)
        coordinator(wire_in_of(data, size, version >= wire_api_find_coordinator.flexible), version);
    else if (which == 3)
        login(data, size);
    return 0;
}
