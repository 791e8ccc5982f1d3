/* pipeline_check.c - a pipeline held against its topics, schemas and model before it runs. A decoder and an output are made for every kind of record that the topics are known to hold, by the
 * very functions that the scorer uses, so that nothing passes here that would be refused there. */
#include "inference/run/pipeline_check.h"

#include "common/platform/client.h"
#include "inference/core/decoder.h"
#include "inference/run/device.h"
#include "inference/core/output.h"
#include "inference/run/score_load.h"
#include "inference/run/topic_newest.h"
#include "common/registry/registry.h"
#include "schemas/topics.h"

#include <stdlib.h>
#include <string.h>

enum { TOPIC_NAME_MAX = 249, VARIANTS = 3, NEWEST = 100, ASK_MS = 10000, ALONE_MS = 1500 };

typedef struct check {
    const pst_settings *settings;
    const pst_pipeline *p;
    const pst_check_opts *o;
    pst_client *c;
    pst_binding *variants[VARIANTS]; /* by pst_variant; NULL = not in use */
    bool *passed;                    /* a pass-through field: some schema has it */
    size_t n_schemas;
    pst_err *err;
} check;

static void tell(const check *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(const check *k, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (k->o->report)
        vfprintf(k->o->report, fmt, ap);
    va_end(ap);
}

/* Puts the place in the file before the reason; a line of 0 is no line. */
static int at_line(const check *k, int line, int rc)
{
    if (rc < 0 && line > 0)
        pst_err_prefix(k->err, "%s:%d", k->p->file, line);
    return rc;
}

/* ---- without a network ----------------------------------------------------------------------------------------------------- */

static int check_name(const pst_pipeline *p, int line, const char *what, const char *topic, pst_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *why = NULL;
    if (topic[0] == '^')
        why = "is a pattern; topics are listed by name";
    else if (topic[strspn(topic, letters)])
        why = "is no name of a topic: letters, digits, dot, dash and underscore only";
    else if (strlen(topic) > TOPIC_NAME_MAX)
        why = "is longer than the 249 letters that Kafka allows";
    else if (!strcmp(topic, ".") || !strcmp(topic, ".."))
        why = "is no name of a topic";
    else if (!strncmp(topic, "__", 2))
        why = "is a topic of Kafka itself; choose another name";
    return why ? pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s:%d: %s: \"%.260s\" %s", p->file, line, what, topic, why)
               : 0;
}

static bool is_own(const pst_settings *s, const char *topic)
{
    bool own = !strcmp(topic, "_schemas"); /* the registry's: what is written there is every reader's idea of every record */
    for (int t = 0; !own && t < PST_TOPIC_COUNT; t++) {
        char *name = pst_topic_name(s->prefix.value, (pst_topic)t);
        own = !strcmp(topic, name);
        free(name);
    }
    return own;
}

/* Nothing but the platform itself writes its topics: a dead letter is a stranger's bytes as they came, there it would be an order. */
static int check_target(const pst_settings *s, const pst_pipeline *p, int line, const char *what, const char *topic, pst_err *err)
{
    int rc = check_name(p, line, what, topic, err);
    if (rc == 0 && is_own(s, topic))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "%s:%d: %s: %s is a topic of the platform itself; choose another name", p->file, line, what, topic);
    return rc;
}

/* A published pipeline reads with the rights of the scorer, not with those of who published it: requests hold what users keep secret. */
static int check_source(const pst_settings *s, const pst_pipeline *p, const char *topic, pst_err *err)
{
    int rc = check_name(p, p->line.input, "input.topics", topic, err);
    if (rc == 0 && p->published && is_own(s, topic))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "%s:%d: input.topics: %s is a topic of the platform itself, which a published pipeline may not read; run the file "
                         "by hand (penstock score run), or copy what is to be scored to a topic of its own",
                         p->file, p->line.input, topic);
    return rc;
}

static int same_topic(const pst_pipeline *p, int line, const char *what, const char *topic, const char *other, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s:%d: %s: \"%.249s\" is %s too; choose another name", p->file, line,
                       what, topic, other);
}

