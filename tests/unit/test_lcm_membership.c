/* test_lcm_membership.c - a gang over several nodes, as one node sees it: its own part of a DEPLOY, the list of members out of the job's state, and by which
 * address others reach it. */
#include "common/base/address.h"
#include "lcm/advertise.h"
#include "lcm/membership.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char cast[] = "name: cast\nframework: {name: custom, version: 1, command: run}\n"
                           "penstock: {roles: {chief: {}, worker: {count: 3, gpus: 2}, ps: {}}}\n";

static lcm_command part_of(const char *node, char **nodes, size_t n)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    lcm_command c = {0};
    assert_int_equal(pst_manifest_parse(cast, strlen(cast), &m, &errors, &warnings), 0);
    lcm_membership_sets(&m, &(pst_deploy_spec){.nodes = nodes, .n_nodes = n}, node, &c);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return c;
}

static void is_set(const pst_process_set *s, const char *prefix, int first, int count, int rank)
{
    assert_string_equal(s->prefix, prefix);
    assert_int_equal(s->first, first);
    assert_int_equal(s->count, count);
    assert_int_equal(s->rank, rank);
}

static void test_each_node_takes_its_own_part(void **unused)
{
    char *nodes[] = {(char *)"a", (char *)"a", (char *)"b", (char *)"b", (char *)"a"}; /* chief, three workers, ps */
    lcm_command c = part_of("a", nodes, 5);
    assert_int_equal(c.n_sets, 3);
    is_set(&c.sets[0], "chief", 1, 1, 0);
    is_set(&c.sets[1], "worker", 1, 1, 1);
    is_set(&c.sets[2], "ps", 1, 1, -1);
    c = part_of("b", nodes, 5);
    assert_int_equal(c.n_sets, 1);
    is_set(&c.sets[0], "worker", 2, 2, 2);
    assert_int_equal(c.sets[0].gpus, 2);
    assert_int_equal(part_of("c", nodes, 5).n_sets, 0); /* not named: nothing is started */
    assert_int_equal(part_of("a", nodes, 4).n_sets, 0); /* of another manifest */
}

static void test_a_deploy_without_nodes_is_all_of_it(void **unused)
{
    lcm_command c = part_of("a", NULL, 0);
    assert_int_equal(c.n_sets, 3);
    is_set(&c.sets[1], "worker", 1, 3, 1);
}

static void test_runs_that_are_apart_are_sets_of_their_own(void **unused)
{
    char *nodes[] = {(char *)"b", (char *)"a", (char *)"b", (char *)"a", (char *)"b"};
    lcm_command c = part_of("a", nodes, 5);
    assert_int_equal(c.n_sets, 2);
    is_set(&c.sets[0], "worker", 1, 1, 1);
    is_set(&c.sets[1], "worker", 3, 1, 3);
}

static pst_job_process at(const char *name, const char *node, const char *address)
{
    return (pst_job_process){.name = (char *)name,
                             .node = (char *)node,
                             .host = (char *)"h",
                             .address = (char *)address,
                             .port = 4000,
                             .master_port = 4001,
                             .other_port = 4002};
}

static void test_members_have_ranks_over_all_and_local_ones_by_node(void **unused)
{
    pst_job_process p[] = {at("chief-1", "a", "10.0.0.1"), at("worker-1", "a", "10.0.0.1"), at("worker-2", "b", "10.0.0.2"),
                           at("worker-3", "b", "10.0.0.2"), at("ps-1", "a", "10.0.0.1")};
    static const int ranks[][3] = {{0, 0, 2}, {1, 1, 2}, {2, 0, 2}, {3, 1, 2}, {-1, -1, 0}};
    pst_job_state s = {.manifest = (char *)cast, .processes = p, .n_processes = 5};
    pst_members m;
    assert_true(lcm_membership_of(&s, &m));
    assert_int_equal(m.n, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(m.at[i].process, p[i].name);
        assert_string_equal(m.at[i].address, p[i].address);
        assert_string_equal(m.at[i].host, p[i].node);
        assert_int_equal(m.at[i].rank, ranks[i][0]);
        assert_int_equal(m.at[i].local_rank, ranks[i][1]);
        assert_int_equal(m.at[i].local_size, ranks[i][2]);
    }
    assert_int_equal(m.at[3].index, 2);
    assert_int_equal(m.at[3].count, 3);
    assert_int_equal(m.at[3].slots, 2);
    pst_members_done(&m);
    p[3].address = (char *)"";
    assert_false(lcm_membership_of(&s, &m)); /* one is missing: there is no list */
    assert_true(lcm_membership_concerns(&s, "b"));
    assert_false(lcm_membership_concerns(&s, "c"));
    p[0].node = p[1].node = p[2].node = p[3].node = p[4].node = (char *)""; /* all on one node: its supervisors need no list of ours */
    assert_false(lcm_membership_concerns(&s, "a"));
}

static void test_address_is_one_that_others_can_use(void **unused)
{
    static const char *const bad[] = {"",        "0.0.0.0", "::",          "255.255.255.255", "224.0.0.1", "ff02::1",
                                      "fe80::1", "host",    "10.0.0.1:80", "10.0.0",          "0x7f.1",    "10.0.0.1 "};
    char address[LCM_ADDRESS_MAX];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pst_err err = {0};
        assert_int_equal(lcm_advertise(bad[i], address, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, "--advertise"));
    }
    assert_int_equal(lcm_advertise("fd00::7", address, NULL), 0);
    assert_string_equal(address, "fd00::7");
    assert_int_equal(lcm_advertise(NULL, address, NULL), 0);
    assert_true(pst_address_is_numeric(address));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_node_takes_its_own_part),
        cmocka_unit_test(test_a_deploy_without_nodes_is_all_of_it),
        cmocka_unit_test(test_runs_that_are_apart_are_sets_of_their_own),
        cmocka_unit_test(test_members_have_ranks_over_all_and_local_ones_by_node),
        cmocka_unit_test(test_address_is_one_that_others_can_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
