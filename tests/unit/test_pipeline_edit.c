/* test_pipeline_edit.c - the rollout section of an operator's text replaced: everything else stays byte for byte, and what cannot be edited is refused. */
#include "inference/pipeline/pipeline_edit.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

static char *edited(const char *text, const char *rollout)
{
    json_t *r = json_loads(rollout, 0, NULL);
    char *out = NULL;
    pst_err err = {0};
    assert_non_null(r);
    if (pst_pipeline_edit_rollout(text, "p", r, &out, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(r);
    return out;
}

static void becomes(const char *text, const char *rollout, const char *want)
{
    char *out = edited(text, rollout);
    assert_string_equal(out, want);
    char *again = edited(out, rollout);
    assert_string_equal(again, want);
    free(out);
    free(again);
}

#define CANARY "{\"canary\": {\"alias\": \"c\", \"percent\": 5}}"

static void test_edit_adds(void **state)
{
    becomes("name: p # mine\nmodel: {name: m}\n", CANARY, "name: p # mine\nmodel: {name: m}\nrollout: " CANARY "\n");
    becomes("name: p\nmodel: {name: \"${M:-m}\"}", CANARY, "name: p\nmodel: {name: \"${M:-m}\"}\nrollout: " CANARY "\n");
}

static void test_edit_replaces_block_and_flow(void **state)
{
    becomes("name: p\nrollout:\n  canary:\n    alias: x\n\n    percent: 1\n\n# of the model\nmodel: {name: m}\n", CANARY,
            "name: p\nrollout: " CANARY "\n\n# of the model\nmodel: {name: m}\n");
    becomes("rollout: {canary: {alias: x,\n  percent: 1},\n}\nname: p\n", CANARY, "rollout: " CANARY "\nname: p\n");
    becomes("name: p\n\"rollout\" : {}\n", CANARY, "name: p\nrollout: " CANARY "\n");
}

static void test_edit_takes_away(void **state)
{
    becomes("name: p\nrollout:\n  shadow: {alias: s, topic: t}\nmodel: {name: m}\n", "{}", "name: p\nmodel: {name: m}\n");
    becomes("name: p\n", "{}", "name: p\n");
}

static void test_edit_leaves_what_says_the_same(void **state)
{
    static const char text[] = "name: p\nrollout:\n  canary: {percent: 5, alias: c} # as agreed\n";
    becomes(text, CANARY, text);
}

static void test_edit_refuses_what_it_cannot(void **state)
{
    static const char *const texts[] = {"{name: p, model: {name: m}}\n", "name: p\nnote: |\n  a\n  b\n...\n",
                                        "name: p\nnote: 'a\nrollout: b'\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *r = json_loads(CANARY, 0, NULL);
        char *out = NULL;
        pst_err err = {0};
        int rc = pst_pipeline_edit_rollout(texts[i], "p", r, &out, &err);
        if (rc != PST_EINVAL || !strstr(err.text, "write it as a section"))
            fail_msg("%zu: %d \"%s\" %s", i, rc, err.text, out ? out : "");
        json_decref(r);
    }
}

static void test_edit_reads_what_is_there(void **state)
{
    json_t *r = NULL;
    pst_err err = {0};
    assert_int_equal(pst_pipeline_rollout("name: p\nrollout: {canary: {alias: '${A}', percent: 2.5}}\n", "p", &r, &err), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(r, "canary"), "alias")), "${A}");
    json_decref(r);
    assert_int_equal(pst_pipeline_rollout("name: p\n", "p", &r, &err), 0);
    assert_int_equal(json_object_size(r), 0);
    json_decref(r);
    assert_int_equal(pst_pipeline_rollout("name: [\n", "p", &r, &err), PST_EPARSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edit_adds),
        cmocka_unit_test(test_edit_replaces_block_and_flow),
        cmocka_unit_test(test_edit_takes_away),
        cmocka_unit_test(test_edit_leaves_what_says_the_same),
        cmocka_unit_test(test_edit_refuses_what_it_cannot),
        cmocka_unit_test(test_edit_reads_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
