/* test_manifest.c - manifests of FfDL and of ours: what is read, what is refused, and that nothing wrong is passed over in silence. */
#include "schemas/manifest.h"

#include "common/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct parsed {
    pst_manifest m;
    pst_complaints errors, warnings;
    int rc;
} parsed;

static parsed parse(const char *yaml)
{
    parsed p = {0};
    p.rc = pst_manifest_parse(yaml, strlen(yaml), &p.m, &p.errors, &p.warnings);
    assert_int_equal(p.rc, p.errors.n ? PST_EINVAL : 0);
    return p;
}

static void parsed_done(parsed *p)
{
    pst_manifest_done(&p->m);
    pst_complaints_done(&p->errors);
    pst_complaints_done(&p->warnings);
}

static const pst_complaint *about(const pst_complaints *c, const char *field)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->at[i].field, field))
            return &c->at[i];
    return NULL;
}

static const char good[] = "name: tf_convolutional_network_tutorial\n"
                           "description: Convolutional network model using tensorflow\n"
                           "version: 1.0\n"
                           "gpus: 0\n"
                           "cpus: 0.5\n"
                           "memory: 1Gb\n"
                           "learners: 2\n"
                           "data_stores:\n"
                           "  - id: hostmount\n"
                           "    type: mount_volume\n"
                           "    training_data:\n"
                           "      container: tf_training_data\n"
                           "    training_results:\n"
                           "      container: tf_trained_model\n"
                           "    connection:\n"
                           "      type: host_mount\n"
                           "      name: host-mount\n"
                           "      path: /cosdata\n"
                           "framework:\n"
                           "  name: tensorflow\n"
                           "  version: \"1.5.0-py3\"\n"
                           "  command: >\n"
                           "    python3 convolutional_network.py --iterations 2000\n"
                           "penstock:\n"
                           "  queue: night\n"
                           "  priority: 7\n"
                           "  hold: true\n"
                           "  deadline: 2h\n"
                           "  retries: 2\n"
                           "  grace: 3s\n"
                           "  env: {SEED: 42, MODE: fast}\n"
                           "  model: {name: mnist, alias: champion}\n"
                           "  roles: {ps: 1}\n";

static void test_manifest_roles_take_from_the_job_what_they_leave_out(void **state)
{
    parsed p =
        parse("name: a\ncpus: 0.5\ngpus: 1\nmemory: 1 GB\nlearners: 7\nframework: {name: c, version: 1, command: of-the-job}\n"
              "penstock:\n  env: {A: job, B: job}\n  retries: {max: 2, on: [exit:3, 'signal:9', lost, oom]}\n"
              "  roles:\n    ps: {count: 2, command: serve, env: {A: ps}}\n    evaluator:\n    zeta: {cpus: 2}\n    alpha: {memory: 2GB}\n"
              "    worker: {count: 2, gpus: 4}\n    chief: {count: 1}\n");
    assert_int_equal(p.rc, 0);
    static const char *const order[] = {"chief-1", "worker-1", "worker-2", "alpha-1", "zeta-1", "ps-1", "ps-2", "evaluator-1"};
    assert_true(p.m.roles_given);
    assert_int_equal(pst_manifest_processes(&p.m), 8);
    assert_int_equal(p.m.learners, 5); /* those with a rank */
    for (int i = 0; i < 8; i++) {
        char name[32];
        int at;
        const pst_role *r = pst_manifest_process(&p.m, i, name);
        assert_string_equal(name, order[i]);
        assert_ptr_equal(pst_manifest_role(&p.m, name, &at), r);
        assert_int_equal(at, name[strlen(name) - 1] - '1');
        assert_int_equal(pst_process_is_ranked(name), i < 5);
        bool ps = !strcmp(r->name, "ps");
        assert_string_equal(r->command, ps ? "serve" : "of-the-job");
        assert_string_equal(json_string_value(json_object_get(r->env, "A")), ps ? "ps" : "job");
        assert_string_equal(json_string_value(json_object_get(r->env, "B")), "job");
        assert_int_equal(r->gpus, ps ? 0 : !strcmp(r->name, "worker") ? 4 : 1);
        assert_true(r->cpus == (!strcmp(r->name, "zeta") ? 2 : 0.5));
        assert_int_equal(r->memory_bytes, !strcmp(r->name, "alpha") ? 2000000000 : 1000000000);
    }
    int at;
    assert_null(pst_manifest_role(&p.m, "worker-3", &at));
    assert_null(pst_manifest_role(&p.m, "worker-0", &at));
    assert_null(pst_manifest_role(&p.m, "learner-1", &at));
    assert_null(pst_manifest_role(&p.m, "worker", &at));
    assert_int_equal(p.m.retries, 2);
    assert_int_equal(p.m.n_retry_on, 4);
    assert_int_equal(p.m.retry_on[0].kind, PST_RETRY_EXIT);
    assert_int_equal(p.m.retry_on[0].number, 3);
    assert_int_equal(p.m.retry_on[1].kind, PST_RETRY_SIGNAL);
    assert_int_equal(p.m.retry_on[1].number, 9);
    assert_int_equal(p.m.retry_on[2].kind, PST_RETRY_LOST);
    assert_int_equal(p.m.retry_on[3].kind, PST_RETRY_OOM);
    parsed_done(&p);
}

