/* test_manifest_secrets.c - what is sealed and what stays, byte for byte; another job or another key opens nothing. */
#include "common/base/fs.h"
#include "schemas/manifest.h"
#include "schemas/manifest_secrets.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char text[] =
    "# für den Test\nname: x   # comment\n"
    "data_stores:\n"
    "  - id: s\n"
    "    type: mount_cos\n"
    "    training_data: {container: data}\n"
    "    connection: {auth_url: \"http://h:9000\", user_name: geheim1, password: 'geheim2 with '' quote', region: eu}\n"
    "  - id: t\n"
    "    connection:\n"
    "      auth_url: https://geheim3:geheim4@h/\n"
    "      extra: [geheim5, {deep: geheim6}]\n"
    "      password: |\n"
    "        geheim7\n"
    "        geheim7b\n"
    "      type: s3\n"
    "penstock:\n"
    "  queue: fast\n"
    "  env: {GRÜSSE: geheim8, NUMBER: \"geheim9\", EMPTY: \"\"}\n"
    "  roles:\n"
    "    ps: {count: 2, env: {A: geheim10}}\n"
    "  learner: {api_token: geheim11}\n"
    "command: run --fast äöü\n";

static const pst_seal_key one = {{1}}, two = {{2}};

static void test_secrets_are_sealed_and_the_rest_stays(void **state)
{
    char *sealed = pst_manifest_seal(text, &one, "training-a"), *again = pst_manifest_seal(text, &one, "training-a");
    assert_null(strstr(sealed, "geheim"));
    assert_string_equal(sealed, again); /* a state that did not change stays equal */
    static const char *const kept[] = {"# für den Test\nname: x   # comment\n",
                                       "http://h:9000",
                                       "region: eu}",
                                       "type: s3",
                                       "queue: fast",
                                       "GRÜSSE: \"sealed:",
                                       "EMPTY: \"\"",
                                       "count: 2",
                                       "command: run --fast äöü\n",
                                       "container: data"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strstr(sealed, kept[i]))
            fail_msg("%s is not kept in:\n%s", kept[i], sealed);
    char *back = pst_manifest_unseal(sealed, &one, "training-a");
    assert_string_equal(back, text);
    assert_null(pst_manifest_unseal(sealed, &two, "training-a"));
    assert_null(pst_manifest_unseal(sealed, &one, "training-b"));
    pst_sealed_mask(sealed);
    assert_null(strstr(sealed, "sealed:"));
    assert_non_null(strstr(sealed, "password: \"***\""));
    free(sealed);
    free(again);
    free(back);
}

static void test_secrets_of_other_texts(void **state)
{
    static const char *const rows[] = {
        "",
        "name: x\n",
        "a: [b, c]\n",
        "\xef\xbb\xbfpenstock: {env: {A: \"\xf0\x9f\x8e\x88 geheim\"}}\r\nname: y\r\n",
        "penstock:\n  env:\n    A: >-\n      geheim\n      more\n\n    B: 'geheim'\n",
        "penstock:\n  env:\n    A: |\n      geheim\n\xc2\x85name: y\n", /* line ends of YAML that are none of C's */
        "penstock:\n  env:\n    A: >-\n      geheim\n\xe2\x80\xa8name: y\n",
        "penstock:\n  env:\n    A: geheim\n      \t", /* may follow a plain scalar, not a quoted one */
        "{unclosed: [geheim"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *sealed = pst_manifest_seal(rows[i], &one, "c"), *back = pst_manifest_unseal(sealed, &one, "c");
        assert_null(strstr(sealed, "geheim"));
        assert_string_equal(back, rows[i]);
        free(sealed);
        free(back);
    }
}

/* What is spared the reading would not have been changed by it; and where a key can be written otherwise, it is read. */
static void test_secrets_are_ruled_out_by_the_text(void **state)
{
    static const char *const without[] = {"name: x\nframework: {name: custom, command: 'echo hi'}\n", "a: [b, c]\nlearners: 2\n"};
    static const char *const with[] = {"data_stores: [{id: a, connection: {user_name: geheim}}]\n",
                                       "penstock: {env: {A: geheim}}\n",
                                       "penstock: {roles: {ps: {env: {A: geheim}}}}\n",
                                       "MyPassword: geheim\n",
                                       "{\"\\x74oken\": geheim}\n",
                                       "{\"\\u0074oken\": geheim}\n"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        char *sealed = pst_manifest_seal(without[i], &one, "c");
        assert_false(pst_manifest_may_have_secrets(without[i]));
        assert_string_equal(sealed, without[i]);
        free(sealed);
    }
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        char *sealed = pst_manifest_seal(with[i], &one, "c");
        assert_true(pst_manifest_may_have_secrets(with[i]));
        assert_null(strstr(sealed, "geheim"));
        free(sealed);
    }
}

/* Who copies a sealed text out of jobs.state gets nothing for it. */
static void test_secrets_sealed_text_is_no_manifest(void **state)
{
    char *sealed = pst_manifest_seal("name: x\nframework: {name: custom, command: env}\npenstock: {env: {A: geheim}}\n", &one, "victim");
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    assert_true(pst_manifest_parse(sealed, strlen(sealed), &m, &errors, &warnings) < 0);
    assert_non_null(strstr(errors.at[0].text, "sealed"));
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    free(sealed);
}

/* Services of a new folder start together: one key for all, and its id tells only whether two have the same. */
static void test_secrets_key_is_one_however_many_ask_first(void **state)
{
    (void)state;
    enum { ASK = 8 };
    char dir[] = "/tmp/pst-seal-XXXXXX", ids[ASK][PST_SEAL_ID_MAX], other[PST_SEAL_ID_MAX];
    int out[2];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pipe(out), 0);
    for (int i = 0; i < ASK; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            pst_seal_key key;
            char id[PST_SEAL_ID_MAX] = "";
            if (pst_seal_key_make(dir, &key, NULL) == 0)
                pst_seal_key_id(&key, id);
            _exit(write(out[1], id, sizeof id) != sizeof id);
        }
    }
    for (int i = 0; i < ASK; i++) {
        assert_int_equal(read(out[0], ids[i], sizeof ids[i]), sizeof ids[i]);
        assert_int_equal(strlen(ids[i]), PST_SEAL_ID_MAX - 1);
        assert_string_equal(ids[i], ids[0]);
        wait(NULL);
    }
    pst_seal_key_id(&one, other);
    assert_string_not_equal(other, ids[0]);
    pst_fs_remove_tree(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_secrets_are_sealed_and_the_rest_stays), cmocka_unit_test(test_secrets_of_other_texts),
        cmocka_unit_test(test_secrets_are_ruled_out_by_the_text), cmocka_unit_test(test_secrets_sealed_text_is_no_manifest),
        cmocka_unit_test(test_secrets_key_is_one_however_many_ask_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