static int check_dead_letters(const pst_settings *s, const pst_pipeline *p, pst_err *err)
{
    int rc = 0, line = p->line.errors ? p->line.errors : p->line.input;
    for (size_t i = 0; rc == 0 && !p->tolerance_none && i < (p->dlq_topic ? 1 : p->n_topics); i++) {
        char *own = p->dlq_topic ? pst_strdup(p->dlq_topic) : pst_sprintf("%s.dlq", p->topics[i]);
        rc = check_target(s, p, line, "errors.dead_letter.topic", own, err);
        for (size_t k = 0; rc == 0 && k < p->n_topics; k++)
            if (!strcmp(own, p->topics[k]))
                rc = same_topic(p, line, "errors.dead_letter.topic", own, "an input", err);
        if (rc == 0 && p->output_topic && !strcmp(own, p->output_topic))
            rc = same_topic(p, line, "errors.dead_letter.topic", own, "the output", err);
        if (rc == 0 && p->state.there && !strcmp(own, p->state.topic))
            rc = same_topic(p, line, "errors.dead_letter.topic", own, "the state's", err);
        if (rc == 0 && p->shadow_topic && !strcmp(own, p->shadow_topic))
            rc = same_topic(p, line, "errors.dead_letter.topic", own, "the shadow's output", err);
        free(own);
    }
    return rc;
}

/* Members of the platform's own groups take its partitions from it; only the scorer's default groups may begin so. */
static int check_group(const pst_settings *s, const pst_pipeline *p, pst_err *err)
{
    size_t n = strlen(s->prefix.value);
    bool own = p->group && n && !strncmp(p->group, s->prefix.value, n) && strncmp(p->group + n, "score.", 6);
    return own ? pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "%s:%d: input.group: groups that begin with %s are the platform's own; choose another name, or leave it out",
                             p->file, p->line.input, s->prefix.value)
               : 0;
}

/* What the scorer sets itself, since its guarantees rest on it: asked for otherwise it would be left out in silence. */
static int check_own_property(const pst_pipeline *p, const struct pst_pipeline_property *k, pst_err *err)
{
    static const struct {
        const char *key, *may, *why;
    } rows[] = {{"group.id", NULL, "input.group names the group"},
                {"group.instance.id", NULL, "the scorer names its members itself"},
                {"transactional.id", NULL, "the scorer names its transactions itself"},
                {"enable.auto.commit", "false", "offsets are committed with the scores"},
                {"enable.auto.offset.store", "false", "offsets are committed with the scores"},
                {"isolation.level", "read_committed", "what was taken back is not scored"},
                {"enable.idempotence", "true", "the guarantee rests on it"},
                {"acks", "all", "the guarantee rests on it"},
                {"request.required.acks", "-1", "the guarantee rests on it"},
                {"auto.offset.reset", "earliest", "input.start says where to begin"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(k->key, rows[i].key) != 0)
            continue;
        const char *may = i == 0 ? p->group : rows[i].may;
        if (!strcmp(k->key, "auto.offset.reset") && p->start == PST_START_LATEST)
            may = "latest";
        bool same = may && (!strcmp(k->value, may) || (!strcmp(k->key, "acks") && !strcmp(k->value, "-1")));
        if (!same)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                               "%s: kafka.%s: %.80s cannot be had here: %s; take the line out", k->origin, k->key, k->value, rows[i].why);
    }
    return 0;
}

static int check_kafka(const pst_settings *settings, const pst_pipeline *p, pst_err *err)
{
    pst_bus_conf *conf = NULL;
    int rc = pst_client_bus_conf(settings, "penstock-check", &conf, err);
    for (size_t i = 0; rc == 0 && i < p->n_kafka; i++) {
        rc = check_own_property(p, &p->kafka[i], err);
        if (rc == 0)
            rc = pst_bus_conf_set(conf, p->kafka[i].key, p->kafka[i].value, p->kafka[i].origin, err);
        if (rc == PST_EAGAIN)
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "%s: %s is for the registry client; give it by -F or --registry", p->kafka[i].origin, p->kafka[i].key);
    }
    if (rc == 0)
        rc = pst_bus_conf_client(conf, p->bus, err);
    pst_bus_conf_free(conf);
    return rc;
}