/* A slip in a name makes a role of one's own: allowed, and said. */
static void test_manifest_role_near_a_known_one_is_remarked_on(void **state)
{
    parsed p = parse("name: a\nframework: {name: c, version: 1, command: x}\npenstock:\n  roles:\n    wroker: {count: 2}\n");
    assert_int_equal(p.rc, 0);
    const pst_complaint *w = about(&p.warnings, "penstock.roles.wroker");
    assert_non_null(w);
    assert_non_null(strstr(w->text, "\"worker\""));
    assert_int_equal(w->line, 5);
    assert_int_equal(p.m.learners, 2);
    parsed_done(&p);
}

/* FfDL's examples write keys of other stores there; its server passes over what it does not know. */
static void test_manifest_ffdl_mount_passes_over_other_keys_of_its_connection(void **state)
{
    static const char *const types[] = {"mount_volume", "mount"};
    for (int i = 0; i < 2; i++) {
        char *text = pst_sprintf(
            "name: n\ncpus: 1\ngpus: 0\nmemory: 1Gb\nlearners: 1\nframework: {name: custom, version: \"1\", command: \"true\"}\n"
            "data_stores:\n  - {id: a, type: %s, training_data: {container: c}, connection: {path: /x, password: p}}\n",
            types[i]);
        parsed p = parse(text);
        assert_int_equal(p.rc != 0, i);
        assert_non_null(about(i ? &p.errors : &p.warnings, "data_stores[0].connection.password"));
        parsed_done(&p);
        free(text);
    }
}

static void test_manifest_ffdl_fields_and_ours_are_read(void **state)
{
    parsed p = parse(good);
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.warnings.n, 0);
    assert_string_equal(p.m.name, "tf_convolutional_network_tutorial");
    assert_string_equal(p.m.version, "1.0");
    assert_true(p.m.cpus == 0.5);
    assert_int_equal(p.m.learners, 2);
    assert_int_equal(p.m.memory_bytes, 1000000000);
    assert_string_equal(p.m.framework, "tensorflow");
    assert_string_equal(p.m.framework_version, "1.5.0-py3");
    assert_string_equal(p.m.command, "python3 convolutional_network.py --iterations 2000\n");
    assert_int_equal(p.m.n_stores, 1);
    assert_string_equal(p.m.stores[0].input, "tf_training_data");
    assert_string_equal(p.m.stores[0].output, "tf_trained_model");
    assert_string_equal(json_string_value(json_object_get(p.m.stores[0].connection, "path")), "/cosdata");
    assert_string_equal(p.m.queue, "night");
    assert_int_equal(p.m.priority, 7);
    assert_true(p.m.hold);
    assert_int_equal(p.m.deadline_us, 7200000000);
    assert_int_equal(p.m.retries, 2);
    assert_int_equal(p.m.grace_us, 3000000);
    assert_string_equal(json_string_value(json_object_get(p.m.env, "SEED")), "42");
    assert_string_equal(p.m.model_name, "mnist");
    assert_string_equal(p.m.model_alias, "champion");
    assert_int_equal(p.m.n_roles, 2);
    assert_false(p.m.roles_given);
    assert_string_equal(p.m.roles[0].name, "worker");
    assert_int_equal(p.m.roles[0].count, 2);
    assert_string_equal(p.m.roles[1].name, "ps");
    assert_int_equal(p.m.roles[1].count, 1);
    assert_string_equal(p.m.site, "local");
    assert_false(p.m.native);
    parsed_done(&p);
}

