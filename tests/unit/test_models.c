/* test_models.c - the view of penstock.models: first registration wins, aliases follow the last event, deleted numbers stay used. */
#include "common/platform/models.h"
#include "tests/unit/test.h"
#include "schemas/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digests are made of short words, for people who read these tests. */
static const char *digest_of(const char *word)
{
    static char hex[65];
    size_t n = strlen(word);
    memset(hex, '0', 64);
    for (size_t i = 0; i < n && i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)word[i]);
    hex[2 * (n < 32 ? n : 32)] = '0';
    hex[64] = '\0';
    return hex;
}

static int version(pst_models *m, const char *name, int number, const char *word)
{
    const char *digest = digest_of(word);
    pst_model_event e = {.type = PST_MODEL_EVENT_TYPE_VERSION_REGISTERED,
                         .name = (char *)(uintptr_t)name,
                         .version = number,
                         .digest = (char *)(uintptr_t)digest,
                         .uri = (char *)(uintptr_t) "",
                         .format = (char *)(uintptr_t) "onnx",
                         .actor = (char *)(uintptr_t) ""};
    return pst_models_apply(m, &e);
}

static int event(pst_models *m, int type, const char *name, const char *alias, int number, int64_t time)
{
    pst_model_event e = {.type = type,
                         .name = (char *)(uintptr_t)name,
                         .alias = (char *)(uintptr_t)alias,
                         .version = number,
                         .time = time,
                         .digest = (char *)(uintptr_t) "",
                         .uri = (char *)(uintptr_t) "",
                         .format = (char *)(uintptr_t) "",
                         .actor = (char *)(uintptr_t) "me"};
    return pst_models_apply(m, &e);
}

enum { SET = PST_MODEL_EVENT_TYPE_ALIAS_SET, UNSET = PST_MODEL_EVENT_TYPE_ALIAS_DELETED, GONE = PST_MODEL_EVENT_TYPE_VERSION_DELETED };

static int number(pst_models *m, const char *name, const char *alias, int v)
{
    const pst_model_event *e = pst_models_resolve(m, name, alias, v);
    return e ? e->version : 0;
}

static void test_models_a_scorers_report_moves_no_alias(void **state)
{
    pst_models *m = pst_models_new();
    version(m, "a", 1, "one");
    version(m, "a", 2, "two");
    event(m, SET, "a", "champion", 2, 10);
    pst_model_event e = {.type = PST_MODEL_EVENT_TYPE_ALIAS_SET,
                         .name = (char *)(uintptr_t) "a",
                         .alias = (char *)(uintptr_t) "champion",
                         .version = 1,
                         .time = 11,
                         .pipeline = (char *)(uintptr_t) "p",
                         .actor = (char *)(uintptr_t) "scorer-1"};
    assert_int_equal(pst_models_apply(m, &e), 0);
    assert_int_equal(number(m, "a", "champion", 0), 2);
    pst_models_free(m);
}

static void test_models_no_event_uses_up_the_numbers_or_hides_its_bytes(void **state)
{
    static const char *const digests[] = {"", "0", "sha256:00", "zz00000000000000000000000000000000000000000000000000000000000000"};
    pst_models *m = pst_models_new();
    assert_int_equal(version(m, "a", INT32_MAX, "forged"), 0);
    assert_int_equal(version(m, "a", -1, "forged"), 0);
    assert_int_equal(pst_models_next_version(m, "a"), 1);
    assert_int_equal(version(m, "a", 1, "one"), 1);
    assert_int_equal(version(m, "a", INT32_MAX, "forged"), 0);
    assert_int_equal(version(m, "a", 3, "a gap"), 0);
    assert_int_equal(pst_models_next_version(m, "a"), 2);
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++) {
        pst_model_event e = {.type = PST_MODEL_EVENT_TYPE_VERSION_REGISTERED,
                             .name = (char *)(uintptr_t) "a",
                             .version = 2,
                             .digest = (char *)(uintptr_t)digests[i],
                             .uri = (char *)(uintptr_t) "",
                             .format = (char *)(uintptr_t) "onnx",
                             .actor = (char *)(uintptr_t) ""};
        assert_non_null(strstr(pst_models_refuses(m, &e), "SHA-256"));
        assert_int_equal(pst_models_apply(m, &e), 0);
    }
    assert_null(pst_models_resolve(m, "a", NULL, 2));
    pst_models_free(m);
}