int pst_pipeline_check_here(const pst_settings *settings, const pst_pipeline *p, pst_err *err)
{
    int rc = check_group(settings, p, err);
    for (size_t i = 0; rc == 0 && i < p->n_topics; i++)
        rc = check_source(settings, p, p->topics[i], err);
    if (rc == 0 && p->output_topic)
        rc = check_target(settings, p, p->line.output, "output.topic", p->output_topic, err);
    if (rc == 0 && p->shadow_topic)
        rc = check_target(settings, p, p->line.rollout, "rollout.shadow.topic", p->shadow_topic, err);
    if (rc == 0 && p->state.there)
        rc = check_target(settings, p, p->line.state, "state.topic", p->state.topic, err);
    if (rc < 0 || (rc = check_dead_letters(settings, p, err)) < 0 || (rc = check_kafka(settings, p, err)) < 0)
        return rc;
    if ((rc = pst_score_device_check(p->device, err)) < 0)
        pst_err_prefix(err, "%s:%d", p->file, p->line.device);
    return rc;
}

/* ---- models ---------------------------------------------------------------------------------------------------------------- */

/* Fields of words: how wide they are, where the words are from, and what becomes of others. */
static void tell_words(const check *k, const pst_binding *b)
{
    size_t n;
    const pst_feature *f = pst_binding_features(b, &n);
    for (size_t i = 0; i < n; i++)
        if (f[i].has_vocabulary)
            tell(k, "field %s: %zu words%s in %u slot%s, unknown: %s, missing: %s\n", f[i].field, f[i].n_vocabulary,
                 f[i].categories ? " (the model's categories)" : "", f[i].slots ? f[i].slots : 1, f[i].slots > 1 ? "s" : "",
                 pst_unknown_word_name(f[i].unknown), f[i].has_null ? "its own slot" : pst_missing_name(f[i].missing));
}

static int load_variants(check *k)
{
    const pst_pipeline *p = k->p;
    const pst_model_choice *choices[VARIANTS] = {&p->model, p->has_canary ? &p->canary : NULL, p->has_shadow ? &p->shadow : NULL};
    for (size_t i = 0; i < VARIANTS; i++) {
        if (!choices[i])
            continue;
        int rc = pst_score_load_choice(k->settings, p, choices[i], &k->variants[i], k->err);
        if (rc == 0)
            continue;
        /* A model that is not there is a fault of its line; one that does not take the features, of theirs. */
        int own = rc == PST_EINVAL && p->line.features ? p->line.features : p->line.model;
        return at_line(k, i ? p->line.rollout : own, rc);
    }
    const pst_binding *b = k->variants[PST_VARIANT_PRIMARY];
    tell(k, "pipeline %s: %s\n", p->name, p->file);
    if (k->o->verbose) {
        char *text = pst_binding_explain(b);
        tell(k, "%s", text);
        free(text);
    } else {
        tell(k, "model %s version %d, score %s\n", pst_binding_name(b), pst_binding_version(b),
             pst_score_type_name(pst_binding_score_type(b)));
        tell_words(k, b);
    }
    char *windows = pst_windowed_explain(p);
    tell(k, "%s", windows);
    free(windows);
    const char *why, *device = pst_binding_device(b, &why);
    if (p->line.device || strcmp(device, "cpu") != 0)
        tell(k, "device %s%s%s\n", device, *why ? ": " : "", why);
    int threads = pst_binding_threads(b);
    if (threads < p->threads)
        tell(k, "threads %d of the %d asked for: this process may use no more CPUs\n", threads, (int)p->threads);
    const char *remark = pst_binding_remark(b);
    if (remark)
        tell(k, "model %s: %s\n", pst_binding_name(b), remark);
    return 0;
}

/* ---- schemas --------------------------------------------------------------------------------------------------------------- */

/* The registry cannot be asked: for a dry run no failure. */
static int not_reached(const check *k, const char *what, int rc, const pst_err *why)
{
    if (k->o->may_be_alone && (why->cls == PST_CLASS_RETRY || rc == PST_EUNREACH)) {
        tell(k, "%s: not checked: %s\n", what, why->text);
        return 0;
    }
    *k->err = *why;
    if (why->cls == PST_CLASS_RETRY)
        k->err->code = PST_EUNREACH;
    pst_err_prefix(k->err, "%s cannot be checked", what);
    return k->err->code;
}

