/* test_score_pipeline.c - the pipeline file: every key of an example that has them all arrives, every mistake is named with file, line and cure. */
#include "inference/pipeline/pipeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char example[] = "name: turbine-anomalies\n"
                              "input:  {topics: [telemetry], group: turbine-scorer, start: earliest, format: avro}\n"
                              "model:  {name: telemetry-ae, alias: champion}\n"
                              "features:\n"
                              "  - {field: cpu.user, scale: 0.01, offset: 0, missing: mean}\n"
                              "  - {field: mode, vocabulary: {idle: 0, busy: 1}, missing: value, value: -1, clip: [-1, 1]}\n"
                              "  - mem\n"
                              "output: {topic: telemetry.scores, format: full, passthrough: [host]}\n"
                              "score:  {type: reconstruction_error, threshold: 0.2}\n"
                              "batching: {count: 256, bytes: 2MiB, age: 7ms}\n"
                              "guarantee: exactly_once\n"
                              "errors: {tolerance: all, dead_letter: {topic: telemetry.dlq}}\n"
                              "rollout: {canary: {alias: challenger, percent: 5}, shadow: {alias: challenger, topic: telemetry.shadow}}\n"
                              "limits: {inflight_bytes: 32MiB, model_bytes: 600MiB, arena_bytes: 2GiB}\n"
                              "device: auto\n"
                              "kafka:  {fetch.min.bytes: 1, socket.nagle.disable: true}\n"
                              "threads: 3\n";