static void test_manifest_silent_fields_take_defaults(void **state)
{
    parsed p = parse("name: a\nframework: {name: custom, version: 1, command: echo hi}\ngpus:\n");
    assert_int_equal(p.rc, 0);
    assert_true(p.m.cpus == 1.0);
    assert_int_equal(p.m.memory_bytes, 512 << 20);
    assert_int_equal(p.m.learners, 1);
    assert_int_equal(p.m.gpus, 0);
    assert_int_equal(p.m.grace_us, 10000000);
    assert_string_equal(p.m.queue, "default");
    assert_string_equal(p.m.framework_version, "1");
    parsed_done(&p);
}

static void test_manifest_every_violation_is_listed(void **state)
{
    parsed p = parse("name: bad\nlearners: -1\nmemory: 3 parsecs\ngpus: many\nframework: {name: custom}\n");
    assert_int_equal(p.rc, PST_EINVAL);
    assert_int_equal(p.errors.n, 5);
    assert_non_null(about(&p.errors, "learners"));
    assert_int_equal(about(&p.errors, "learners")->line, 2);
    assert_non_null(strstr(about(&p.errors, "memory")->text, "3 parsecs"));
    assert_non_null(about(&p.errors, "gpus"));
    assert_non_null(about(&p.errors, "framework.version"));
    assert_non_null(about(&p.errors, "framework.command"));
    char *text = pst_complaints_text(&p.errors);
    assert_non_null(strstr(text, "learners: must be a whole number from 1"));
    free(text);
    parsed_done(&p);
}

static void test_manifest_memory_grammar(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes; /* 0 = refused */
    } cases[] = {{"512 MB", 512000000},
                 {"512MiB", 512 << 20},
                 {"8.5 GB", 8500000000},
                 {"1gb", 1000000000},
                 {"2  GiB", 2147483648},
                 {"1000MiB", 1048576000},
                 {"1 TiB", 1099511627776},
                 {"0 MB", 0},
                 {"12", 0},
                 {"12 g", 0},
                 {"-3 MB", 0},
                 {"0x10 MB", 0},
                 {"nan MB", 0},
                 {"1e99 GB", 0},
                 {"MB", 0},
                 {"3 MBs", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char yaml[200];
        snprintf(yaml, sizeof yaml, "name: a\nframework: {name: custom, version: 1, command: x}\nmemory: %s\n", cases[i].text);
        parsed p = parse(yaml);
        if (cases[i].bytes)
            assert_int_equal(p.m.memory_bytes, cases[i].bytes);
        else
            assert_non_null(about(&p.errors, "memory"));
        parsed_done(&p);
    }
}

static void test_manifest_what_is_not_supported_is_warned_of(void **state)
{
    parsed p = parse("name: a\ngpus: 0.5\ngpu_type: nvidia-TeslaK80\nlerners: 2\nstorage: 10 GiB\n"
                     "framework: {name: custom, version: 1, command: x, image_tag: y}\n"
                     "evaluation_metrics: {type: tensorboard, in: \"$JOB_STATE_DIR/logs/tb\"}\n"
                     "");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.m.gpus, 0);
    const char *const fields[] = {"gpus", "gpu_type", "lerners", "framework.image_tag"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_non_null(about(&p.warnings, fields[i]));
    assert_int_equal(p.warnings.n, sizeof fields / sizeof *fields);
    assert_non_null(strstr(about(&p.warnings, "lerners")->text, "learners"));
    parsed_done(&p);
}

static void test_manifest_kinds_of_gpus_in_order(void **state)
{
    parsed p = parse("name: a\ngpus: 1\nframework: {name: custom, version: 1, command: x}\npenstock: {gpu_preference: [h100, A100]}\n");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.warnings.n, 0);
    assert_int_equal(p.m.gpu_preference.n, 2);
    assert_string_equal(p.m.gpu_preference.at[1], "A100");
    parsed_done(&p);
    static const char *const bad[] = {"h100",
                                      "[1]",
                                      "[[h100]]",
                                      "[\"\"]",
                                      "{a: b}",
                                      "[a, b, c, d, e, f, g, h, i]",
                                      "[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[300];
        snprintf(text, sizeof text, "name: a\nframework: {name: custom, version: 1, command: x}\npenstock:\n  gpu_preference: %s\n",
                 bad[i]);
        p = parse(text);
        if (!p.errors.n)
            fail_msg("%s is taken", bad[i]);
        parsed_done(&p);
    }
    static const struct {
        const char *type, *name;
        bool is;
    } kinds[] = {{"nvidia-NVIDIAH100PCIe", "h100", true},
                 {"nvidia-A100-SXM4-40GB", "a10", false},
                 {"nvidia-A100-SXM4-40GB", "a100", true},
                 {"nvidia-L40S", "l4", false},
                 {"nvidia-TeslaT4", "T4", true},
                 {"nvidia-TeslaV100-SXM2-16GB", "v100", true},
                 {"nvidia-RTXA1000", "a100", false},
                 {"", "h100", false},
                 {"nvidia-H100", "", false}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_int_equal(pst_gpu_type_is(kinds[i].type, kinds[i].name), kinds[i].is);
}

