/* test_access.c - the table of rights: every word of topics.def is a component, every topic has a writer and a reader, and a component gets what
 * the table says and nothing else. */
#include "schemas/access.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

typedef struct seen {
    const char *resource, *name, *operation;
    int hits, grants;
} seen;

static void look(void *arg, const pst_grant *g)
{
    seen *s = arg;
    s->grants++;
    s->hits += !strcmp(g->resource, s->resource) && !strcmp(g->name, s->name) && !strcmp(g->operation, s->operation);
}

static int granted(pst_component c, const char *resource, const char *name, const char *operation)
{
    seen s = {.resource = resource, .name = name, .operation = operation};
    pst_access_each(c, "p.", look, &s);
    assert_true(s.grants > 0);
    return s.hits;
}

static void words_are_components(const char *words)
{
    char *copy = pst_strdup(words), *rest = copy, *word;
    int n = 0;
    for (; (word = strsep(&rest, " ")); n++) {
        int c = 0;
        while (c < PST_COMPONENT_COUNT && strcmp(word, pst_component_name((pst_component)c)))
            c++;
        if (c == PST_COMPONENT_COUNT)
            fail_msg("\"%s\" of topics.def is no component", word);
    }
    assert_true(n > 0);
    free(copy);
}

static void test_access_topics_name_components(void **state)
{
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        words_are_components(pst_topic_get((pst_topic)t)->writers);
        words_are_components(pst_topic_get((pst_topic)t)->readers);
    }
}

static void test_access_follows_the_table(void **state)
{
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        char *name = pst_topic_name("p.", (pst_topic)t);
        for (int c = 0; c < PST_COMPONENT_COUNT; c++) {
            const pst_topic_def *d = pst_topic_get((pst_topic)t);
            const char *who = pst_component_name((pst_component)c);
            assert_int_equal(granted((pst_component)c, "topic", name, "Write"), strstr(d->writers, who) != NULL);
            assert_int_equal(granted((pst_component)c, "topic", name, "Read"), strstr(d->readers, who) != NULL);
        }
        free(name);
    }
}

/* Only the Trainer concludes about jobs: were another to write these, the table would be wrong, not generous. */
static void test_access_one_writer_of_conclusions(void **state)
{
    static const pst_topic own[] = {PST_TOPIC_JOBS_EVENTS, PST_TOPIC_JOBS_STATE, PST_TOPIC_JOBS_COMMANDS};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_string_equal(pst_topic_get(own[i])->writers, "trainer");
    for (int t = 0; t < PST_TOPIC_COUNT; t++)
        assert_null(strstr(pst_topic_get((pst_topic)t)->writers, "viewer"));
}

static void test_access_groups_and_ids(void **state)
{
    assert_int_equal(granted(PST_COMPONENT_TRAINER, "transactional-id", "p.trainer", "Write"), 1);
    assert_int_equal(granted(PST_COMPONENT_LCM, "group", "p.lcm.", "Read"), 1);
    assert_int_equal(granted(PST_COMPONENT_REGISTRY, "topic", "_schemas", "Create"), 1); /* its name has no prefix */
    assert_int_equal(granted(PST_COMPONENT_VIEWER, "transactional-id", "p.trainer", "Write"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_access_topics_name_components), cmocka_unit_test(test_access_follows_the_table),
        cmocka_unit_test(test_access_one_writer_of_conclusions), cmocka_unit_test(test_access_groups_and_ids)};
    return cmocka_run_group_tests_name("access", tests, NULL, NULL);
}