/* Would the registry take this schema for the scores on this topic? Asked, not registered. */
static int ask_registry(check *k, const char *topic, int line, const char *schema)
{
    if (!topic)
        return 0;
    char *subject = pst_sprintf("%s-value", topic);
    pst_err e = {0};
    bool yes = true;
    int rc = pst_registry_compatible(k->c->registry, subject, schema, &yes, &e);
    if (rc < 0)
        rc = not_reached(k, subject, rc, &e);
    else if (!yes)
        rc = at_line(
            k, line,
            pst_err_set(k->err, PST_EINCOMPAT, PST_CLASS_FATAL, "registry", 0,
                        "the registry refuses the scores' schema under %s: what is registered there does not go with it; choose another "
                        "topic for the scores, or change what is passed through",
                        subject));
    free(subject);
    return rc;
}

static int check_output(check *k, pst_variant variant, const pst_decoder *d)
{
    const pst_pipeline *p = k->p;
    const char **schemas = pst_alloc((p->n_passthrough + 1) * sizeof(*schemas));
    pst_output *o = NULL;
    for (size_t i = 0; d && i < p->n_passthrough; i++) {
        schemas[i] = pst_decoder_is_json(d) ? PST_JSON_PASS_SCHEMA : pst_decoder_pass_schema(d, i);
        k->passed[i] |= schemas[i] != NULL;
    }
    int rc = at_line(k, p->line.output, pst_output_new(p, schemas, &o, k->err));
    bool shadow = variant == PST_VARIANT_SHADOW;
    if (rc == 0)
        rc = ask_registry(k, shadow ? p->shadow_topic : p->output_topic, shadow ? p->line.rollout : p->line.output, pst_output_schema(o));
    pst_output_free(o);
    free(schemas);
    return rc;
}

/* Records of this schema (NULL = JSON texts), for every model in use. */
static int check_kind(check *k, const pst_schema *schema, char **ret_plan)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < VARIANTS; i++) {
        pst_decoder *d = NULL;
        if (!k->variants[i])
            continue;
        rc = at_line(k, k->p->line.features ? k->p->line.features : k->p->line.model,
                     pst_decoder_new(k->p, k->variants[i], schema, &d, k->err));
        if (rc == 0)
            rc = check_output(k, (pst_variant)i, d);
        if (rc == 0 && i == PST_VARIANT_PRIMARY && ret_plan)
            *ret_plan = pst_decoder_explain(d);
        pst_decoder_free(d);
    }
    return rc;
}

/* ---- what the records are ----------------------------------------------------------------------------------------------------- */

/* The newest records by their first byte: a 0 and a schema id, as registries' serializers write them, or a JSON text. */
typedef struct framing {
    int seen, framed, texts; /* values; texts: objects of JSON, by their looks */
    int32_t partition;
    int64_t offset; /* of one that is not framed */
} framing;

static bool is_framed(const pst_record *r)
{
    return r->value_len >= 5 && *(const char *)r->value == 0;
}

static bool is_object(const pst_record *r)
{
    const char *p = r->value;
    size_t i = 0;
    while (i < r->value_len && memchr(" \t\r\n", p[i], 4))
        i++;
    return i < r->value_len && p[i] == '{';
}

static int look_at_framing(void *arg, const pst_record *r, pst_err *err)
{
    framing *f = arg;
    if (!r->value)
        return 0;
    f->seen++;
    f->texts += is_object(r);
    if (is_framed(r)) {
        f->framed++;
    } else {
        f->partition = r->partition;
        f->offset = r->offset;
    }
    return 0;
}

/* The newest records of a topic, shown to fn; of one that is not there, none. Whoever checks need not have the scorer's rights: then nothing was
 * shown, and that is told. */
static int newest_of(check *k, const char *topic, score_newest_fn fn, void *arg, bool *ret_shown)
{
    pst_err e = {0};
    int rc = score_topic_newest(k->c, topic, NEWEST, k->o->may_be_alone ? ALONE_MS : ASK_MS, fn, arg, &e);
    *ret_shown = rc == 0 || rc == PST_ENOTFOUND;
    if (rc == PST_ENOTFOUND || rc == PST_EAUTH) {
        tell(k, "topic %s: records not checked: %s\n", topic, e.text);
        return 0;
    }
    if (rc < 0) {
        char *what = pst_sprintf("topic %s", topic);
        rc = not_reached(k, what, rc, &e);
        free(what);
    }
    return rc;
}

