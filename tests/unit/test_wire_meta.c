/* test_wire_meta.c - answers of real brokers (4.3.1 and 3.9.2, kept as the fuzz target's corpus) to each version of ApiVersions, Metadata and FindCoordinator: what they say is
 * read, and none that ends early or goes on is taken for one. */
#include "common/bus/wire/wire_meta.h"

#include "common/base/err.h"
#include "common/base/fs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct read_back {
    wire_versions v;
    wire_metadata m;
    wire_found f;
} read_back;

static int get(int which, int16_t version, const char *data, size_t len, read_back *r)
{
    static const wire_api *const apis[] = {&wire_api_versions, &wire_api_metadata, &wire_api_find_coordinator};
    wire_in in = wire_in_of(data, len, version >= apis[which]->flexible);
    return which == 0   ? wire_versions_get(&in, version, &r->v)
           : which == 1 ? wire_metadata_get(&in, version, &r->m)
                        : wire_coordinator_get(&in, version, "g", &r->f);
}

static void clear(int which, read_back *r)
{
    if (which == 1)
        wire_metadata_clear(&r->m);
    if (which == 2)
        wire_found_clear(&r->f);
}

static void each(const char *broker, const char *name, int which, int16_t from, int16_t to,
                 void (*check)(const read_back *r, int16_t version))
{
    for (int16_t version = from; version <= to; version++) {
        char path[100];
        pst_buf b = {0};
        pst_err err = {0};
        read_back r;
        snprintf(path, sizeof path, "tests/fuzz/corpus/wire_meta/%s-%s-%d", broker, name, version);
        if (pst_fs_read(path, 100000, &b, &err) < 0)
            fail_msg("%s", err.text);
        const char *data = b.data + 1;
        size_t len = b.len - 1;
        assert_int_equal((uint8_t)b.data[0], which << 6 | version);
        if (get(which, version, data, len, &r) < 0)
            fail_msg("%s is not read", path);
        check(&r, version);
        clear(which, &r);
        for (size_t n = 0; n < len; n++)
            assert_int_equal(get(which, version, data, n, &r), PST_EPARSE);
        pst_buf_addc(&b, 0);
        assert_int_equal(get(which, version, b.data + 1, len + 1, &r), PST_EPARSE);
        pst_buf_done(&b);
    }
}

static void check_versions(const read_back *r, int16_t version)
{
    assert_int_equal(r->v.code, 0);
    assert_true(wire_versions_best(&r->v, &wire_api_metadata) >= 12);
    assert_true(wire_versions_best(&r->v, &wire_api_find_coordinator) >= 4);
    assert_int_equal(wire_versions_best(&r->v, &(wire_api){.key = 3, .min = 14, .max = 20, .flexible = 9, .name = ""}), -1);
    assert_int_equal(r->v.n_features > 0, version >= 3);
    assert_int_equal(r->v.epoch >= 0, version >= 3);
}

static void check_metadata(const read_back *r, int16_t version)
{
    static const uint8_t none[16];
    assert_int_equal(r->m.n_brokers, 1);
    assert_string_equal(r->m.brokers[0].host, "127.0.0.1");
    assert_non_null(r->m.cluster_id);
    assert_int_equal(r->m.n_topics, 1);
    assert_string_equal(r->m.topics[0].name, "__consumer_offsets");
    assert_int_equal(memcmp(r->m.topics[0].id, none, 16) != 0, version >= 10 && r->m.topics[0].code == 0);
    if (!r->m.topics[0].code) {
        assert_true(r->m.topics[0].n > 0);
        assert_int_equal(r->m.topics[0].leader[0], r->m.brokers[0].id);
        assert_true(r->m.topics[0].epoch[0] >= 0);
    }
}

static void check_coordinator(const read_back *r, int16_t version)
{
    if (r->f.code)
        return;
    assert_string_equal(r->f.at.host, "127.0.0.1");
    assert_int_equal(r->f.at.port, 28900);
}

static void test_wire_meta_answers_of_real_brokers(void **state)
{
    each("k43", "versions", 0, 0, 4, check_versions);
    each("k39", "versions", 0, 0, 4, check_versions);
    each("k43", "metadata", 1, 7, 13, check_metadata);
    each("k39", "metadata", 1, 7, 12, check_metadata);
    each("k43", "coordinator", 2, 1, 5, check_coordinator);
}

/* KIP-511: the answer to a version that the broker does not have is one of version 0. */
static void test_wire_meta_a_broker_that_does_not_know_the_version(void **state)
{
    static const char bytes[] = {0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 3};
    read_back r;
    assert_int_equal(get(0, 4, bytes, sizeof bytes, &r), 0);
    assert_int_equal(r.v.code, 35);
    assert_int_equal(wire_versions_best(&r.v, &wire_api_versions), 3);
}

/* Counts that cannot be: nothing is asked of memory for them, and nothing is read beyond. */
static void test_wire_meta_counts_that_lie(void **state)
{
    char bytes[64] = {0};
    read_back r;
    for (int at = 4; at < 8; at++) { /* brokers */
        memset(bytes, 0, sizeof bytes);
        bytes[at] = 0x7f;
        assert_int_equal(get(1, 7, bytes, sizeof bytes, &r), PST_EPARSE);
        bytes[at] = (char)0xff;
        assert_int_equal(get(1, 7, bytes, sizeof bytes, &r), PST_EPARSE);
    }
    /* a partition that is not among those that were announced */
    static const char far[] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 't', 0, 0, 0, 0,
                               1, 0, 0, 0, 0, 0, 1, 0, 0,  0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0, 0, 0, 0};
    assert_int_equal(get(1, 7, far, sizeof far, &r), PST_EPARSE);
    char near[sizeof far];
    memcpy(near, far, sizeof far);
    near[33] = 0;
    assert_int_equal(get(1, 7, near, sizeof near, &r), 0);
    assert_int_equal(r.m.topics[0].n, 1);
    wire_metadata_clear(&r.m);
    near[22] = 0; /* a name with a NUL inside */
    assert_int_equal(get(1, 7, near, sizeof near, &r), PST_EPARSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_meta_answers_of_real_brokers),
        cmocka_unit_test(test_wire_meta_a_broker_that_does_not_know_the_version),
        cmocka_unit_test(test_wire_meta_counts_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
