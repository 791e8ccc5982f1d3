/* test_gateway_logged_out.c - a logout ends every session that was begun before it, also within one second and after a restart, and none that begins later. */
#include "common/base/fs.h"
#include "producers/gateway/logged_out.h"

#include "tests/unit/test.h"

#include <stdlib.h>
#include <unistd.h>

enum { NOW = 1000000, LASTS = 43200 };

static gw_logged_out *open_list(const char *path)
{
    gw_logged_out *l = NULL;
    pst_err err = {0};
    if (gw_logged_out_open(path, &l, &err) < 0)
        fail_msg("%s", err.text);
    return l;
}

static void note(gw_logged_out *l, const char *name, int64_t now_s)
{
    pst_err err = {0};
    if (gw_logged_out_note(l, name, now_s, LASTS, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_logouts_of_one_second_end_what_was_begun_between(void **state)
{
    (void)state;
    gw_logged_out *l = open_list(NULL);
    int64_t until[4];
    for (int i = 0; i < 4; i++) {
        until[i] = gw_logged_out_until(l, "ann", NOW, LASTS);
        assert_false(gw_logged_out_is(l, "ann", until[i]));
        note(l, "ann", NOW);
        for (int k = 0; k <= i; k++)
            assert_true(gw_logged_out_is(l, "ann", until[k]));
    }
    assert_false(gw_logged_out_is(l, "bob", until[0]));
    assert_false(gw_logged_out_is(l, "ann", gw_logged_out_until(l, "ann", NOW + 10, LASTS)));
    note(l, "ann", NOW + 1);
    assert_true(gw_logged_out_is(l, "ann", NOW + 1 + LASTS));
    gw_logged_out_free(l);
}

static void test_a_restart_forgets_no_logout(void **state)
{
    (void)state;
    char folder[] = "/tmp/penstock-test-XXXXXX";
    pst_err err = {0};
    assert_non_null(mkdtemp(folder));
    char *path = pst_fs_join(folder, "logged-out.json");
    gw_logged_out *l = open_list(path);
    int64_t ann = gw_logged_out_until(l, "ann \"\xc3\xa4\"", NOW, LASTS), old = gw_logged_out_until(l, "old", NOW - 2 * LASTS, LASTS);
    note(l, "old", NOW - 2 * LASTS);
    note(l, "ann \"\xc3\xa4\"", NOW);
    gw_logged_out_free(l);
    l = open_list(path);
    assert_true(gw_logged_out_is(l, "ann \"\xc3\xa4\"", ann));
    assert_false(gw_logged_out_is(l, "old", old)); /* over by itself: not kept */
    gw_logged_out_free(l);
    assert_int_equal(pst_fs_write_atomic(path, "{\"ann\": \"x\"}", 12, 0600, &err), 0);
    l = NULL;
    assert_int_equal(gw_logged_out_open(path, &l, &err), PST_EPARSE);
    assert_null(l);
    assert_int_equal(pst_fs_remove_tree(folder, &err), 0);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logouts_of_one_second_end_what_was_begun_between),
        cmocka_unit_test(test_a_restart_forgets_no_logout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