/* Whatever is registered for a topic, a scorer of Avro makes a dead letter of each record that names no schema. */
static int check_framed(check *k, const char *topic)
{
    framing f = {0};
    bool shown;
    int rc = newest_of(k, topic, look_at_framing, &f, &shown);
    if (rc < 0 || !shown || !f.seen || f.framed)
        return rc;
    pst_err_set(
        k->err, PST_EINCOMPAT, PST_CLASS_FATAL, "config", 0,
        "input.format: avro: none of the %d newest records of topic %s is Avro with a schema id in front (the newest one looked at: "
        "partition %d, offset %lld); %s",
        f.seen, topic, f.partition, (long long)f.offset,
        f.texts ? "they are JSON texts, which input.format: json reads"
                : "write them by a serializer that speaks to a schema registry (io.confluent…KafkaAvroSerializer and the like)");
    return at_line(k, k->p->line.input, PST_EINCOMPAT);
}

/* A topic whose records are to be JSON texts, and none is. What lies there says what they are; while it is empty, what the registry has for it. */
static int check_text(check *k, const char *topic, int seen, int framed)
{
    char *subject = pst_sprintf("%s-value", topic), *text = NULL;
    int32_t id;
    int version, rc = 0;
    pst_err e = {0};
    if (framed)
        rc =
            pst_err_set(k->err, PST_EINCOMPAT, PST_CLASS_FATAL, "config", 0,
                        "input.format: json: %s of the %d newest records of topic %s %s Avro with a schema id in front, and none is a JSON "
                        "object; input.format: avro reads them",
                        framed == seen ? "each" : "some", seen, topic, framed == 1 || framed == seen ? "is" : "are");
    else if (!seen && pst_registry_latest(k->c->registry, subject, &id, &version, &text, &e) == 0)
        rc = pst_err_set(
            k->err, PST_EINCOMPAT, PST_CLASS_FATAL, "config", 0,
            "input.format: json: no record of topic %s was seen, and the registry has an Avro schema for it (%s, id %d, version "
            "%d): input.format: avro reads what is written by it; if it is to hold JSON texts, write the first one before this",
            topic, subject, id, version);
    free(text);
    free(subject);
    return at_line(k, k->p->line.input, rc);
}

/* The newest schema of a topic. A topic without one yet is told, and no failure: its first record may come tomorrow. */
static int check_topic(check *k, const char *topic)
{
    char *subject = pst_sprintf("%s-value", topic), *text = NULL, *plan = NULL, *what = pst_sprintf("topic %s", topic);
    pst_schema *schema = NULL;
    pst_err e = {0};
    int32_t id;
    int version, rc = pst_registry_latest(k->c->registry, subject, &id, &version, &text, &e);
    if (rc == PST_ENOTFOUND) {
        tell(k, "topic %s: schema not checked: %s\n", topic, e.text);
        rc = check_framed(k, topic);
        goto out;
    }
    if (rc < 0) {
        rc = not_reached(k, what, rc, &e);
        goto out;
    }
    rc = pst_schema_parse(text, strlen(text), &schema, k->err);
    if (rc == 0)
        rc = check_kind(k, schema, k->o->verbose ? &plan : NULL);
    if (rc < 0 && k->err->code != PST_EUNREACH) {
        pst_err_prefix(k->err, "topic %s, schema id %d (version %d)", topic, id, version);
        if (k->err->code != PST_EPARSE)
            k->err->code = rc = PST_EINCOMPAT;
    }
    if (rc < 0)
        goto out;
    rc = check_framed(k, topic);
    if (rc < 0)
        goto out;
    k->n_schemas++;
    tell(k, "topic %s: schema id %d (%s, version %d) fits\n%s", topic, id, pst_schema_name(schema), version, plan ? plan : "");
out:
    pst_schema_free(schema);
    free(subject);
    free(what);
    free(text);
    free(plan);
    return rc;
}

