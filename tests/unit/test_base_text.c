/* test_base_text.c - YAML, JSON, options, settings, metrics. */
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/metrics.h"
#include "common/base/log.h"
#include "common/base/opt.h"
#include "common/base/settings.h"
#include "common/base/yaml.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <math.h>

#include "tests/unit/test.h"

static int yaml(const char *text, pst_yaml *y, pst_err *e)
{
    return pst_yaml_parse(text, strlen(text), "f.yml", y, e);
}

static void test_json_numbers_are_written_short_and_exact(void **state)
{
    static const struct {
        double x;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {3, "3.0"},
                 {-0.0, "-0.0"},
                 {1e300, "1e+300"},
                 {1.0 / 3, "0.3333333333333333"},
                 {5e-324, "4.94065645841247e-324"},
                 {0.30000000000000004, "0.30000000000000004"},
                 {123456789012345680.0, "1.2345678901234568e+17"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        json_t *j = json_real(cases[i].x);
        char *text = pst_json_text(j);
        assert_string_equal(text, cases[i].text);
        assert_true(strtod(text, NULL) == cases[i].x);
        free(text);
        json_decref(j);
    }
    const char *all = "{\"b\":[1,true,false,null,\"q\\\"\\\\\\n\\u0001\xc3\xa9\"],\"a\":{},\"e\":[]}";
    json_t *j = json_loads(all, 0, NULL);
    char *text = pst_json_text(j); /* keys stay in their order */
    assert_string_equal(text, all);
    free(text);
    json_decref(j);
}

static void test_yaml_scalars_follow_the_core_schema(void **state)
{
    pst_yaml y;
    pst_err e = {0};
    assert_int_equal(yaml("a: 1\nb: 1.5\nc: yes\nd: true\ne: ~\nf: \"1\"\ng: 0x10\nh: 1e3\ni: 12abc\nj: [x, 2]\nk: -3\nl: 1.2.3\n", &y, &e),
                     0);
    char *text = pst_json_text(y.root);
    assert_string_equal(text, "{\"a\":1,\"b\":1.5,\"c\":\"yes\",\"d\":true,\"e\":null,\"f\":\"1\",\"g\":16,\"h\":1000.0,\"i\":\"12abc\","
                              "\"j\":[\"x\",2],\"k\":-3,\"l\":\"1.2.3\"}");
    free(text);
    assert_int_equal(pst_yaml_key_line(&y, y.root, "j"), 10);
    pst_yaml_done(&y);
}

static void test_yaml_refuses_what_is_not_bounded_or_plain(void **state)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {{"a: [1, 2\n", "f.yml:"}, {"a: 1\na: 2\n", "twice"},         {"a: &x 1\nb: *x\n", "alias"},
                {"{[1]: 2}", "key"},      {"a: 1\n---\nb: 2\n", "document"}, {"a: b: c\n", "f.yml:1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_yaml y;
        pst_err e = {0};
        assert_true(yaml(rows[i].text, &y, &e) < 0);
        assert_non_null(strstr(e.text, rows[i].wanted));
        assert_int_equal(e.cls, PST_CLASS_DATA);
    }
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 99);
    deep[199] = 0;
    pst_yaml y;
    pst_err e = {0};
    assert_true(yaml(deep, &y, &e) < 0);
    assert_int_equal(yaml("", &y, &e), 0);
    assert_true(json_is_null(y.root));
    pst_yaml_done(&y);
}

static void test_yaml_unknown_key_names_line_and_neighbour(void **state)
{
    static const char *const known[] = {"topics", "group", "start"};
    pst_yaml y;
    pst_err e = {0};
    assert_int_equal(yaml("topics: [a]\n\ngruop: x\n", &y, &e), 0);
    assert_int_equal(pst_yaml_check_keys(&y, y.root, "input", known, 3, &e), PST_EINVAL);
    assert_non_null(strstr(e.text, "f.yml:3"));
    assert_non_null(strstr(e.text, "did you mean group"));
    pst_yaml_done(&y);
}

