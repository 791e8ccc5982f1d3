/* test_members.c - the list of a gang's members: what is written is read again, and nothing is taken from a list that is not whole. */
#include "common/base/fs.h"
#include "common/objects/members.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    char *dir = pst_strdup("/tmp/pst-members-XXXXXX");
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    pst_fs_remove_tree(*state, NULL);
    free(*state);
    return 0;
}

/* chief-1 (rank 0) and worker-1 (rank 1) on one host, ps-1 without a rank on another. */
static pst_members three(pst_member at[3])
{
    at[0] = (pst_member){"chief-1", "chief", 0, 1, 0, 0, 2, "a.example", "127.1.2.3", 2222, 30001, 30002, 1};
    at[1] = (pst_member){"worker-1", "worker", 0, 1, 1, 1, 2, "a.example", "127.1.2.4", 2222, 30003, 30004, 2};
    at[2] = (pst_member){"ps-1", "ps", 0, 1, -1, -1, 0, "b", "fe80::1", 30005, 30006, 30007, 1};
    return (pst_members){at, 3};
}

static void test_members_round_trip(void **state)
{
    pst_member at[3];
    pst_members m = three(at), back;
    pst_err err = {0};
    assert_int_equal(pst_members_read(*state, &back, &err), PST_ENOTFOUND);
    pst_err_clear(&err);
    assert_int_equal(pst_members_write(*state, &m, &err), 0);
    assert_int_equal(pst_members_write(*state, &m, &err), 0);
    assert_int_equal(pst_members_read(*state, &back, &err), 0);
    assert_int_equal(back.n, 3);
    for (int i = 0; i < 3; i++) {
        const pst_member *a = &at[i], *b = pst_members_find(&back, a->process);
        assert_non_null(b);
        assert_string_equal(b->role, a->role);
        assert_string_equal(b->host, a->host);
        assert_string_equal(b->address, a->address);
        int want[] = {a->index, a->count, a->rank, a->local_rank, a->local_size, a->port, a->master_port, a->other_port, a->slots};
        int is[] = {b->index, b->count, b->rank, b->local_rank, b->local_size, b->port, b->master_port, b->other_port, b->slots};
        assert_memory_equal(is, want, sizeof want);
    }
    assert_null(pst_members_find(&back, "worker-2"));
    pst_members_done(&back);
}

static void test_members_refuses_what_could_harm(void **state)
{
    static const struct {
        const char *process, *role, *host, *address;
    } bad[] = {{"", "ps", "b", "1.2.3.4"},      {"../x", "ps", "b", "1.2.3.4"},      {"ps-1", "p s", "b", "1.2.3.4"},
               {"ps-1", "", "b", "1.2.3.4"},    {"ps-1", "ps", "b\nc", "1.2.3.4"},   {"ps-1", "ps", "", "1.2.3.4"},
               {"ps-1", "ps", "-b", "1.2.3.4"}, {"ps-1", "ps", "b", "host.example"}, {"ps-1", "ps", "b", "1.2.3.4\nx"},
               {"ps-1", "ps", "b", ""},         {"chief-1", "ps", "b", "1.2.3.4"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pst_member at[3];
        pst_members m = three(at);
        pst_err err = {0};
        snprintf(at[2].process, sizeof at[2].process, "%s", bad[i].process);
        snprintf(at[2].role, sizeof at[2].role, "%s", bad[i].role);
        snprintf(at[2].host, sizeof at[2].host, "%s", bad[i].host);
        snprintf(at[2].address, sizeof at[2].address, "%s", bad[i].address);
        assert_int_equal(pst_members_write(*state, &m, &err), PST_EPARSE);
    }
}

static void test_members_refuses_numbers_that_contradict(void **state)
{
    pst_member at[3];
    int *const field[] = {&at[1].index,      &at[1].count,      &at[1].rank,  &at[1].rank,      &at[1].rank,
                          &at[1].local_rank, &at[1].local_size, &at[1].port,  &at[1].port,      &at[1].master_port,
                          &at[1].other_port, &at[1].slots,      &at[1].slots, &at[2].local_rank};
    static const int value[] = {1, 0, 0, 3, -2, 2, 1, 0, 65536, -1, 70000, 0, 1 << 20, 0};
    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
        pst_members m = three(at);
        pst_err err = {0};
        *field[i] = value[i];
        assert_int_equal(pst_members_write(*state, &m, &err), PST_EPARSE);
    }
    pst_members m = three(at);
    pst_err err = {0};
    at[0].rank = 2; /* a hole at 0 */
    assert_int_equal(pst_members_write(*state, &m, &err), PST_EPARSE);
    assert_non_null(strstr(err.text, "rank 0"));
    assert_int_equal(pst_members_write(*state, &(pst_members){0}, NULL), PST_EPARSE);
}

static void test_members_file_of_somebody_else_is_refused(void **state)
{
    static const char *const text[] = {"",
                                       "[]",
                                       "{}",
                                       "{\"members\":3}",
                                       "{\"members\":[]}",
                                       "{\"members\":[7]}",
                                       "{\"members\":[{}]}",
                                       "{\"members\":[{\"process\":\"learner-1\",\"role\":\"worker\",\"index\":0,\"count\":1,\"rank\":0,"
                                       "\"local_rank\":0,\"local_size\":1,\"host\":\"a\",\"address\":\"127.0.0.1\",\"port\":4294967297,"
                                       "\"master_port\":2,\"other_port\":3,\"slots\":1}]}"};
    char *path = pst_fs_join(*state, "members.json");
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        pst_members back = {0};
        pst_err err = {0};
        assert_int_equal(pst_fs_replace(path, text[i], strlen(text[i]), 0600, &err), 0);
        assert_int_equal(pst_members_read(*state, &back, &err), PST_EPARSE);
        assert_non_null(strstr(err.text, "members"));
        assert_null(back.at);
    }
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_members_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_members_refuses_what_could_harm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_members_refuses_numbers_that_contradict, setup, teardown),
        cmocka_unit_test_setup_teardown(test_members_file_of_somebody_else_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
