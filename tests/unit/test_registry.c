/* test_registry.c - the registry's client against the built-in registry on an in-memory cluster. */
#include "common/registry/registry.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/bus/bus.h"
#include "common/bus/rdkafka/embedded.h"
#include "deploy/registry/registry_server.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V1 "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}"
#define V2                                                                                                                                \
    "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"long\"},{\"name\":\"b\",\"type\":\"string\",\"default\":" \
    "\"x\"}]}"
#define BAD "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"a\",\"type\":\"string\"}]}"

/* ---- the built-in registry in a thread --------------------------------------------------------------------------------------- */

typedef struct site {
    pst_loop *loop;
    rserver *server;
    pthread_t thread;
    atomic_bool failed;
} site;

static pst_embedded *broker;
static pst_bus_conf *bus;

static void on_fatal(void *arg)
{
    site *s = arg;
    s->failed = true;
    pst_loop_stop(s->loop);
}

static void *run(void *arg)
{
    pst_loop_run(((site *)arg)->loop);
    return NULL;
}

static pst_registry *client(const char *url)
{
    pst_registry *r = NULL;
    pst_err err = {0};
    assert_int_equal(pst_registry_new(&(pst_registry_conf){.url = url, .timeout_ms = 8000}, &r, &err), 0);
    return r;
}

static void site_begin(site *s, rserver_conf conf)
{
    pst_err err = {0};
    memset(s, 0, sizeof *s);
    conf.bus = bus;
    conf.embedded = true;
    assert_int_equal(pst_loop_new(&s->loop, &err), 0);
    pst_loop_ignore_stop(s->loop);
    if (rserver_new(s->loop, &conf, on_fatal, s, &s->server, &err) < 0)
        fail_msg("%s", err.text);
    pthread_create(&s->thread, NULL, run, s);
}

static void site_end(site *s)
{
    pst_loop_stop(s->loop);
    pthread_join(s->thread, NULL);
    rserver_free(s->server);
    pst_loop_free(s->loop);
}