static void test_json_quote_repairs_bytes(void **state)
{
    pst_buf b = {0};
    pst_json_quote(&b, "a\"\\\n\x01\xff\xc3\xa9\xed\xa0\x80", 11);
    assert_string_equal(b.data, "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    json_t *j = json_loads(b.data, JSON_DECODE_ANY, NULL);
    assert_non_null(j);
    json_decref(j);
    pst_buf_done(&b);
}

typedef struct opts {
    bool wait, fast;
    const char *name;
    int64_t n, size, age, part;
    double share;
    pst_opt_list list;
} opts;
#define AT(f) offsetof(opts, f)
static const pst_opt table[] = {
    {"wait", 'w', PST_OPT_BOOL, AT(wait), NULL, NULL, "wait"},   {"fast", 0, PST_OPT_BOOL, AT(fast), NULL, "true", "fast"},
    {"name", 'n', PST_OPT_STR, AT(name), "N", "anon", "name"},   {"count", 'c', PST_OPT_INT, AT(n), "N", "7", "count"},
    {"part", 0, PST_OPT_INT, AT(part), "P -1..5", "-1", "part"}, {"size", 0, PST_OPT_BYTES, AT(size), "B", "1KiB", "size"},
    {"age", 0, PST_OPT_SPAN, AT(age), "T", NULL, "age"},         {"share", 0, PST_OPT_DOUBLE, AT(share), "S", NULL, "share"},
    {"item", 'i', PST_OPT_LIST, AT(list), "I", NULL, "item"},
};
static const pst_usage usage = {"try", "FILE", "Try.", NULL, "penstock try x", table, sizeof table / sizeof *table, false};

static int parse(const char *line, opts *o, pst_settings *s, char ***args, int *n, pst_err *e)
{
    static char copy[512];
    char *argv[32], *save = NULL;
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;
    memset(o, 0, sizeof *o);
    return pst_opt_parse(&usage, argc, argv, o, s, args, n, e);
}

static int parse_service(const char *line, pst_settings *s, int *ret_n, pst_err *e)
{
    static const pst_usage service = {"serve", "", "Serve.", NULL, NULL, NULL, 0, false};
    char copy[128], *argv[8], *save = NULL, **args = NULL;
    int argc = 0, unused;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;
    int rc = pst_opt_parse(&service, argc, argv, &unused, s, &args, ret_n, e);
    free(args);
    return rc;
}

static void test_verbose_takes_the_names_of_components(void **state)
{
    const struct {
        const char *line, *wrong;
        int verbose;
    } cases[] = {{"serve -v", NULL, 1},
                 {"serve -vv --json", NULL, 2},
                 {"serve -v bus,lcm --json", NULL, 1},
                 {"serve -vbus", NULL, 1},
                 {"serve --verbose=score,all", NULL, 1},
                 {"serve --verbose", NULL, 1},
                 {"serve -v bus,lmc", "lmc", 0},
                 {"serve -vbuss", "buss", 0},
                 {"serve -v bus bus", "one argument too many", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_settings s = {0};
        pst_err e = {0};
        int n = 0;
        assert_int_equal(parse_service(cases[i].line, &s, &n, &e), cases[i].wrong ? PST_EINVAL : 0);
        if (cases[i].wrong)
            assert_non_null(strstr(e.text, cases[i].wrong));
        else
            assert_int_equal(s.verbose, cases[i].verbose);
        pst_settings_done(&s);
    }
    opts o; /* where an argument may follow, the next word is that */
    pst_settings s = {0};
    pst_err e = {0};
    char **args = NULL;
    int n = 0;
    assert_int_equal(parse("try -v bus", &o, &s, &args, &n, &e), 0);
    assert_int_equal(n, 1);
    free(args);
    pst_settings_done(&s);
    setenv("PENSTOCK_DEBUG", "nobody", 1);
    assert_int_equal(parse_service("serve", &s, &n, &e), PST_EINVAL);
    assert_non_null(strstr(e.text, "PENSTOCK_DEBUG: \"nobody\""));
    unsetenv("PENSTOCK_DEBUG");
    pst_log_set_level(PST_LOG_INFO);
    pst_log_set_debug(NULL, NULL);
}

static void test_options_mix_with_arguments(void **state)
{
    opts o;
    pst_settings s = {0};
    pst_err e = {0};
    char **args = NULL;
    int n = 0;
    assert_int_equal(parse("try a --no-fast -w b --count=9 --size 2MiB --age 5ms -i x -i y --share 0.25 --json -b h:1 -X linger.ms=5", &o,
                           &s, &args, &n, &e),
                     0);
    assert_true(o.wait);
    assert_false(o.fast);
    assert_int_equal(o.n, 9);
    assert_int_equal(o.size, 2 << 20);
    assert_int_equal(o.age, 5000);
    assert_true(o.share == 0.25);
    assert_string_equal(o.name, "anon");
    assert_int_equal(o.list.n, 2);
    assert_string_equal(o.list.items[1], "y");
    assert_int_equal(n, 2);
    assert_string_equal(args[1], "b");
    assert_true(s.json);
    assert_string_equal(s.bootstrap.value, "h:1");
    assert_string_equal(s.bootstrap.origin, "flag");
    assert_int_equal(s.n_kafka, 1);
    assert_string_equal(s.kafka[0].key, "linger.ms");
    free(o.list.items);
    free(args);
    pst_settings_done(&s);
}

static void test_options_errors_name_what_and_the_neighbour(void **state)
{
    static const struct {
        const char *line, *wanted;
    } rows[] = {{"try --wiat", "--wait"},
                {"try --count many", "--count many"},
                {"try --size 3parsecs", "64MiB"},
                {"try --age", "needs a value"},
                {"try --count -5", "from 0 to 2147483647"},
                {"try --count 99999999999999", "from 0 to"},
                {"try --part -2", "from -1 to 5"},
                {"try --part 6", "from -1 to 5"},
                {"try --share -1", "a number from 0"},
                {"try -z", "-z"},
                {"try -X nonsense", "property=value"},
                {"try --color blue", "auto"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        opts o;
        pst_settings s = {0};
        pst_err e = {0};
        char **args = NULL;
        int n = 0;
        assert_int_equal(parse(rows[i].line, &o, &s, &args, &n, &e), PST_EINVAL);
        assert_non_null(strstr(e.text, rows[i].wanted));
        assert_int_equal(pst_err_exit(&e), 2);
    }
}

static void test_settings_precedence(void **state)
{
    char dir[] = "/tmp/penstock-unit-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *file = pst_fs_join(dir, "client.properties"), *profile = pst_fs_join(dir, "profile.json");
    const char *text =
        "# a comment\nbootstrap.servers = file:1\nschema.registry.url=http://r\nbasic.auth.user.info=u:p:q\nacks=\\\n  all\n";
    const char *prof = "{\"bootstrap\":\"profile:1\",\"gateway\":\"http://g\",\"embedded\":true}";
    assert_int_equal(pst_fs_write_atomic(file, text, strlen(text), 0600, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(profile, prof, strlen(prof), 0600, NULL), 0);
    pst_settings s = {0};
    pst_err e = {0};
    pst_setting_flags f = {.state_dir = dir};
    unsetenv("PENSTOCK_BOOTSTRAP_SERVERS");
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.bootstrap.value, "profile:1");
    assert_true(s.embedded);
    pst_settings_done(&s);
    f.file = file;
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.bootstrap.value, "file:1");
    assert_string_equal(s.registry.value, "http://r");
    assert_string_equal(s.registry_user, "u");
    assert_string_equal(s.registry_password, "p:q");
    assert_string_equal(s.gateway.value, "http://g");
    assert_false(s.embedded); /* another broker than the profile's */
    assert_string_equal(s.kafka[0].value, "all");
    assert_non_null(strstr(s.kafka[0].origin, "client.properties:5"));
    pst_settings_done(&s);
    setenv("PENSTOCK_BOOTSTRAP_SERVERS", "env:1", 1);
    setenv("PENSTOCK_X_LINGER_MS", "3", 1);
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.bootstrap.value, "env:1");
    assert_string_equal(s.kafka[s.n_kafka - 1].key, "linger.ms");
    pst_settings_done(&s);
    const char *x[] = {"bootstrap.servers=x:1", "linger.ms=9"};
    f.x = x;
    f.n_x = 2;
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.bootstrap.value, "x:1");
    assert_string_equal(s.kafka[s.n_kafka - 1].value, "9");
    char **env = pst_settings_environ(&s);
    int lingers = 0;
    for (size_t i = 0; env[i]; i++) {
        lingers += !strncmp(env[i], "PENSTOCK_X_LINGER_MS=", 21) && !strcmp(env[i] + 21, "9");
        assert_false(!strncmp(env[i], "PENSTOCK_X_LINGER_MS=3", 22));
        free(env[i]);
    }
    free(env);
    assert_int_equal(lingers, 1);
    pst_settings_done(&s);
    f.bootstrap = "flag:1";
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.bootstrap.value, "flag:1");
    pst_settings_done(&s);
    unsetenv("PENSTOCK_BOOTSTRAP_SERVERS");
    unsetenv("PENSTOCK_X_LINGER_MS");
    assert_int_equal(pst_fs_remove_tree(dir, NULL), 0);
    free(file);
    free(profile);
}

