/* test_secret.c - addresses without their credentials, keys whose values are secrets, hidden texts, the token's file. */
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/secret.h"
#include "common/base/settings.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_secret_addresses(void **state)
{
    static const char *const rows[][2] = {{"http://h:1", "http://h:1"},
                                          {"http://u:p@h:1/x", "http://h:1/x"},
                                          {"http://u@h", "http://h"},
                                          {"http://u:p@ss@h", "http://h"},
                                          {"http://a:b@h1:1, https://c:d@h2", "http://h1:1, https://h2"},
                                          {"mongodb://u:p@h1:1,h2:2/db?x=y", "mongodb://h1:1,h2:2/db?x=y"},
                                          {"sqlite:/a@b/c", "sqlite:/a@b/c"},
                                          {"http://h/a@b", "http://h/a@b"},
                                          {"", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *got = pst_url_public(rows[i][0]);
        assert_string_equal(got, rows[i][1]);
        free(got);
    }
}

static void test_secret_hides_in_place(void **state)
{
    static const char *const rows[][2] = {{"sasl.password=abc", "sasl.password=***"},
                                          {"ssl.key.password=a=b", "ssl.key.password=***"},
                                          {"sasl.oauthbearer.client.secret=x", "sasl.oauthbearer.client.secret=*"},
                                          {"basic.auth.user.info=u:p", "basic.auth.user.info=***"},
                                          {"ssl.key.pem=x", "ssl.key.pem=*"},
                                          {"linger.ms=5", "linger.ms=5"},
                                          {"schema.registry.url=http://u:p@h", "schema.registry.url=http://***@h"},
                                          {"no value", "no value"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[100];
        snprintf(text, sizeof text, "%s", rows[i][0]);
        pst_secret_hide_property(text);
        assert_string_equal(text, rows[i][1]);
    }
    char url[] = "http://u:p@h,http://x";
    pst_secret_hide_url(url);
    assert_string_equal(url, "http://***@h,http://x");
}

static void test_secret_token_is_made_once_and_closed(void **state)
{
    char dir[] = "/tmp/penstock-unit-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = pst_token_path(dir), *one = NULL, *two = NULL;
    pst_err err = {0};
    struct stat st;
    assert_int_equal(pst_token_read(path, &one, &err), PST_ENOTFOUND);
    assert_int_equal(pst_token_make(dir, NULL, &one, NULL), 0);
    assert_int_equal(strlen(one), 43);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(pst_token_make(dir, NULL, &two, NULL), 0);
    assert_string_equal(one, two);
    free(two);
    /* One that others could read is not a secret any more: it is not taken, and replaced. */
    assert_int_equal(chmod(path, 0644), 0);
    pst_err_clear(&err);
    assert_int_equal(pst_token_read(path, &two, &err), PST_EAUTH);
    assert_int_equal(pst_token_make(dir, NULL, &two, NULL), 0);
    assert_string_not_equal(one, two);
    free(two);
    assert_int_equal(pst_token_make(dir, "too short", &two, NULL), PST_EINVAL);
    assert_int_equal(pst_token_make(dir, "long enough but spaces", &two, NULL), PST_EINVAL);
    assert_int_equal(pst_token_make(dir, "given-by-the-environment", &two, NULL), 0);
    assert_string_equal(two, "given-by-the-environment");
    free(one);
    free(two);
    assert_true(pst_secret_equal("a", "a"));
    assert_false(pst_secret_equal("a", "b"));
    assert_false(pst_secret_equal(NULL, NULL));
    assert_int_equal(pst_fs_remove_tree(dir, NULL), 0);
    free(path);
}

static void test_secret_profile_keeps_credentials_apart(void **state)
{
    char dir[] = "/tmp/penstock-unit-XXXXXX";
    assert_non_null(mkdtemp(dir));
    pst_setting_flags f = {.state_dir = dir, .registry = "http://u:geheim@h:1", .store = "mongodb://a:geheim@m/db"};
    pst_settings s = {0};
    assert_int_equal(pst_settings_load(&f, &s, NULL), 0);
    assert_string_equal(s.registry.value, "http://h:1");
    assert_string_equal(pst_setting_full(&s.registry), "http://u:geheim@h:1");
    assert_int_equal(pst_profile_write(&s, NULL), 0);
    pst_settings_done(&s);
    char *profile = pst_profile_path(dir), *secrets = pst_fs_join(dir, "secrets.json");
    pst_buf text = {0};
    struct stat st;
    assert_int_equal(pst_fs_read(profile, 1 << 16, &text, NULL), 0);
    assert_null(strstr(text.data, "geheim"));
    pst_buf_done(&text);
    assert_int_equal(stat(secrets, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    f = (pst_setting_flags){.state_dir = dir};
    assert_int_equal(pst_settings_load(&f, &s, NULL), 0); /* as a later command finds it */
    assert_string_equal(s.registry.value, "http://h:1");
    assert_string_equal(pst_setting_full(&s.registry), "http://u:geheim@h:1");
    assert_string_equal(pst_setting_full(&s.store), "mongodb://a:geheim@m/db");
    pst_settings_done(&s);
    f.registry = "http://h:1"; /* named anew: the old credentials are not for it */
    assert_int_equal(pst_settings_load(&f, &s, NULL), 0);
    assert_string_equal(pst_setting_full(&s.registry), "http://h:1");
    pst_settings_done(&s);
    assert_int_equal(pst_fs_remove_tree(dir, NULL), 0);
    free(profile);
    free(secrets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_secret_addresses), cmocka_unit_test(test_secret_hides_in_place),
                                       cmocka_unit_test(test_secret_token_is_made_once_and_closed),
                                       cmocka_unit_test(test_secret_profile_keeps_credentials_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