static void wait_ready(const site *s)
{
    pst_registry *r = client(rserver_url(s->server));
    pst_err err = {0};
    char **names = NULL;
    size_t n = 0;
    int rc = -1;
    for (int i = 0; i < 100 && rc < 0; i++) {
        pst_err_clear(&err);
        rc = pst_registry_subjects(r, &names, &n, &err);
        if (rc < 0)
            assert_int_equal(err.native, 50002); /* says that it is still starting */
    }
    if (rc < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    pst_registry_free(r);
}

static int start_broker(void **state)
{
    pst_err err = {0};
    if (pst_embedded_start(0, &broker, &err) < 0)
        fail_msg("%s", err.text);
    bus = pst_bus_conf_new(pst_embedded_bootstrap(broker), "test");
    return 0;
}

static int stop_broker(void **state)
{
    pst_bus_conf_free(bus);
    pst_embedded_stop(broker);
    return 0;
}

static void test_registry_client_and_server(void **state)
{
    site s;
    site_begin(&s, (rserver_conf){.topic = "schemas-a"});
    wait_ready(&s);
    pst_registry *r = client(rserver_url(s.server)), *fresh = client(rserver_url(s.server));
    pst_err err = {0};
    int32_t id = 0, again = 0, id2 = 0;
    const char *text = NULL;
    assert_int_equal(pst_registry_ping(r, &err), 0);
    if (pst_registry_register(r, "t-value", V1, &id, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(id, 1);
    assert_int_equal(pst_registry_register(fresh, "t-value", V1, &again, &err), 0);
    assert_int_equal(again, id);
    assert_int_equal(pst_registry_schema(fresh, id, &text, &err), 0);
    assert_string_equal(text, V1);
    bool yes = false;
    assert_int_equal(pst_registry_compatible(r, "t-value", V2, &yes, &err), 0);
    assert_true(yes);
    assert_int_equal(pst_registry_compatible(r, "t-value", BAD, &yes, &err), 0);
    assert_false(yes);
    assert_int_equal(pst_registry_compatible(r, "unheard-of", BAD, &yes, &err), 0);
    assert_true(yes);
    assert_int_equal(pst_registry_register(r, "t-value", V2, &id2, &err), 0);
    assert_int_not_equal(id2, id);
    assert_int_equal(pst_registry_register(r, "t-value", BAD, &again, &err), PST_EINCOMPAT);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    pst_err_clear(&err);
    assert_int_equal(pst_registry_register(r, "t-value", "{\"type\":\"x\"}", &again, &err), PST_EINVAL);
    assert_int_equal(err.native, 42201);
    pst_err_clear(&err);
    assert_int_equal(pst_registry_lookup(fresh, "t-value", V2, &again, &err), 0);
    assert_int_equal(again, id2);
    assert_int_equal(pst_registry_lookup(fresh, "no", V2, &again, &err), PST_ENOTFOUND);
    assert_int_equal(err.native, 40401);
    int version = 0;
    char *latest = NULL;
    pst_err_clear(&err);
    assert_int_equal(pst_registry_latest(r, "t-value", &again, &version, &latest, &err), 0);
    assert_int_equal(version, 2);
    assert_string_equal(latest, V2);
    assert_int_equal(pst_registry_schema(r, 99999, &text, &err), PST_ENOTFOUND);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    pst_err_clear(&err);
    assert_int_equal(pst_registry_register(r, "a/b c%+ü", V1, &again, &err), 0); /* subjects are escaped */
    char **names = NULL;
    size_t n = 0;
    assert_int_equal(pst_registry_subjects(r, &names, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], "a/b c%+ü");
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    free(latest);
    pst_registry_free(r);
    pst_registry_free(fresh);
    site_end(&s);
}

typedef struct racer {
    const char *url;
    int k, failures;
    int32_t ids[20];
} racer;

static void *race(void *arg)
{
    racer *x = arg;
    pst_registry *r = client(x->url);
    for (int i = 0; i < 20; i++) {
        char *subject = pst_sprintf("race-%d", i), *schema = pst_sprintf("{\"type\":\"fixed\",\"name\":\"F\",\"size\":%d}", i + 1);
        pst_err err = {0};
        x->failures += pst_registry_register(r, subject, schema, &x->ids[i], &err) < 0;
        free(subject);
        free(schema);
    }
    pst_registry_free(r);
    return NULL;
}

/* Eight clients register the same twenty schemas at once: twenty ids, the same for everyone. */
static void test_registry_concurrent_registrations_agree(void **state)
{
    site s;
    racer x[8];
    pthread_t t[8];
    site_begin(&s, (rserver_conf){.topic = "schemas-b"});
    wait_ready(&s);
    for (int k = 0; k < 8; k++) {
        x[k] = (racer){.url = rserver_url(s.server), .k = k};
        pthread_create(&t[k], NULL, race, &x[k]);
    }
    bool used[200] = {0};
    for (int k = 0; k < 8; k++)
        pthread_join(t[k], NULL);
    for (int k = 0; k < 8; k++) {
        assert_int_equal(x[k].failures, 0);
        assert_memory_equal(x[k].ids, x[0].ids, sizeof x[0].ids);
    }
    for (int i = 0; i < 20; i++) {
        assert_in_range(x[0].ids[i], 1, 20);
        assert_false(used[x[0].ids[i]]);
        used[x[0].ids[i]] = true;
    }
    site_end(&s);
}

static void test_registry_restart_keeps_ids(void **state)
{
    site s;
    pst_err err = {0};
    int32_t a = 0, b = 0;
    const char *text = NULL;
    for (int i = 0; i < 2; i++) {
        site_begin(&s, (rserver_conf){.topic = "schemas-c"});
        wait_ready(&s);
        pst_registry *r = client(rserver_url(s.server));
        if (i == 0)
            assert_int_equal(pst_registry_register(r, "s", V1, &a, &err), 0);
        else {
            assert_int_equal(pst_registry_schema(r, a, &text, &err), 0);
            assert_string_equal(text, V1);
            assert_int_equal(pst_registry_register(r, "s", V2, &b, &err), 0);
            assert_int_equal(b, a + 1);
        }
        pst_registry_free(r);
        site_end(&s);
    }
}

static void test_registry_second_writer_leaves(void **state)
{
    site first, second, third;
    site_begin(&first, (rserver_conf){.topic = "schemas-d"});
    wait_ready(&first);
    site_begin(&second, (rserver_conf){.topic = "schemas-d"});
    for (int i = 0; i < 500 && !second.failed; i++)
        pst_sleep_ms(10);
    assert_true(second.failed);
    assert_non_null(strstr(rserver_failure(second.server)->text, "--force"));
    assert_false(first.failed);
    site_begin(&third, (rserver_conf){.topic = "schemas-d", .force = true});
    for (int i = 0; i < 500 && !first.failed; i++)
        pst_sleep_ms(10);
    assert_true(first.failed);
    assert_int_equal(rserver_failure(first.server)->code, PST_EFENCED);
    wait_ready(&third);
    assert_false(third.failed);
    site_end(&first);
    site_end(&second);
    site_end(&third);
}

static void test_registry_asks_for_the_password(void **state)
{
    site s;
    pst_err err = {0};
    char **names;
    size_t n;
    site_begin(&s, (rserver_conf){.topic = "schemas-e", .user = "anna", .password = "s:cret/%"});
    pst_registry *bare = client(rserver_url(s.server));
    assert_int_equal(pst_registry_subjects(bare, &names, &n, &err), PST_EAUTH);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    pst_registry_free(bare);
    char *url = pst_sprintf("http://anna:s%%3Acret%%2F%%25@%s", rserver_url(s.server) + 7);
    pst_registry *r = client(url);
    assert_null(strstr(pst_registry_url(r), "cret"));
    int rc = -1;
    for (int i = 0; i < 100 && rc < 0; i++) {
        pst_err_clear(&err);
        rc = pst_registry_subjects(r, &names, &n, &err);
    }
    assert_int_equal(rc, 0);
    free(names);
    pst_registry_free(r);
    free(url);
    r = NULL;
    pst_registry_new(&(pst_registry_conf){.url = rserver_url(s.server), .user = "anna", .password = "wrong"}, &r, &err);
    assert_int_equal(pst_registry_ping(r, &err), PST_EAUTH);
    pst_registry_free(r);
    site_end(&s);
}

static void test_registry_open_to_others_needs_a_password(void **state)
{
    pst_loop *l;
    pst_err err = {0};
    rserver *s = NULL;
    pst_loop_new(&l, &err);
    assert_int_equal(rserver_new(l, &(rserver_conf){.bus = bus, .listen = "0.0.0.0"}, on_fatal, NULL, &s, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "basic.auth.user.info"));
    pst_loop_free(l);
}

int main(void)
{
    pst_log_set_level(PST_LOG_ERROR);
    const struct CMUnitTest real[] = {
        cmocka_unit_test(test_registry_client_and_server),     cmocka_unit_test(test_registry_concurrent_registrations_agree),
        cmocka_unit_test(test_registry_restart_keeps_ids),     cmocka_unit_test(test_registry_second_writer_leaves),
        cmocka_unit_test(test_registry_asks_for_the_password), cmocka_unit_test(test_registry_open_to_others_needs_a_password)};
    return cmocka_run_group_tests_name("registry on the in-memory cluster", real, start_broker, stop_broker);
}