static bool has(char **env, const char *variable)
{
    bool found = false;
    for (size_t i = 0; env[i]; i++)
        found |= !strcmp(env[i], variable);
    return found;
}

static void free_environ(char **env)
{
    for (size_t i = 0; env[i]; i++)
        free(env[i]);
    free(env);
}

/* PENSTOCK_DEBUG=… penstock up is meant for its services; -v for the one program. */
static void test_settings_debug_has_an_origin_and_goes_on_from_the_environment(void **state)
{
    pst_setting_flags f = {.state_dir = "/nowhere"};
    pst_settings s;
    pst_err e = {0};
    unsetenv("PENSTOCK_DEBUG");
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.debug.value, "");
    assert_string_equal(s.debug.origin, "default");
    pst_settings_done(&s);
    setenv("PENSTOCK_DEBUG", "bus,lcm", 1);
    setenv("PENSTOCK_ISA", "portable", 1);
    setenv("PENSTOCK_NONSENSE", "1", 1);
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.debug.value, "bus,lcm");
    assert_string_equal(s.debug.origin, "environment PENSTOCK_DEBUG");
    char **env = pst_settings_environ(&s);
    assert_true(has(env, "PENSTOCK_DEBUG=bus,lcm"));
    assert_true(has(env, "PENSTOCK_ISA=portable"));
    assert_false(has(env, "PENSTOCK_NONSENSE=1"));
    free_environ(env);
    pst_settings_done(&s);
    unsetenv("PENSTOCK_DEBUG");
    unsetenv("PENSTOCK_ISA");
    unsetenv("PENSTOCK_NONSENSE");
    f.debug = "trainer";
    assert_int_equal(pst_settings_load(&f, &s, &e), 0);
    assert_string_equal(s.debug.value, "trainer");
    assert_string_equal(s.debug.origin, "flag");
    env = pst_settings_environ(&s);
    assert_false(has(env, "PENSTOCK_DEBUG=trainer"));
    free_environ(env);
    pst_settings_done(&s);
}