/* A bucket: what is missing of its connection, or no bucket's name, is FfDL's C103, by field, and no secret is shown. */
static void test_manifest_a_bucket_needs_address_and_keys(void **state)
{
    static const char *const types[] = {"mount_cos", "s3_datastore", "s3"};
    static const struct {
        const char *rest, *field; /* NULL: nothing is wrong */
    } rows[] = {
        {"training_data: {container: tf_Data}, connection: {auth_url: \"http://h:1\", user_name: u, password: sesame, region: r}", NULL},
        {"training_results: {container: out}, connection: {auth_url: \"https://h\", user_name: u, password: sesame}", NULL},
        {"training_data: {container: b}, connection: {auth_url: h, user_name: u, password: sesame}", "data_stores[0].connection.auth_url"},
        {"training_data: {container: b}, connection: {auth_url: \"http://h\", password: sesame}", "data_stores[0].connection.user_name"},
        {"training_data: {container: b}, connection: {auth_url: \"http://h\", user_name: u}", "data_stores[0].connection.password"},
        {"training_data: {container: b/c}, connection: {auth_url: \"http://h\", user_name: u, password: sesame}",
         "data_stores[0].training_data.container"},
        {"connection: {auth_url: \"http://h\", user_name: u, password: sesame}", "data_stores[0].training_data.container"}};
    for (size_t i = 0; i < 3 * sizeof rows / sizeof *rows; i++) {
        const char *field = rows[i / 3].field;
        char *yaml = pst_sprintf("name: a\nframework: {name: custom, version: 1, command: x}\ndata_stores:\n  - {id: s, type: %s, %s}\n",
                                 types[i % 3], rows[i / 3].rest);
        parsed p = parse(yaml);
        assert_int_equal(p.rc, 0);
        assert_true(p.m.stores[0].s3);
        const char *code = pst_manifest_check_served(&p.m, &p.errors);
        assert_int_equal(p.errors.n, field != NULL);
        if (field) {
            assert_string_equal(code, "C103");
            assert_non_null(about(&p.errors, field));
            assert_null(strstr(about(&p.errors, field)->text, "sesame"));
        } else {
            assert_null(code);
        }
        parsed_done(&p);
        free(yaml);
    }
}

/* What FfDL knows and this platform does not have is refused by the Trainer, by type and line, before anything runs on an empty folder. */
static void test_manifest_what_cannot_be_had_here_is_refused(void **state)
{
    static const char *const types[] = {"swift_datastore", "softlayer_objectstore", "bluemix_objectstore"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char yaml[500];
        snprintf(yaml, sizeof yaml,
                 "name: a\nframework: {name: custom, version: 1, command: x}\ndata_stores:\n  - id: s\n    type: %s\n    training_data: "
                 "{container: b}\n    connection: {auth_url: h, user_name: u, password: sesame}\npenstock:\n  queue: night\n",
                 types[i]);
        parsed p = parse(yaml);
        assert_int_equal(p.rc, 0);
        assert_string_equal(pst_manifest_check_served(&p.m, &p.errors), "C103");
        assert_int_equal(p.errors.n, 1); /* which queues there are is not known here */
        const pst_complaint *store = about(&p.errors, "data_stores[0].type");
        assert_non_null(store);
        assert_non_null(strstr(store->text, types[i]));
        assert_int_equal(store->line, 5);
        char *all = pst_complaints_text(&p.errors);
        assert_null(strstr(all, "sesame"));
        free(all);
        parsed_done(&p);
    }
    parsed p =
        parse("name: a\nframework: {name: custom, version: 1, command: x}\ndata_stores: [{id: d, type: mount, connection: {path: /d}}]\n"
              "penstock: {queue: default}\n");
    assert_null(pst_manifest_check_served(&p.m, &p.errors));
    assert_int_equal(p.errors.n, 0);
    parsed_done(&p);
}