static void test_models_first_registration_wins(void **state)
{
    pst_models *m = pst_models_new();
    assert_int_equal(version(m, "a", 2, "two"), 0); /* not the next one */
    assert_int_equal(version(m, "a", 1, "one"), 1);
    assert_int_equal(version(m, "a", 2, "two"), 1);
    assert_int_equal(version(m, "a", 2, "late"), 0);
    assert_int_equal(version(m, "a", 0, "zero"), 0);
    assert_string_equal(pst_models_resolve(m, "a", NULL, 2)->digest, digest_of("two"));
    assert_int_equal(number(m, "a", NULL, 0), 2);
    assert_int_equal(number(m, "a", "latest", 0), 2);
    assert_int_equal(number(m, "a", NULL, 3), 0);
    assert_int_equal(number(m, "b", NULL, 0), 0);
    assert_int_equal(pst_models_next_version(m, "a"), 3);
    assert_int_equal(pst_models_next_version(m, "b"), 1);
    pst_models_free(m);
}

static void test_models_aliases_follow_the_last_event(void **state)
{
    pst_models *m = pst_models_new();
    version(m, "a", 1, "one");
    version(m, "a", 2, "two");
    assert_int_equal(number(m, "a", "champion", 0), 0);
    assert_int_equal(event(m, SET, "a", "champion", 1, 10), 1);
    assert_int_equal(event(m, SET, "a", "champion", 1, 10), 0); /* the same event again */
    assert_int_equal(number(m, "a", "champion", 0), 1);
    assert_int_equal(event(m, SET, "a", "champion", 2, 11), 1);
    assert_int_equal(number(m, "a", "champion", 0), 2);
    assert_int_equal(pst_models_alias(m, "a", "champion")->version, 2);
    assert_int_equal(pst_models_alias_back(m, "a", "champion", 1)->version, 1);
    assert_null(pst_models_alias_back(m, "a", "champion", 2));
    assert_int_equal(event(m, UNSET, "a", "champion", 0, 12), 1);
    assert_int_equal(event(m, UNSET, "a", "champion", 0, 12), 0);
    assert_int_equal(number(m, "a", "champion", 0), 0);
    assert_int_equal(event(m, SET, "a", "champion", 3, 13), 1);
    assert_int_equal(number(m, "a", "champion", 0), 0); /* a version that is not there (yet) */
    version(m, "a", 3, "three");
    assert_int_equal(number(m, "a", "champion", 0), 3);
    for (int i = 0; i < 50; i++)
        event(m, SET, "a", "champion", 1 + i % 2, 20 + i);
    assert_int_equal(number(m, "a", "champion", 0), 2);
    assert_null(pst_models_alias_back(m, "a", "champion", 8));
    pst_models_free(m);
}

static void test_models_deleted_numbers_stay_used(void **state)
{
    pst_models *m = pst_models_new();
    version(m, "a", 1, "one");
    version(m, "a", 2, "two");
    event(m, SET, "a", "champion", 2, 1);
    assert_int_equal(event(m, GONE, "a", NULL, 2, 2), 1);
    assert_int_equal(event(m, GONE, "a", NULL, 2, 2), 0);
    assert_int_equal(number(m, "a", NULL, 2), 0);
    assert_int_equal(number(m, "a", "champion", 0), 0);
    assert_int_equal(number(m, "a", NULL, 0), 1);
    assert_int_equal(version(m, "a", 2, "again"), 0);
    assert_int_equal(pst_models_next_version(m, "a"), 3);
    pst_models_free(m);
}

static void write_one(void *arg, const pst_model_event *v, const char *aliases)
{
    char *text = arg;
    snprintf(text + strlen(text), 200 - strlen(text), "%s:%d[%s] ", v->name, v->version, aliases);
}

static void test_models_each_is_sorted(void **state)
{
    pst_models *m = pst_models_new();
    char text[200] = "";
    version(m, "zeta", 1, "z");
    version(m, "alpha", 1, "a");
    version(m, "alpha", 2, "b");
    event(m, SET, "alpha", "x", 2, 1);
    event(m, SET, "alpha", "y", 2, 1);
    pst_models_each(m, NULL, write_one, text);
    assert_string_equal(text, "alpha:1[] alpha:2[x,y] zeta:1[] ");
    text[0] = 0;
    pst_models_each(m, "zeta", write_one, text);
    assert_string_equal(text, "zeta:1[] ");
    pst_models_free(m);
}

static void test_models_names_are_checked(void **state)
{
    assert_true(pst_model_name_ok("telemetry-ae_2.x"));
    assert_false(pst_model_name_ok(""));
    assert_false(pst_model_name_ok(".."));
    assert_false(pst_model_name_ok("a/b"));
    assert_false(pst_model_name_ok("a b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_a_scorers_report_moves_no_alias),
        cmocka_unit_test(test_models_first_registration_wins),
        cmocka_unit_test(test_models_no_event_uses_up_the_numbers_or_hides_its_bytes),
        cmocka_unit_test(test_models_aliases_follow_the_last_event),
        cmocka_unit_test(test_models_deleted_numbers_stay_used),
        cmocka_unit_test(test_models_each_is_sorted),
        cmocka_unit_test(test_models_names_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
