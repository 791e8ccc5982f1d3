/* test_avro_golden.c - the bytes that fastavro wrote for every event schema (tests/golden/make.py), byte for byte both ways. */
#include "avro_kit.h"

#include "schemas/events.h"
#include "schemas/type.h"

#include "common/base/fs.h"

#include <dirent.h>
#include <unistd.h>

static const char *dir = "tests/golden";

static pst_buf read_file(const char *stem, const char *suffix)
{
    pst_buf b = {0};
    pst_err err = {0};
    char *path = pst_sprintf("%s/%s.%s", dir, stem, suffix);
    if (pst_fs_read(path, 1 << 20, &b, &err) < 0)
        fail_msg("%s", err.text);
    free(path);
    return b;
}

/* stem: "JobRequest.full" */
static void check(const char *stem)
{
    char *name = pst_strndup(stem, (size_t)(strchr(stem, '.') - stem));
    const pst_type *t = pst_type_find(name);
    pst_buf want_json = read_file(stem, "json"), want = read_file(stem, "avro"), got = {0};
    pst_err err = {0};
    pst_schema *s = NULL;
    pst_decode_plan *p = NULL;
    json_t *j = NULL, *seen;
    assert_non_null(t);
    void *event = pst_alloc(t->size), *other = pst_alloc(t->size);
    if (pst_schema_parse(t->schema, strlen(t->schema), &s, &err) < 0 || pst_decode_plan_new(s, t, &p, &err) < 0 ||
        pst_json_parse(want_json.data, want_json.len, stem, &j, &err) < 0)
        fail_msg("%s: %s", stem, err.text);
    /* bytes → struct → JSON, bytes */
    if (pst_decode_run(p, want.data, want.len, event, &err) < 0)
        fail_msg("%s: %s", stem, err.text);
    seen = pst_event_to_json(t, event);
    if (!json_equal(seen, j))
        fail_msg("%s: got %s", stem, pst_json_text(seen));
    pst_event_encode(t, event, &got);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
    /* JSON → struct → bytes */
    if (pst_event_from_json(t, j, other, &err) < 0)
        fail_msg("%s: %s", stem, err.text);
    assert_true(pst_event_equal(t, event, other));
    pst_buf_clear(&got);
    pst_event_encode(t, other, &got);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
    /* bytes → generic JSON → bytes */
    json_decref(seen);
    if (pst_avro_to_json(s, want.data, want.len, &seen, &err) < 0)
        fail_msg("%s: %s", stem, err.text);
    pst_buf_clear(&got);
    if (pst_avro_from_json(s, seen, &got, &err) < 0)
        fail_msg("%s: %s", stem, err.text);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
    json_decref(seen);
    json_decref(j);
    pst_event_clear(t, event);
    pst_event_clear(t, other);
    free(event);
    free(other);
    free(name);
    pst_decode_plan_free(p);
    pst_schema_free(s);
    pst_buf_done(&want);
    pst_buf_done(&want_json);
    pst_buf_done(&got);
}

/* A schema of an earlier version, whose records stand on topics and in files: what it wrote (the bytes beside it) is read, under the
 * present names and with the defaults of what was added since; JSON of that time has its names. */
static void check_older(const char *stem)
{
    char *name = pst_strndup(stem, (size_t)(strchr(stem, '.') - stem)), *file = pst_sprintf("older/%s", name);
    const pst_type *t = pst_type_find(name);
    char *record = pst_sprintf("older/%s", stem);
    pst_buf text = read_file(file, "avsc"), bytes = read_file(record, "avro");
    pst_err err = {0};
    pst_schema *before = NULL, *now = NULL;
    pst_decode_plan *from_before = NULL;
    void *a = pst_alloc(t->size), *c = pst_alloc(t->size);
    json_t *j = NULL;
    if (pst_schema_parse(text.data, text.len, &before, &err) < 0 || pst_schema_parse(t->schema, strlen(t->schema), &now, &err) < 0 ||
        pst_decode_plan_new(before, t, &from_before, &err) < 0 || pst_decode_run(from_before, bytes.data, bytes.len, a, &err) < 0 ||
        pst_avro_to_json(before, bytes.data, bytes.len, &j, &err) < 0)
        fail_msg("%s: %s", stem, err.text);
    /* a document of that time, as view and page had it: the present one's with the names of before */
    json_t *doc = pst_event_to_json(t, a);
    for (size_t i = 0; i < t->n_fields; i++)
        if (t->fields[i].aliases) {
            assert_non_null(json_object_get(j, *t->fields[i].aliases));
            json_object_set(doc, *t->fields[i].aliases, json_object_get(doc, t->fields[i].name));
            json_object_del(doc, t->fields[i].name);
        }
    if (pst_event_from_json(t, doc, c, &err) < 0)
        fail_msg("%s: %s", stem, err.text);
    assert_true(pst_event_equal(t, a, c));
    /* either way round a registry lets both versions of the subject stand */
    assert_int_equal(pst_schema_can_read(now, before, NULL), 1);
    assert_int_equal(pst_schema_can_read(before, now, NULL), 1);
    pst_event_clear(t, a);
    pst_event_clear(t, c);
    free(a);
    free(c);
    free(name);
    free(file);
    free(record);
    json_decref(j);
    json_decref(doc);
    pst_decode_plan_free(from_before);
    pst_schema_free(before);
    pst_schema_free(now);
    pst_buf_done(&text);
    pst_buf_done(&bytes);
}

static void test_golden_state_of_the_version_before(void **state)
{
    (void)state;
    check_older("JobState.full");
    check_older("JobState.empty");
}

static void test_golden_bytes_both_ways(void **state)
{
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char *dot = strstr(e->d_name, ".avro");
        if (!dot || dot[5])
            continue;
        *dot = 0;
        check(e->d_name);
        n++;
    }
    closedir(d);
    assert_true(n >= 22);
}

/* Each event schema that is registered has its golden files: a new one may not be forgotten. */
static void test_golden_files_are_complete(void **state)
{
    DIR *d = opendir("schemas");
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char *dot = strstr(e->d_name, ".avsc");
        if (!dot)
            continue;
        *dot = 0;
        char *full = pst_sprintf("%s/%s.full.avro", dir, e->d_name);
        if (access(full, R_OK))
            fail_msg("%s is missing: python3 tests/golden/make.py", full);
        assert_non_null(pst_type_find(e->d_name));
        free(full);
        n++;
    }
    closedir(d);
    assert_true(n >= 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_bytes_both_ways),
        cmocka_unit_test(test_golden_state_of_the_version_before),
        cmocka_unit_test(test_golden_files_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