static void test_manifest_own_keys_are_checked_with_their_lines(void **state)
{
    parsed p = parse(
        "name: a\nframework: {name: native}\npenstock:\n  quue: default\n  model:\n    nmae: m\n    name: m\n  roles:\n    wroker: 2\n"
        "  learner:\n    model: mlp\n    target: y\n    epoch: 3\n    features:\n      - a\n      - {field: b, sacle: 2}\n");
    static const struct {
        const char *field, *near;
        int line;
    } want[] = {{"penstock.quue", "\"queue\"", 4},
                {"penstock.model.nmae", "\"name\"", 6},
                {"penstock.roles.wroker", "\"worker\"", 9},
                {"penstock.learner.epoch", "epochs", 13},
                {"penstock.learner.features[1].sacle", "scale", 16}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const pst_complaint *c = about(&p.errors, want[i].field);
        if (!c || !strstr(c->text, want[i].near) || c->line != want[i].line)
            fail_msg("%s: %s, line %d", want[i].field, c ? c->text : "not there", c ? c->line : 0);
    }
    assert_int_equal(p.errors.n, sizeof want / sizeof *want);
    parsed_done(&p);
}

static void test_manifest_native_needs_no_command(void **state)
{
    parsed p =
        parse("name: ae\nframework: {name: native}\n"
              "data_stores:\n  - {id: d, type: topic, training_data: {container: telemetry}, connection: {from: 5, to: 100, records: 50}}\n"
              "penstock: {learner: {model: autoencoder, epochs: 5}, model: {name: telemetry-ae}}\n");
    assert_int_equal(p.rc, 0);
    assert_true(p.m.native);
    assert_string_equal(p.m.stores[0].topic, "telemetry");
    assert_int_equal(p.m.stores[0].from, 5);
    assert_int_equal(p.m.stores[0].to, 100);
    assert_int_equal(p.m.stores[0].records_max, 50);
    assert_int_equal(json_integer_value(json_object_get(p.m.settings, "epochs")), 5);
    parsed_done(&p);
}

static void test_manifest_topic_range_beside_the_id(void **state)
{
    parsed p = parse("name: ae\nframework: {name: native}\ndata_stores:\n  - {id: d, type: topic, topic: t, from: beginning, to: end}\n");
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.m.stores[0].topic, "t");
    assert_int_equal(p.m.stores[0].from, -2);
    assert_int_equal(p.m.stores[0].to, -1);
    parsed_done(&p);
    p = parse("name: ae\nframework: {name: native}\ndata_stores:\n  - {id: d, type: topic, topic: t, from: 9, to: 3}\n  - {id: e, type: "
              "topic}\n");
    assert_int_equal(p.errors.n, 2);
    assert_non_null(about(&p.errors, "data_stores[0].to"));
    assert_non_null(about(&p.errors, "data_stores[1].connection.topic"));
    parsed_done(&p);
}