/* A pass-through field that no input has is a slip of the pen: scores would come without it, and nobody would be told. */
static int check_passed(const check *k)
{
    for (size_t i = 0; k->n_schemas && i < k->p->n_passthrough; i++)
        if (!k->passed[i])
            return at_line(k, k->p->line.output,
                           pst_err_set(k->err, PST_EINCOMPAT, PST_CLASS_FATAL, "config", 0,
                                       "output.passthrough: no schema of the input topics has a field %s", k->p->passthrough[i]));
    return 0;
}

/* ---- JSON topics ----------------------------------------------------------------------------------------------------------- */

/* The newest records of one topic, as one model sees them. Records that are no objects tell nothing: they are dead letters, one by one. */
typedef struct sample {
    pst_decoder *decoder;
    bool scorable; /* the width is known: records can be taken as the scorer would */
    uint8_t *missing;
    pst_slice *pass;
    bool *passed; /* some record has the field that is passed through */
    size_t n_pass;
    pst_buf arena;
    int seen, framed, judged, fit, bad;
    pst_err why_bad;
    int32_t partition;
    int64_t offset;
    pst_err why; /* of the newest record that does not fill the model's input */
} sample;

static int look_at_record(void *arg, const pst_record *r, pst_err *err)
{
    sample *s = arg;
    pst_err e = {0};
    if (!r->value)
        return 0;
    s->seen++;
    s->framed += is_framed(r);
    int rc = pst_decoder_json_fills(s->decoder, r->value, r->value_len, &e);
    if (rc == 0) {
        pst_decode_fault fault;
        pst_err bad = {0};
        s->fit++;
        pst_buf_clear(&s->arena);
        if (s->scorable && pst_decoder_run(s->decoder, r->value, r->value_len, 0, s->missing, s->pass, &s->arena, &fault, &bad) < 0) {
            s->bad++;
            s->why_bad = bad;
        }
        for (size_t i = 0; i < s->n_pass; i++)
            s->passed[i] |= s->pass[i].data != NULL;
    } else if (rc == PST_EINCOMPAT) {
        s->why = e;
        s->partition = r->partition;
        s->offset = r->offset;
    }
    s->judged += rc == 0 || rc == PST_EINCOMPAT;
    return 0;
}

static int judge_sample(check *k, const char *topic, const pst_binding *b, const sample *s)
{
    int rc = s->judged ? 0 : check_text(k, topic, s->seen, s->framed);
    if (rc < 0)
        return rc;
    if (!s->seen) {
        tell(k, "topic %s: holds no records yet, their fields are not checked\n", topic);
    } else if (!s->judged) {
        tell(k, "topic %s: none of the %d newest records is a JSON object; they would all be dead letters\n", topic, s->seen);
    } else if (!s->fit) {
        pst_err_set(
            k->err, PST_EINCOMPAT, PST_CLASS_FATAL, "model", 0,
            "topic %s: none of the %d newest records fills the input of model %s (partition %d, offset %lld: %.300s); list the fields "
            "that it was trained on, slots: N for one that is an array",
            topic, s->judged, pst_binding_name(b), s->partition, (long long)s->offset, s->why.text);
        return at_line(k, k->p->line.features ? k->p->line.features : k->p->line.model, PST_EINCOMPAT);
    } else {
        tell(k, "topic %s: %d of the %d newest records fill the model's input\n", topic, s->fit, s->seen);
        if (s->bad)
            tell(k, "topic %s: %s of them would be dead letters: %s\n", topic, s->bad == s->fit ? "all" : "some", s->why_bad.text);
        for (size_t i = 0; i < s->n_pass && s->scorable && s->bad < s->fit; i++)
            if (!s->passed[i])
                tell(k, "topic %s: output.passthrough: none of them has a field %s\n", topic, k->p->passthrough[i]);
    }
    return 0;
}