static void test_spread_of_scores(void **state)
{
    pst_metrics *set = pst_metrics_new();
    pst_metric *m = pst_metric_make(set, PST_METRIC_KIND_SPREAD, "score", "S.", (const char *const[]){NULL});
    pst_metric_spread s = {0};
    const double at[] = {-INFINITY, -3, 0, 0.0005, 0.5, 0.50001, 0.995, 1, 1000, 1001, INFINITY, NAN};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        pst_metric_spread_add(&s, at[i]);
    pst_metric_merge(m, &s);
    assert_true(pst_metric_get(m) == 11); /* NaN is none */
    pst_buf b = {0};
    pst_metrics_text(set, &b);
    static const char *const lines[] = {"# TYPE score histogram\n",       "score_bucket{le=\"0\"} 3\n",
                                        "score_bucket{le=\"0.001\"} 4\n", "score_bucket{le=\"0.5\"} 5\n",
                                        "score_bucket{le=\"0.6\"} 6\n",   "score_bucket{le=\"0.99\"} 6\n",
                                        "score_bucket{le=\"1\"} 8\n",     "score_bucket{le=\"1000\"} 9\n",
                                        "score_bucket{le=\"+Inf\"} 11\n", "score_count 11\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(b.data, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], b.data);
    pst_buf_done(&b);
    pst_metrics_free(set);
    pst_metric_spread half = {0};
    assert_true(pst_metric_spread_quantile(&half, 0.5) == 0);
    for (int i = 0; i < 100; i++)
        pst_metric_spread_add(&half, i / 100.0);
    assert_true(fabs(pst_metric_spread_quantile(&half, 0.5) - 0.5) < 0.02);
    assert_true(fabs(pst_metric_spread_quantile(&half, 0.9) - 0.9) < 0.02);
}

static void test_metrics_text_and_quantiles(void **state)
{
    pst_metrics *set = pst_metrics_new();
    pst_metric *c = pst_metric_counter(set, "a_total", "A.", "topic", "x\"y\n", NULL), *h = pst_metric_histogram(set, "s", "S.", NULL);
    assert_ptr_equal(c, pst_metric_counter(set, "a_total", "A.", "topic", "x\"y\n", NULL));
    pst_metric_add(c, 2);
    for (int i = 0; i < 100; i++)
        pst_metric_observe(h, i < 99 ? 0.001 : 1.0);
    assert_true(pst_metric_get(h) == 100);
    assert_in_range((uint64_t)(pst_metric_quantile(h, 0.5) * 1e6), 700, 1700);
    assert_in_range((uint64_t)(pst_metric_quantile(h, 0.999) * 1e6), 700000, 1700000);
    pst_buf b = {0};
    pst_metrics_text(set, &b);
    assert_non_null(strstr(b.data, "# TYPE a_total counter\na_total{topic=\"x\\\"y\\n\"} 2\n"));
    assert_non_null(strstr(b.data, "s_bucket{le=\"+Inf\"} 100\n"));
    assert_non_null(strstr(b.data, "s_count 100\n"));
    assert_null(strstr(b.data, "# EOF"));
    pst_buf_done(&b);
    pst_metrics_open_text(set, &b);
    assert_non_null(strstr(b.data, "# HELP a A.\n# TYPE a counter\na_total{topic=\"x\\\"y\\n\"} 2\n"));
    assert_non_null(strstr(b.data, "# TYPE s histogram\n"));
    assert_string_equal(b.data + b.len - 6, "# EOF\n");
    pst_buf_done(&b);
    for (int i = 0; i < 2000; i++) { /* a label that grows without bound meets its limit */
        char value[16];
        snprintf(value, sizeof value, "%d", i);
        pst_metric_add(pst_metric_counter(set, "many_total", "M.", "id", value, NULL), 1);
    }
    pst_metrics_text(set, &b);
    assert_non_null(strstr(b.data, "overflow=\"true\""));
    pst_buf_done(&b);
    pst_metrics_free(set);
}

/* A service without USER acts for the account that runs it: the same one that a person's shell names. */
static void test_account_is_that_of_the_process(void **state)
{
    char *before = getenv("USER") ? strdup(getenv("USER")) : NULL;
    unsetenv("PENSTOCK_USER");
    setenv("USER", "ann", 1);
    assert_string_equal(pst_account_name(NULL), "ann");
    unsetenv("USER");
    struct passwd *p = getpwuid(geteuid());
    if (p)
        assert_string_equal(pst_account_name(NULL), p->pw_name);
    assert_string_equal(pst_account_name("bea"), "bea");
    if (before)
        setenv("USER", before, 1);
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_numbers_are_written_short_and_exact),
        cmocka_unit_test(test_yaml_scalars_follow_the_core_schema),
        cmocka_unit_test(test_yaml_refuses_what_is_not_bounded_or_plain),
        cmocka_unit_test(test_yaml_unknown_key_names_line_and_neighbour),
        cmocka_unit_test(test_json_quote_repairs_bytes),
        cmocka_unit_test(test_verbose_takes_the_names_of_components),
        cmocka_unit_test(test_options_mix_with_arguments),
        cmocka_unit_test(test_options_errors_name_what_and_the_neighbour),
        cmocka_unit_test(test_settings_precedence),
        cmocka_unit_test(test_settings_debug_has_an_origin_and_goes_on_from_the_environment),
        cmocka_unit_test(test_metrics_text_and_quantiles),
        cmocka_unit_test(test_spread_of_scores),
        cmocka_unit_test(test_account_is_that_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