static void test_manifest_wrong_shapes_are_refused(void **state)
{
    static const struct {
        const char *yaml, *field;
    } cases[] = {
        {"", "manifest"},
        {"- a\n- b\n", "manifest"},
        {"name: [1, 2\n", "manifest"},
        {"just words", "manifest"},
        {"name: a\n", "framework"},
        {"name: a\nframework: tensorflow\n", "framework"},
        {"framework: {name: c, version: 1, command: x}\n", "name"},
        {"name: {a: b}\nframework: {name: c, version: 1, command: x}\n", "name"},
        {"name: a\nframework: {name: c, version: 1, command: \"  \"}\n", "framework.command"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ndata_stores: {id: a}\n", "data_stores"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ndata_stores: [5]\n", "data_stores[0]"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ndata_stores: [{id: x, type: mout}]\n", "data_stores[0].type"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ndata_stores: [{id: x, type: mount}]\n", "data_stores[0].connection.path"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {queue: \"a/b\"}\n", "penstock.queue"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {deadline: soon}\n", "penstock.deadline"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {env: {\"A-B\": 1}}\n", "penstock.env.A-B"},
        {"name: a\nframework: {name: native}\npenstock: {env: {SSLKEYLOGFILE: /tmp/k}}\n", "penstock.env.SSLKEYLOGFILE"},
        {"name: a\nframework: {name: native}\npenstock: {env: {LD_PRELOAD: /tmp/x.so}}\n", "penstock.env.LD_PRELOAD"},
        {"name: a\nframework: {name: native}\npenstock: {env: {GLIBC_TUNABLES: x}}\n", "penstock.env.GLIBC_TUNABLES"},
        {"name: a\nframework: {name: native}\npenstock: {env: {https_proxy: x}}\n", "penstock.env.https_proxy"},
        {"name: a\nframework: {name: native}\npenstock: {env: {PENSTOCK_ONNXRUNTIME: x}}\n", "penstock.env.PENSTOCK_ONNXRUNTIME"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {isolation: sandbx}\n", "penstock.isolation"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {model: {alias: x}}\n", "penstock.model.name"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ncpus: -2\n", "cpus"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ncpus: 0\n", "cpus"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ncpus: 0.0000001\n", "cpus"},
        {"name: a\nframework: {name: c, version: 1, command: x}\ncpus: 1e9\n", "cpus"},
        {"name: a\nframework: {name: c, version: 1, command: x}\nlearners: 257\n", "learners"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {ps: 257}}\n", "penstock.roles.ps"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {worker: {count: -2}}}\n",
         "penstock.roles.worker.count"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {chief: {counts: 1}}}\n", "penstock.roles.chief.counts"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {chief: {count: 2}}}\n", "penstock.roles.chief.count"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {worker: {count: 2, min: 3}}}\n",
         "penstock.roles.worker.min"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {worker: 2}}\n", "penstock.roles.worker"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {Worker: {}}}\n", "penstock.roles.Worker"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {../../x: {}}}\n", "penstock.roles.../../x"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {a-name-that-is-too-long: {}}}\n",
         "penstock.roles.a-name-that-is-too-long"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {worker: {count: 200}, own: {count: 100}}}\n",
         "penstock.roles"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {worker: {env: {PENSTOCK-X: 1}}}}\n",
         "penstock.roles.worker.env.PENSTOCK-X"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {roles: {worker: {memory: 3}}}\n",
         "penstock.roles.worker.memory"},
        {"name: a\nframework: {name: c, version: 1}\npenstock: {roles: {worker: {command: x}, own: {}}}\n", "penstock.roles.own"},
        {"name: a\nframework: {name: c, version: 1}\npenstock: {roles: {ps: {command: x}}}\n", "framework.command"},
        {"name: a\nframework: {name: native}\npenstock: {roles: {worker: {command: x}}}\n", "penstock.roles.worker.command"},
        {"name: a\nframework: {name: native}\nlearners: 2\npenstock: {learner: {staleness: 2}}\n", "penstock.learner.staleness"},
        {"name: a\nframework: {name: native}\npenstock: {roles: {ps: 1}, learner: {staleness: 1001}}\n", "penstock.learner.staleness"},
        {"name: a\nframework: {name: native}\npenstock: {roles: {worker: {count: 2}, evaluator: {}}}\n", "penstock.roles.evaluator"},
        {"name: a\nframework: {name: native}\npenstock: {learner: {peer_timeout: 4}}\n", "penstock.learner.peer_timeout"},
        {"name: a\nframework: {name: native}\npenstock: {roles: {worker: {env: {LD_PRELOAD: x}}}}\n",
         "penstock.roles.worker.env.LD_PRELOAD"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {on: [lost]}}\n", "penstock.retries.max"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {checkpoint: 3}\n", "penstock.checkpoint"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {checkpoint: {keep_last: 0}}\n",
         "penstock.checkpoint.keep_last"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {checkpoint: {keep_best: 1}}\n", "penstock.checkpoint.metric"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {checkpoint: {keep_best: 1, metric: loss, mode: less}}\n",
         "penstock.checkpoint.mode"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {checkpoint: {keep: 1}}\n", "penstock.checkpoint.keep"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {array: true}\n", "penstock.array"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {array: [1, 2]}\n", "penstock.array"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {array: 9-1}\n", "penstock.array"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {array: 0-10000}\n", "penstock.array"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {max: 101}}\n", "penstock.retries.max"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {max: 1, of: [lost]}}\n", "penstock.retries.of"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {max: 1, on: lost}}\n", "penstock.retries.on"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {max: 1, on: []}}\n", "penstock.retries.on"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {max: 1, on: [lost, exit:0]}}\n",
         "penstock.retries.on[1]"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {max: 1, on: [signal:-9]}}\n",
         "penstock.retries.on[0]"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: {max: 1, on: [exit:3x]}}\n", "penstock.retries.on[0]"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {retries: many}\n", "penstock.retries"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {learner: {model: mlp}}\n", "penstock.learner"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {model: {name: m, file: ../x}}\n", "penstock.model.file"},
        {"name: a\nframework: {name: c, version: 1, command: x}\npenstock: {model: {name: m, file: /x}}\n", "penstock.model.file"},
        {"name: a\nframework: {name: c, version: 1, command: x}\nlearners: 1.5\n", "learners"},
        {"name: a\nframework: {name: c, version: 1, command: x}\nlearners: 99999\n", "learners"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parsed p = parse(cases[i].yaml);
        if (p.errors.n != 1 || !about(&p.errors, cases[i].field)) {
            char *text = pst_complaints_text(&p.errors);
            fail_msg("case %zu: %zu errors, wanted one about %s: %s", i, p.errors.n, cases[i].field, text);
        }
        parsed_done(&p);
    }
}