/* JSON records have no schema: what the topic holds tells what its records are. A topic that nobody has yet is no failure. */
static int check_newest(check *k, const char *topic, pst_binding *b)
{
    pst_decoder *d = NULL;
    bool shown;
    size_t n;
    int rc = pst_decoder_new(k->p, b, NULL, &d, k->err);
    if (rc < 0)
        return rc;
    pst_binding_features(b, &n);
    sample s = {.decoder = d,
                .scorable = pst_binding_width(b) > 0,
                .missing = pst_alloc(n + 1),
                .pass = pst_alloc((k->p->n_passthrough + 1) * sizeof(*s.pass)),
                .passed = pst_alloc((k->p->n_passthrough + 1) * sizeof(*s.passed)),
                .n_pass = k->p->n_passthrough};
    rc = newest_of(k, topic, look_at_record, &s, &shown);
    if (rc == 0 && shown)
        rc = judge_sample(k, topic, b, &s);
    pst_decoder_free(d);
    free(s.missing);
    free(s.pass);
    free(s.passed);
    pst_buf_done(&s.arena);
    return rc;
}

/* What can be counted without a record: too many numbers, or too few and no field among them that could be an array. */
static int count_slots(check *k, const pst_binding *b)
{
    size_t n, slots = 0, open = 0, width = pst_binding_width(b);
    const pst_feature *f = pst_binding_features(b, &n);
    for (size_t j = 0; j < n; j++) {
        slots += f[j].slots ? f[j].slots : 1;
        open += !f[j].slots && !f[j].has_vocabulary && !f[j].text;
    }
    if (!width || slots == width)
        return 0;
    if (open) {
        tell(k, "features: %zu numbers for %zu slots: one of the fields has to be an array in every record (slots: N says so)\n", slots,
             width);
        return 0;
    }
    return at_line(k, k->p->line.features ? k->p->line.features : k->p->line.model,
                   pst_err_set(k->err, PST_EINVAL, PST_CLASS_FATAL, "model", 0, "model %s: its input has %zu slots, the features fill %zu",
                               pst_binding_name(b), width, slots));
}

static int check_json(check *k)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < VARIANTS; i++)
        rc = k->variants[i] ? count_slots(k, k->variants[i]) : 0;
    for (size_t t = 0; rc == 0 && t < k->p->n_topics; t++)
        for (int i = 0; rc == 0 && i < VARIANTS; i++)
            rc = k->variants[i] ? check_newest(k, k->p->topics[t], k->variants[i]) : 0;
    return rc < 0 ? rc : check_kind(k, NULL, NULL);
}

static int look(check *k)
{
    const pst_pipeline *p = k->p;
    int rc = load_variants(k);
    if (rc < 0)
        return rc;
    if (!p->n_topics || !p->output_topic)
        tell(k, "%s: only dry runs are possible\n", p->n_topics ? "output.topic is missing" : "input.topics is missing");
    if (p->format == PST_INPUT_JSON)
        return check_json(k);
    for (size_t i = 0; rc == 0 && i < p->n_topics; i++)
        rc = check_topic(k, p->topics[i]);
    if (rc == 0)
        rc = check_passed(k);
    if (rc == 0 && !k->n_schemas) /* what the scores will look like with nothing passed through is known all the same */
        for (int i = 0; rc == 0 && i < VARIANTS; i++)
            rc = k->variants[i] ? check_output(k, (pst_variant)i, NULL) : 0;
    return rc;
}

int pst_pipeline_check(const pst_settings *settings, const pst_pipeline *p, const pst_check_opts *opts, pst_binding **ret_binding,
                       pst_err *err)
{
    pst_err own = {0};
    check k = {.settings = settings, .p = p, .o = opts, .err = err ? err : &own};
    k.passed = pst_alloc(p->n_passthrough + 1);
    int rc = pst_pipeline_check_here(settings, p, k.err);
    if (rc == 0)
        rc = pst_client_open(settings, "penstock-check", &k.c, k.err);
    if (rc == 0)
        rc = look(&k);
    for (size_t i = 0; rc == 0 && i < VARIANTS; i++) /* a model whose loop has no end would hold the stream for good */
        if (k.variants[i])
            rc = at_line(&k, i ? p->line.rollout : p->line.model, pst_binding_probe(k.variants[i], k.err));
    if (rc == 0 && ret_binding) {
        *ret_binding = k.variants[PST_VARIANT_PRIMARY];
        k.variants[PST_VARIANT_PRIMARY] = NULL;
    }
    for (size_t i = 0; i < VARIANTS; i++)
        pst_binding_free(k.variants[i]);
    pst_client_close(k.c);
    free(k.passed);
    return rc;
}