static void test_pipeline_reads_the_contracts_example(void **state)
{
    pst_pipeline *p = NULL;
    pst_err err = {0};
    if (pst_pipeline_parse(example, strlen(example), "pipe.yml", &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(p->name, "turbine-anomalies");
    assert_int_equal(p->n_topics, 1);
    assert_string_equal(p->topics[0], "telemetry");
    assert_string_equal(p->group, "turbine-scorer");
    assert_int_equal(p->start, PST_START_EARLIEST);
    assert_int_equal(p->format, PST_INPUT_AVRO);
    assert_string_equal(p->model.name, "telemetry-ae");
    assert_string_equal(p->model.alias, "champion");
    assert_int_equal(p->n_features, 3);
    assert_string_equal(p->features[0].field, "cpu.user");
    assert_true(p->features[0].scale == 0.01);
    assert_int_equal(p->features[0].missing, PST_MISSING_MEAN);
    assert_int_equal(p->features[1].n_vocabulary, 2);
    assert_string_equal(p->features[1].vocabulary[1].text, "busy");
    assert_true(p->features[1].value == -1);
    assert_true(p->features[1].has_clip && p->features[1].clip_lo == -1);
    assert_string_equal(p->features[2].field, "mem");
    assert_int_equal(p->features[2].missing, PST_MISSING_REJECT);
    assert_string_equal(p->output_topic, "telemetry.scores");
    assert_false(p->slim);
    assert_string_equal(p->passthrough[0], "host");
    assert_int_equal(p->score_type, PST_SCORE_RECONSTRUCTION);
    assert_true(p->has_threshold && p->threshold == 0.2);
    assert_int_equal(p->batch_count, 256);
    assert_int_equal(p->batch_bytes, 2 << 20);
    assert_int_equal(p->batch_age_us, 7000);
    assert_true(p->exactly_once);
    assert_false(p->tolerance_none);
    assert_string_equal(p->dlq_topic, "telemetry.dlq");
    assert_true(p->has_canary && p->canary_percent == 5 && !p->budget.over && !p->has_tolerance);
    assert_string_equal(p->shadow_topic, "telemetry.shadow");
    assert_string_equal(p->shadow.name, "telemetry-ae");
    assert_int_equal(p->inflight_bytes, 32 << 20);
    assert_int_equal(p->model_bytes, 600 << 20);
    assert_int_equal(p->threads, 3);
    assert_int_equal(p->arena_bytes, 2ll << 30);
    assert_int_equal(p->n_kafka, 2);
    assert_string_equal(p->kafka[0].key, "fetch.min.bytes");
    assert_string_equal(p->kafka[0].value, "1");
    assert_string_equal(p->kafka[0].origin, "pipe.yml:16");
    assert_string_equal(p->kafka[1].value, "true");
    pst_pipeline_free(p);
}

static void test_pipeline_fills_in_defaults(void **state)
{
    static const char text[] = "name: p\ninput: {topics: in}\nmodel: {file: /m.onnx}\noutput: {topic: out}\n";
    pst_pipeline *p = NULL;
    pst_err err = {0};
    if (pst_pipeline_parse(text, strlen(text), "p.yml", &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(p->n_topics, 1);
    assert_null(p->group);
    assert_false(p->exactly_once);
    assert_int_equal(p->batch_count, 512);
    assert_int_equal(p->batch_bytes, 1 << 20);
    assert_int_equal(p->batch_age_us, 5000);
    assert_int_equal(p->score_type, PST_SCORE_AUTO);
    assert_int_equal(p->on_null, PST_NULL_PASS);
    assert_string_equal(p->device, "auto");
    assert_null(p->dlq_topic);
    pst_pipeline_free(p);
}

/* Each text must be refused with a message that holds each of the wanted pieces. */
static const struct {
    const char *text, *want, *want2;
} mistakes[] = {
    {"nmae: x\n", "bad.yml:1: unknown key \"nmae\"", "did you mean \"name\"?"},
    {"name: x\ninput:\n  topics: [a]\n  grup: g\nmodel: {file: f}\n", "bad.yml:4: unknown key \"grup\" in input", "\"group\""},
    {"name: x\nmodel: {name: m}\nscore: {treshold: 1}\n", "bad.yml:3: unknown key \"treshold\" in score", "\"threshold\""},
    {"name: x\nmodel: {name: m}\nfeatures:\n  - {field: a}\n  - {field: b, scal: 2}\n", "bad.yml:5: unknown key \"scal\" in features",
     "\"scale\""},
    {"name: x\nmodel: {name: m}\nerrors: {dead_letter: {topci: a}}\n", "bad.yml:3: unknown key \"topci\" in errors.dead_letter",
     "\"topic\""},
    {"name: x\nzzzzzzzzzz: 1\nmodel: {name: m}\n", "bad.yml:2: unknown key", "known: name input model"},
    {"name: x\n", "bad.yml:1: model is missing", "model: {name:"},
    {"model: {name: m}\n", "name is missing", "name:"},
    {"name: x y\nmodel: {name: m}\n", "bad.yml:1: name:", "letters"},
    {"name: x\nmodel: {alias: a}\n", "bad.yml:2: model: give name", "file"},
    {"name: x\nmodel: {name: m, alias: a, version: 2}\n", "bad.yml:2: model: give alias or version, not both", ""},
    {"name: x\nmodel: {name: m}\nfeatures: [{field: a, scale: 0}]\n", "bad.yml:3: features: scale of a is 0", "leave the field out"},
    {"name: x\nmodel: {name: m}\nfeatures: [{field: a, vocabulary: []}]\n", "bad.yml:3: features: vocabulary of a is empty", "list"},
    {"name: x\nmodel: {name: m}\nfeatures: [{field: a, vocabulary: [u, v, u]}]\n", "\"u\" is there twice, as 0 and as 2", "bad.yml:3"},
    {"name: x\nmodel: {name: m}\ninput: {topics: [a, b, a]}\n", "bad.yml:3: input.topics: \"a\" is there twice", ""},
    {"name: x\nmodel: {name: m, version: 0}\n", "model.version: 0 is outside 1", ""},
    {"name: x\nmodel: {name: m, version: 1.5}\n", "model.version: expected a whole number", ""},
    {"name: x\nmodel: {name: m}\nguarantee: exactly-once\n", "bad.yml:3: pipeline.guarantee: \"exactly-once\" is none of", "exactly_once"},
    {"name: x\nmodel: {name: m}\nbatching: {age: soon}\n", "bad.yml:3: batching.age: expected a time", "5ms"},
    {"name: x\nmodel: {name: m}\nbatching: {bytes: -3}\n", "batching.bytes", ""},
    {"name: x\nmodel: {name: m}\nbatching: {count: 0}\n", "batching.count: 0 is outside", ""},
    {"name: x\nmodel: {name: m}\ninput: [a]\n", "bad.yml:3: input: expected a mapping", ""},
    {"name: x\nmodel: {name: m}\ninput: {start: noon}\n", "bad.yml:3: input.start: expected earliest, latest, or a time", ""},
    {"name: x\nmodel: {name: m}\nfeatures:\n  - {field: a, missing: value}\n", "bad.yml:4: features: a has missing: value, but no value",
     ""},
    {"name: x\nmodel: {name: m}\nfeatures:\n  - {field: a, missing: zero}\n", "features.missing: \"zero\" is none of reject", ""},
    {"name: x\nmodel: {name: m}\nfeatures:\n  - {field: a, clip: [2, 1]}\n", "clip of a: expected [low, high]", ""},
    {"name: x\nmodel: {name: m}\nfeatures:\n  - {scale: 2}\n", "bad.yml:4: features: field is missing", ""},
    {"name: x\nmodel: {name: m}\nfeatures:\n  - {field: a, scale: fast}\n", "features.scale: expected a number", ""},
    {"name: x\nmodel: {name: m}\nfeatures: []\n", "bad.yml:3: features: expected a list", "leave it out"},
    {"name: x\nmodel: {name: m}\noutput: {topic: o, format: slim, passthrough: [a]}\n", "slim holds the score alone", ""},
    {"name: x\nmodel: {name: m}\noutput: {topic: o, passthrough: [a, a]}\n", "\"a\" is there twice", ""},
    {"name: x\nmodel: {name: m}\ninput: {topics: [t]}\noutput: {topic: t}\n", "bad.yml:4: output.topic: \"t\" is also an input", ""},
    {"name: x\nmodel: {name: m}\ninput: {topics: [t]}\nerrors: {dead_letter: {topic: t}}\n", "bad.yml:4: errors.dead_letter.topic",
     "circles"},
    {"name: x\nmodel: {file: f}\nrollout: {canary: {alias: c, percent: 5}}\n", "rollout: needs a model by name", ""},
    {"name: x\nmodel: {name: m}\nrollout: {canary: {alias: c}}\n", "rollout.canary: give percent", ""},
    {"name: x\nmodel: {name: m}\nrollout: {canary: {alias: c, percent: 5, budget: {errors: 1}}}\n", "budget.errors: \"1\" is no share",
     "write 1%"},
    {"name: x\nmodel: {name: m}\nrollout: {canary: {alias: c, percent: 5, budget: {over: 10}}}\n", "give errors, disagreement or latency",
     ""},
    {"name: x\nmodel: {name: m}\nrollout: {canary: {alias: c, percent: 5, budget: {error: 1%}}}\n", "unknown key \"error\"", "\"errors\""},
    {"name: x\nmodel: {name: m}\nrollout: {canary: {alias: c, percent: 5, budget: {disagreement: 1%}}}\n",
     "budget.disagreement: is seen only", "add rollout.shadow"},
    {"name: x\nmodel: {name: m}\nrollout: {shadow: {alias: c}}\n", "rollout.shadow: give topic", ""},
    {"name: x\nmodel: {name: m}\ndevice: gpu\n", "bad.yml:3: device: \"gpu\" is none of", "cuda:N"},
    {"name: x\nmodel: {name: m}\nkafka: {a: [1]}\n", "bad.yml:3: kafka.a: expected one value", ""},
    {"name: x\nmodel: {name: m}\nlimits: {inflight_bytes: 1}\n", "limits.inflight_bytes", "outside"},
    {"name: x\nmodel: {name: m}\nthreads: 65\n", "threads", "outside"},
    {"name: x\nmodel: {name: m}\nthreads: 0\n", "threads", "outside"},
    {"name: x\nmodel: {name: m}\nlimits: {model_bytes: 3GiB}\n", "limits.model_bytes", "outside"},
    {"name: x\nmodel: {name: m}\nlimits: {arena_bytes: 1KiB}\n", "limits.arena_bytes", "outside"},
    {"- a\n- b\n", "bad.yml:1: expected a mapping", ""},
    {"name: [\n", "bad.yml", ""},
    {"", "bad.yml", ""},
};

static void test_pipeline_names_file_line_and_cure_of_mistakes(void **state)
{
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        pst_pipeline *p = NULL;
        pst_err err = {0};
        int rc = pst_pipeline_parse(mistakes[i].text, strlen(mistakes[i].text), "bad.yml", &p, &err);
        if (rc != PST_EINVAL || p)
            fail_msg("mistake %zu was taken:\n%s", i, mistakes[i].text);
        if (!strstr(err.text, mistakes[i].want) || !strstr(err.text, mistakes[i].want2))
            fail_msg("mistake %zu: \"%s\" lacks \"%s\" or \"%s\"", i, err.text, mistakes[i].want, mistakes[i].want2);
        assert_int_equal(pst_err_exit(&err), 2);
    }
}

static void test_pipeline_reads_the_canarys_budget(void **state)
{
    static const char text[] =
        "name: x\nmodel: {name: m}\nrollout:\n  canary: {alias: c, percent: 5, budget: {errors: 1%, disagreement: 2.5%, latency: 5ms}}\n"
        "  shadow: {alias: c, topic: t, tolerance: 0.01}\n";
    pst_pipeline *p = NULL;
    pst_err err = {0};
    assert_int_equal(pst_pipeline_parse(text, strlen(text), "x", &p, &err), 0);
    assert_true(fabs(p->budget.errors - 0.01) < 1e-12 && fabs(p->budget.disagreement - 0.025) < 1e-12);
    assert_true(p->budget.latency_us == 5000 && p->budget.over == 1000 && p->has_tolerance && p->tolerance == 0.01);
    pst_pipeline_free(p);
}

static void test_pipeline_takes_values_from_the_environment(void **state)
{
    static const char text[] =
        "name: ${PST_T_NAME}\ninput: {topics: [\"${PST_T_NAME}-in\"], group: \"a$${b}\"}\nmodel: {name: \"${PST_T_NONE:-m}\"}\n"
        "batching: {count: \"${PST_T_COUNT}\", age: \"${PST_T_AGE}\"}\n";
    pst_pipeline *p = NULL;
    pst_err err = {0};
    setenv("PST_T_NAME", "mill", 1);
    setenv("PST_T_COUNT", "77", 1);
    setenv("PST_T_AGE", "2ms", 1);
    if (pst_pipeline_parse(text, strlen(text), "e.yml", &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(p->name, "mill");
    assert_string_equal(p->topics[0], "mill-in");
    assert_string_equal(p->group, "a${b}");
    assert_string_equal(p->model.name, "m");
    assert_int_equal(p->batch_count, 77);
    assert_int_equal(p->batch_age_us, 2000);
    pst_pipeline_free(p);
    /* A value can not change the structure. */
    setenv("PST_T_NAME", "x\nguarantee: exactly_once", 1);
    p = NULL;
    assert_int_equal(pst_pipeline_parse(text, strlen(text), "e.yml", &p, &err), PST_EINVAL);
    static const char unset[] = "name: x\nmodel:\n  name: ${PST_T_NOT_SET}\n";
    pst_err_clear(&err);
    assert_int_equal(pst_pipeline_parse(unset, strlen(unset), "e.yml", &p, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "e.yml:3: the environment variable PST_T_NOT_SET is not set"));
    static const char open_brace[] = "name: x\nmodel: {name: \"${PST\"}\n";
    pst_err_clear(&err);
    assert_int_equal(pst_pipeline_parse(open_brace, strlen(open_brace), "e.yml", &p, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "closing brace"));
}

static void test_pipeline_reads_start_times(void **state)
{
    static const char *const texts[] = {
        "name: x\nmodel: {name: m}\ninput: {topics: [a], start: \"2026-01-01T00:00:00Z\"}\n",
        "name: x\nmodel: {name: m}\ninput: {topics: [a], start: timestamp, timestamp: \"2026-01-01T00:00:00Z\"}\n"};
    for (size_t i = 0; i < 2; i++) {
        pst_pipeline *p = NULL;
        pst_err err = {0};
        if (pst_pipeline_parse(texts[i], strlen(texts[i]), "s.yml", &p, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(p->start, PST_START_TIMESTAMP);
        assert_true(p->start_ms == 1767225600000);
        pst_pipeline_free(p);
    }
}

static void test_pipeline_survives_cut_off_text(void **state)
{
    /* Every prefix of the example either parses or is refused with a story; nothing else may happen (run under sanitizers). */
    for (size_t len = 0; len < strlen(example); len++) {
        pst_pipeline *p = NULL;
        pst_err err = {0};
        if (pst_pipeline_parse(example, len, "cut.yml", &p, &err) == 0)
            pst_pipeline_free(p);
        else
            assert_true(err.text[0]);
    }
}

static int parse_published(const char *text, pst_err *err)
{
    pst_pipeline *p = NULL;
    *err = (pst_err){0};
    int rc = pst_pipeline_parse_published(text, strlen(text), "pub.yml", &p, err);
    pst_pipeline_free(p);
    return rc;
}

static void test_published_pipeline_takes_tuning_only(void **state)
{
    static const char *const good[] = {"fetch.min.bytes",
                                       "linger.ms",
                                       "session.timeout.ms",
                                       "queued.max.messages.kbytes",
                                       "batch.size",
                                       "client.rack",
                                       "compression.type",
                                       "queue.buffering.max.ms",
                                       "message.max.bytes",
                                       "max.poll.interval.ms",
                                       "topic.metadata.refresh.interval.ms"};
    static const char *const bad[] = {"bootstrap.servers",
                                      "metadata.broker.list",
                                      "plugin.library.paths",
                                      "sasl.kerberos.kinit.cmd",
                                      "sasl.kerberos.keytab",
                                      "sasl.username",
                                      "sasl.password",
                                      "security.protocol",
                                      "ssl.ca.location",
                                      "ssl.key.location",
                                      "ssl.keystore.location",
                                      "ssl.engine.location",
                                      "ssl.providers",
                                      "sasl.oauthbearer.token.endpoint.url",
                                      "sasl.jaas.config",
                                      "https.ca.location",
                                      "socket.blocking.max.ms.path",
                                      "debug",
                                      "log_level",
                                      "group.id",
                                      "group.instance.id",
                                      "transactional.id",
                                      "enable.idempotence",
                                      "acks",
                                      "isolation.level",
                                      "auto.offset.reset",
                                      "enable.auto.commit",
                                      "schema.registry.url",
                                      "client.id",
                                      "ssl.truststore.location",
                                      "Linger.ms",
                                      "LINGER.MS",
                                      " linger.ms",
                                      "linger.ms ",
                                      "linger.ms.x",
                                      "{a}.linger.ms",
                                      "topic.linger.ms",
                                      "fetch.",
                                      "fetch",
                                      "fetchx",
                                      "resolve_cb",
                                      "opaque",
                                      "broker.address.family",
                                      "default_topic_conf",
                                      "offset.store.path",
                                      "partition.assignment.strategy",
                                      "compression.codec.path"};
    char text[400];
    pst_err err;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(text, sizeof(text), "name: x\nmodel: {name: m}\nkafka: {\"%s\": 1}\n", good[i]);
        if (parse_published(text, &err) < 0)
            fail_msg("%s: %s", good[i], err.text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "name: x\nmodel: {name: m}\nkafka:\n  \"%s\": 1\n", bad[i]);
        pst_pipeline *p = NULL;
        assert_int_equal(pst_pipeline_parse(text, strlen(text), "hand.yml", &p, &err), 0); /* by hand the library alone judges */
        pst_pipeline_free(p);
        if (parse_published(text, &err) != PST_EINVAL || !strstr(err.text, bad[i]) || !strstr(err.text, "pub.yml:4: kafka."))
            fail_msg("%s: %s", bad[i], err.text);
        assert_int_equal(pst_err_exit(&err), 2);
    }
}

static void test_published_pipeline_sees_no_secrets_and_no_paths(void **state)
{
    pst_err err;
    setenv("PST_T_SECRET", "s3same", 1);
    setenv("PENSTOCK_PIPELINE_SITE", "north", 1);
    assert_int_equal(parse_published("name: x\nmodel: {name: m}\noutput: {topic: \"o-${PST_T_SECRET}\"}\n", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "pub.yml:3: ${PST_T_SECRET}"));
    assert_null(strstr(err.text, "s3same"));
    assert_int_equal(parse_published("name: x\nmodel: {name: m}\noutput: {topic: \"o-${PST_T_SECRET:-a}\"}\n", &err), PST_EINVAL);
    assert_int_equal(parse_published("name: x\nmodel: {name: m}\noutput: {topic: \"o-${PENSTOCK_PIPELINE_SITE}\"}\n", &err), 0);
    assert_int_equal(parse_published("name: x\nmodel: {file: m.onnx}\n", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "pub.yml:2: model.file"));
    pst_err_clear(&err);
    assert_int_equal(parse_published("name: x\nmodel: {file: /srv/m.onnx}\n", &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "pub.yml:2: model.file"));
    assert_non_null(strstr(err.text, "penstock models register"));
    static const char *const greedy[] = {"kafka: {queued.max.messages.kbytes: 2097151}",
                                         "kafka: {fetch.max.bytes: \"2147483135\"}",
                                         "kafka: {message.max.bytes: 1e9}",
                                         "limits: {inflight_bytes: 2GiB}",
                                         "limits: {model_bytes: 600MiB}",
                                         "limits: {arena_bytes: 2GiB}"};
    for (size_t i = 0; i < sizeof(greedy) / sizeof(greedy[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "name: x\nmodel: {name: m}\n%s\n", greedy[i]);
        pst_err_clear(&err);
        assert_int_equal(parse_published(text, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, "pub.yml:3: "));
    }
    pst_err_clear(&err);
    assert_int_equal(parse_published("name: x\nmodel: {name: m}\nkafka: {queued.max.messages.kbytes: 65536}\n", &err), 0);
    assert_int_equal(parse_published("name: .x\nmodel: {name: m}\n", &err), PST_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_reads_the_contracts_example),
        cmocka_unit_test(test_pipeline_fills_in_defaults),
        cmocka_unit_test(test_pipeline_names_file_line_and_cure_of_mistakes),
        cmocka_unit_test(test_pipeline_reads_the_canarys_budget),
        cmocka_unit_test(test_pipeline_takes_values_from_the_environment),
        cmocka_unit_test(test_pipeline_reads_start_times),
        cmocka_unit_test(test_pipeline_survives_cut_off_text),
        cmocka_unit_test(test_published_pipeline_takes_tuning_only),
        cmocka_unit_test(test_published_pipeline_sees_no_secrets_and_no_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