/* What was meant to be a secret's value, and was written so that YAML takes it for something else, is in no complaint: everybody reads those. */
static void test_manifest_complaints_show_no_misplaced_secret(void **state)
{
    static const char *const rows[] = {"penstock: {env: {KEY=geheim}}\n",
                                       "penstock: {env: {KEY:geheim}}\n",
                                       "penstock: {env: KEY=geheim}\n",
                                       "penstock: {env: {'KEY geheim': 1}}\n",
                                       "penstock: {roles: {worker: {env: {KEY=geheim}}}}\n",
                                       "penstock: {roles: {worker: {env: geheim}}}\n",
                                       "data_stores: [{id: a, type: s3_datastore, connection: password=geheim}]\n",
                                       "data_stores: [{id: a, type: s3_datastore, connection: {password:geheim}}]\n",
                                       "data_stores: [password=geheim]\n",
                                       "data_stores: password=geheim\n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *yaml = pst_sprintf("name: a\nframework: {name: c, version: 1, command: x}\n%s", rows[i]);
        parsed p = parse(yaml);
        char *errors = pst_complaints_text(&p.errors), *warnings = pst_complaints_text(&p.warnings);
        assert_true(p.errors.n + p.warnings.n > 0);
        if (strstr(errors, "geheim") || strstr(warnings, "geheim"))
            fail_msg("row %zu: %s; %s", i, errors, warnings);
        free(errors);
        free(warnings);
        parsed_done(&p);
        free(yaml);
    }
}

static void test_manifest_larger_than_the_limit_is_refused(void **state)
{
    size_t n = 300 << 10;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, '#', n);
    parsed p = {0};
    p.rc = pst_manifest_parse(big, n, &p.m, &p.errors, &p.warnings);
    assert_int_equal(p.rc, PST_EINVAL);
    assert_non_null(about(&p.errors, "manifest"));
    parsed_done(&p);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest_ffdl_mount_passes_over_other_keys_of_its_connection),
        cmocka_unit_test(test_manifest_roles_take_from_the_job_what_they_leave_out),
        cmocka_unit_test(test_manifest_role_near_a_known_one_is_remarked_on),
        cmocka_unit_test(test_manifest_ffdl_fields_and_ours_are_read),
        cmocka_unit_test(test_manifest_silent_fields_take_defaults),
        cmocka_unit_test(test_manifest_every_violation_is_listed),
        cmocka_unit_test(test_manifest_memory_grammar),
        cmocka_unit_test(test_manifest_a_bucket_needs_address_and_keys),
        cmocka_unit_test(test_manifest_what_cannot_be_had_here_is_refused),
        cmocka_unit_test(test_manifest_own_keys_are_checked_with_their_lines),
        cmocka_unit_test(test_manifest_what_is_not_supported_is_warned_of),
        cmocka_unit_test(test_manifest_kinds_of_gpus_in_order),
        cmocka_unit_test(test_manifest_native_needs_no_command),
        cmocka_unit_test(test_manifest_topic_range_beside_the_id),
        cmocka_unit_test(test_manifest_wrong_shapes_are_refused),
        cmocka_unit_test(test_manifest_complaints_show_no_misplaced_secret),
        cmocka_unit_test(test_manifest_larger_than_the_limit_is_refused),
    };
    return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
