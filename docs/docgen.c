/* docgen.c - prints the reference pages under docs/reference/ from the tables that the code goes by: options, keys of files, schemas, topics,
 * metrics, routes, exit statuses. Nothing is said here that a table says, so a page cannot be right about a program that it was not printed
 * from; tests/tools/references compares the committed pages with what is printed now.
 *
 *     docgen reference DIR      cli.md pipeline.md manifest.md events.md topics.md metrics.md http.md exit-status.md
 *     docgen man DIR            penstock.1 penstock-<verb>.1 penstock-pipeline.5 penstock-manifest.5 */
#include "docs/docgen.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/loop/http.h"
#include "deploy/registry/registry_routes.h"
#include "inference/core/output.h"
#include "inference/pipeline/pipeline_keys.h"
#include "inference/pipeline/pipeline_published.h"
#include "inference/run/score_stats.h"
#include "producers/gateway/openapi.h"
#include "schemas/access.h"
#include "schemas/manifest_keys.h"
#include "schemas/metric_list.h"
#include "schemas/topics.h"
#include "schemas/type.h"
#include "verbs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define GENERATED "<!-- Printed by `docgen reference` from the tables in the code; edit those. -->\n\n"

/* ---- what both printers say alike ------------------------------------------------------------------------------------------- */

static void number_text(double x, pst_key_kind kind, char *buf, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    char span[32];
    if (kind == PST_KEY_SPAN) {
        snprintf(buf, size, "%s", x > 0 ? pst_span_text((int64_t)x, span) : "0");
    } else if (kind == PST_KEY_BYTES) {
        size_t u = 0;
        for (; x >= 1024 && u + 1 < sizeof units / sizeof *units; u++)
            x /= 1024;
        snprintf(buf, size, "%g %s", x, units[u]);
    } else
        snprintf(buf, size, "%.15g", x);
}

static void range_text(const pst_key *k, char *buf, size_t size)
{
    char lo[48], hi[48];
    number_text(k->lo, k->kind, lo, sizeof lo);
    number_text(k->hi, k->kind, hi, sizeof hi);
    bool bottomless = k->lo <= -1e300, endless = k->hi >= 9e18 || k->hi == INT32_MAX;
    if ((k->lo == 0 && k->hi == 0) || (bottomless && endless))
        *buf = 0;
    else if (endless)
        snprintf(buf, size, ", %s %s", k->above ? "above" : "from", lo);
    else
        snprintf(buf, size, k->above ? ", above %s, at most %s" : ", %s to %s", lo, hi);
}

void docgen_key_form(const pst_key *k, char *buf, size_t size)
{
    static const char *const kinds[] = {[PST_KEY_TEXT] = "text",      [PST_KEY_BLOCK] = "text, several lines",
                                        [PST_KEY_NAME] = "name",      [PST_KEY_TEXTS] = "name, or [name]",
                                        [PST_KEY_WORD] = "",          [PST_KEY_WHOLE] = "whole number",
                                        [PST_KEY_NUMBER] = "number",  [PST_KEY_BYTES] = "size",
                                        [PST_KEY_SPAN] = "time span", [PST_KEY_MAPPING] = "mapping",
                                        [PST_KEY_LIST] = "list",      [PST_KEY_OTHER] = ""};
    char range[128] = "";
    bool numeric = k->kind >= PST_KEY_WHOLE && k->kind <= PST_KEY_SPAN;
    if (numeric || k->kind == PST_KEY_OTHER)
        range_text(k, range, sizeof range);
    else if (k->hi > 0)
        snprintf(range, sizeof range, ", at most %.15g%s", k->hi, k->kind == PST_KEY_MAPPING || k->kind == PST_KEY_LIST ? "" : " bytes");
    if (k->kind != PST_KEY_WORD) {
        bool said = k->form && !numeric && k->kind != PST_KEY_OTHER; /* a form of its own tells the range as well */
        snprintf(buf, size, "%s%s", k->form ? k->form : kinds[k->kind], said ? "" : range);
        return;
    }
    size_t n = 0;
    for (size_t i = 0; k->words[i] && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s`%s`", i ? ", " : "", k->words[i]);
}

void docgen_option(const pst_opt *o, char *buf, size_t size)
{
    const char *value = o->value_name ? o->value_name : "", *blank = strchr(value, ' ');
    bool number = o->kind == PST_OPT_INT || o->kind == PST_OPT_DOUBLE;
    int len = (int)(number && blank ? blank - value : (long)strlen(value));
    char letter[8] = "";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(buf, size, "%s--%s%s%.*s", letter, o->name, len ? " " : "", len, value);
    const char *dots = number && blank ? strstr(blank, "..") : NULL;
    size_t n = strlen(buf);
    if (dots && n < size)
        snprintf(buf + n, size - n, " (%.*s to %s)", (int)(dots - blank - 1), blank + 1, dots + 2);
}

const char *docgen_default(const pst_opt *o)
{
    return o->def && strcmp(o->def, "0") && *o->def ? o->def : "";
}

/* ---- Markdown ---------------------------------------------------------------------------------------------------------------- */

/* Text as it stands, safe inside of a table and outside of backticks. */
static void put(FILE *f, const char *text)
{
    bool code = false;
    for (const char *p = text; *p; p++) {
        if (*p == '`')
            code = !code;
        if (*p == '|' || (!code && (*p == '<' || *p == '*' || *p == '_')))
            fputc('\\', f);
        fputc(*p == '\n' ? ' ' : *p, f);
    }
}

static void put_options(FILE *f, const pst_opt *opts, size_t n)
{
    char left[256];
    fprintf(f, "| option | default | meaning |\n|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        if (!opts[i].help)
            continue;
        docgen_option(&opts[i], left, sizeof left);
        fprintf(f, "| `");
        for (const char *p = left; *p; p++)
            fprintf(f, *p == '|' ? "\\|" : "%c", *p);
        fprintf(f, "` | %s | ", docgen_default(&opts[i]));
        put(f, opts[i].help);
        fprintf(f, " |\n");
    }
    fprintf(f, "\n");
}

static void put_usage(FILE *f, const pst_usage *u)
{
    fprintf(f, "### penstock %s\n\n```\npenstock %s [options]%s%s\n```\n\n", u->verb, u->verb, u->args && *u->args ? " " : "",
            u->args ? u->args : "");
    put(f, u->summary);
    fprintf(f, "\n\n");
    if (u->text) {
        put(f, u->text);
        fprintf(f, "\n\n");
    }
    if (u->n_opts)
        put_options(f, u->opts, u->n_opts);
    if (u->examples)
        fprintf(f, "```\n%s\n```\n\n", u->examples);
}

static void put_group(FILE *f, const char *group)
{
    for (size_t i = 0; i < pst_n_verbs; i++) {
        const pst_verb *v = pst_verbs[i];
        bool here = group ? v->group && !strcmp(v->group, group) : !v->group;
        for (size_t k = 0; here && v->usages[k]; k++)
            put_usage(f, v->usages[k]);
    }
}

static void cli_page(FILE *f)
{
    static const char *const groups[][2] = {
        {"jobs", "Jobs"}, {"models", "Models"}, {"streams", "Streams"}, {"this computer", "This computer"}, {"services", "Services"}};
    size_t n;
    const pst_opt *common = pst_opt_common(&n);
    fprintf(f, "# Commands and options\n\n" GENERATED
               "`penstock VERB --help` prints the same. Answers go to stdout, progress and talk to stderr. "
               "[Exit statuses](exit-status.md).\n\n## Options of every verb\n\nWhere an option is not given: `-X`, then the environment "
               "variable in brackets, then the `-F` file, then the profile that `penstock up` leaves, then the default. `penstock config "
               "explain` prints each value and where it came from.\n\n");
    put_options(f, common, n);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        fprintf(f, "## %s\n\n", groups[g][1]);
        put_group(f, groups[g][0]);
    }
    fprintf(f, "## Started by the platform itself\n\nNot listed by `penstock --help`.\n\n");
    put_group(f, NULL);
}

static void put_keys(FILE *f, const pst_keys *keys, const char *top)
{
    char form[512];
    const char *section = NULL;
    for (size_t i = 0; i < keys->n; i++) {
        const pst_key *k = &keys->at[i];
        if (!section || strcmp(section, k->section) != 0) {
            section = k->section;
            if (strcmp(section, top) != 0)
                fprintf(f, "\n## `%s`\n", section);
            fprintf(f, "\n| key | value | default | meaning |\n|---|---|---|---|\n");
        }
        docgen_key_form(k, form, sizeof form);
        fprintf(f, "| `%s` | ", k->name);
        put(f, form);
        fprintf(f, " | %s%s%s | ", k->def ? "`" : "", k->def ? k->def : "", k->def ? "`" : "");
        put(f, k->help);
        fprintf(f, " |\n");
    }
}

static void pipeline_page(FILE *f)
{
    fprintf(f,
            "# Pipeline file\n\n" GENERATED
            "YAML. A key that is not here is refused with file, line and the nearest key there is. Every text may hold `${NAME}` or "
            "`${NAME:-default}`, taken from the environment after the YAML was read; `$${` stands for `${`. `penstock score check -c FILE` "
            "says what is wrong with a file, `penstock score explain -c FILE` how records become scores.\n");
    put_keys(f, &pst_pipeline_keys, "pipeline");
    fprintf(f,
            "\n## Published pipelines\n\nWhat `penstock pipelines apply` publishes runs on another computer, so it names no file beside "
            "it, sees "
            "variables of the scorer's environment only when they begin with `%s`, and under `kafka` takes these properties alone:\n\n",
            PST_PUBLISHED_ENV);
    for (size_t i = 0; pst_published_tuning(i); i++)
        fprintf(f, "%s`%s`", i ? ", " : "", pst_published_tuning(i));
    fprintf(f, ".\n");
}

static void manifest_page(FILE *f)
{
    fprintf(
        f,
        "# Manifest\n\n" GENERATED
        "YAML, FfDL's `manifest.yml` with additions under `penstock`. All that is wrong is said at once. An unknown key under `penstock` "
        "is refused, any other is ignored with a warning. `penstock submit MANIFEST DIR --dry-run` checks without publishing.\n");
    put_keys(f, &pst_manifest_keys, "");
}

/* ---- events -------------------------------------------------------------------------------------------------------------------- */

static void type_text(const json_t *t, pst_buf *out)
{
    size_t i;
    json_t *v;
    if (json_is_string(t)) {
        const char *name = json_string_value(t), *dot = strrchr(name, '.');
        pst_buf_adds(out, dot ? dot + 1 : name);
    } else if (json_is_array(t)) {
        json_array_foreach(t, i, v)
        {
            pst_buf_adds(out, i ? " or " : "");
            type_text(v, out);
        }
    } else {
        const char *type = json_string_value(json_object_get(t, "type")), *name = json_string_value(json_object_get(t, "name"));
        const char *logical = json_string_value(json_object_get(t, "logicalType"));
        if (!strcmp(type, "array") || !strcmp(type, "map")) {
            pst_buf_printf(out, "%s of ", type);
            type_text(json_object_get(t, *type == 'a' ? "items" : "values"), out);
        } else
            pst_buf_printf(out, "%s", logical ? logical : name ? name : type);
    }
}

/* Records and enums that a field brings along are written out below the record that uses them. */
static void collect(json_t *t, json_t *named)
{
    size_t i;
    json_t *v;
    if (json_is_array(t))
        json_array_foreach(t, i, v) collect(v, named);
    if (!json_is_object(t))
        return;
    if (json_object_get(t, "items") || json_object_get(t, "values"))
        collect(json_object_get(t, json_object_get(t, "items") ? "items" : "values"), named);
    else if (json_object_get(t, "fields") || json_object_get(t, "symbols"))
        json_array_append(named, t);
    else if (json_is_object(json_object_get(t, "type")) || json_is_array(json_object_get(t, "type")))
        collect(json_object_get(t, "type"), named);
}

static void put_symbols(FILE *f, const json_t *t)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(t, "symbols"), i, v) fprintf(f, "%s`%s`", i ? ", " : "", json_string_value(v));
    fprintf(f, ".\n");
}

static void put_fields(FILE *f, const json_t *fields, json_t *named)
{
    size_t i;
    json_t *field;
    fprintf(f, "| field | type | default | meaning |\n|---|---|---|---|\n");
    json_array_foreach(fields, i, field)
    {
        pst_buf type = {0};
        type_text(json_object_get(field, "type"), &type);
        const json_t *def = json_object_get(field, "default");
        char *text = def ? json_dumps(def, JSON_ENCODE_ANY) : NULL;
        const char *doc = json_string_value(json_object_get(field, "doc"));
        fprintf(f, "| `%s` | %s | %s%s%s | ", json_string_value(json_object_get(field, "name")), type.data, text ? "`" : "",
                text ? text : "", text ? "`" : "");
        put(f, doc ? doc : "");
        fprintf(f, " |\n");
        free(text);
        pst_buf_done(&type);
        collect(json_object_get(field, "type"), named);
    }
    fprintf(f, "\n");
}

static void put_record(FILE *f, const json_t *schema, const char *mark)
{
    const char *doc = json_string_value(json_object_get(schema, "doc"));
    fprintf(f, "%s %s\n\n", mark, json_string_value(json_object_get(schema, "name")));
    if (doc) {
        put(f, doc);
        fprintf(f, "\n\n");
    }
    json_t *named = json_array();
    if (json_object_get(schema, "symbols"))
        put_symbols(f, schema);
    else
        put_fields(f, json_object_get(schema, "fields"), named);
    size_t i;
    json_t *t;
    json_array_foreach(named, i, t)
    {
        put_record(f, t, "###");
        fprintf(f, "\n");
    }
    json_decref(named);
}

static int put_schema(FILE *f, const char *text)
{
    pst_err err = {0};
    json_t *schema = NULL;
    int rc = pst_json_parse(text, strlen(text), "schema", &schema, &err);
    if (!rc)
        put_record(f, schema, "##");
    json_decref(schema);
    return rc;
}

/* The scorer writes Score by the pipeline's own schema: the one without pass-through fields stands for all. */
static int put_score(FILE *f)
{
    static const char text[] = "name: example\ninput: {topics: [in]}\nmodel: {file: /model.onnx}\noutput: {topic: out}\n";
    pst_err err = {0};
    pst_pipeline *p = NULL;
    pst_output *o = NULL;
    int rc = pst_pipeline_parse(text, strlen(text), "example", &p, &err);
    if (!rc && !(rc = pst_output_new(p, NULL, &o, &err)))
        rc = put_schema(f, pst_output_schema(o));
    pst_output_free(o);
    pst_pipeline_free(p);
    return rc;
}

static void events_page(FILE *f)
{
    fprintf(
        f, "# Events\n\n" GENERATED
           "The Avro records of the platform's [topics](topics.md), namespace `penstock`. On the wire: Confluent framing (a zero byte, the "
           "schema's id as four bytes, big-endian, then the Avro body), subject `<topic>-value`. On `jobs.requests`, `models` and "
           "`pipelines` a value may also be JSON text with the same names; fields with a default may be left out. Keys are UTF-8 text. "
           "Times are microseconds since 1970.\n\n");
    bool seen[64] = {false};
    int rc = 0;
    for (int t = 0; t < PST_TOPIC_COUNT; t++)
        for (size_t i = 0; i < pst_types_n && i < sizeof seen; i++)
            if (!seen[i] && !strcmp(pst_types[i]->name, pst_topic_get((pst_topic)t)->type_name)) {
                seen[i] = true;
                rc |= put_schema(f, pst_types[i]->schema);
            }
    rc |= put_score(f);
    PST_ASSERT(!rc);
    fprintf(f, "`Score` is what a scorer writes to a pipeline's output topic. Pass-through fields lie under a nullable `record`. With "
               "`output.format: slim` there is `score` alone.\n");
}

/* ---- topics, metrics, routes, exit statuses ------------------------------------------------------------------------------------ */

static void put_grant(void *arg, const pst_grant *g)
{
    fprintf(arg, "| %s | `%s%s` | %s |\n", g->resource, g->name, g->prefixed ? "*" : "", g->operation);
}

static void topics_page(FILE *f)
{
    fprintf(f, "# Topics and rights\n\n" GENERATED "Names are prefixed by `penstock.` (`PENSTOCK_TOPIC_PREFIX`). `penstock up` and "
               "`penstock topics create` make what is missing, with "
               "the broker's default replication.\n\n"
               "| topic | record | partitions | cleanup | retention | written by | read by | holds |\n|---|---|---|---|---|---|---|---|\n");
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        const pst_topic_def *d = pst_topic_get((pst_topic)t);
        char days[32] = "for ever";
        if (d->retention_ms >= 0)
            snprintf(days, sizeof days, "%g days", (double)d->retention_ms / 86400e3);
        fprintf(f, "| `%s` | %s | %d | %s | %s | %s | %s | ", d->suffix, d->type_name, d->partitions, d->cleanup, days, d->writers,
                d->readers);
        put(f, d->doc);
        fprintf(f, " |\n");
    }
    fprintf(
        f, "\n## Least rights\n\nOn a cluster with an authorizer each component needs these and no more. `penstock topics acls --commands` "
           "prints them as `kafka-acls.sh` commands, `--pipeline FILE` adds a pipeline's own topics. A `*` at the end: every name that "
           "begins so.\n");
    for (int c = 0; c < PST_COMPONENT_COUNT; c++) {
        fprintf(f, "\n### %s\n\n", pst_component_name((pst_component)c));
        put(f, pst_component_doc((pst_component)c));
        fprintf(f, "\n\n| resource | name | operation |\n|---|---|---|\n");
        pst_access_each((pst_component)c, "penstock.", put_grant, f);
    }
}

static void metrics_page(FILE *f)
{
    fprintf(f, "# Metrics\n\n" GENERATED "Prometheus text. The gateway and the registry serve `/metrics` on their own port, the Trainer "
               "and an LCM with `--port`, a scorer with "
               "`--metrics-listen`; `penstock up` gives each a port and writes them down for Prometheus "
               "(`<state-dir>/metrics-targets.json`, `deploy/prometheus/`). Histograms have 20 buckets from 50 µs to 26 s.\n\n| metric | "
               "type | labels | meaning |\n|---|---|---|---|\n");
    for (int i = 0; i < PST_METRIC_COUNT; i++) {
        const pst_metric_def *d = pst_metric_def_of((pst_metric_id)i);
        fprintf(f, "| `%s` | %s | %s | ", d->name, pst_metric_kind_name(d->kind), d->labels);
        put(f, d->help);
        fprintf(f, " |\n");
    }
}

/* The gateway's table is its OpenAPI description in short. */
static void put_operations(FILE *f)
{
    json_t *doc = pst_gateway_openapi(), *operations, *op;
    const char *path, *method;
    fprintf(f,
            "\n## Gateway\n\n[openapi.json](openapi.json), served at `/openapi.json` too, has all parameters, bodies and answers.\n\n"
            "The last column is for `--users` ([users](../users.md)): an operator may all; a user sees and touches its own jobs alone.\n\n"
            "| method | path | what | who may | roles |\n|---|---|---|---|---|\n");
    json_object_foreach(json_object_get(doc, "paths"), path, operations)
    {
        json_object_foreach(operations, method, op)
        {
            fprintf(f, "| ");
            for (const char *c = method; *c; c++)
                fputc(toupper((unsigned char)*c), f);
            fprintf(f, " | `%s` | ", path);
            put(f, pst_json_str(op, "description", ""));
            fprintf(f, " | %s | %s |\n", pst_json_str(op, "x-who-may", ""), pst_json_str(op, "x-roles", "everybody"));
        }
    }
    json_decref(doc);
}

static void openapi_page(FILE *f)
{
    json_t *doc = pst_gateway_openapi();
    int rc = json_dumpf(doc, f, JSON_INDENT(1));
    PST_ASSERT(!rc);
    fputc('\n', f);
    json_decref(doc);
}

static void put_routes(FILE *f, const char *title, const pst_http_routes *routes, bool head)
{
    if (head)
        fprintf(f, "\n## %s\n\n| method | path | what |\n|---|---|---|\n", title);
    for (size_t i = 0; i < routes->n; i++) {
        if (!routes->at[i].doc)
            continue;
        fprintf(f, "| %s | `%s` | ", routes->at[i].method, routes->at[i].pattern);
        put(f, routes->at[i].doc);
        fprintf(f, " |\n");
    }
}

static void http_page(FILE *f)
{
    fprintf(
        f,
        "# HTTP\n\n" GENERATED
        "Everything listens on 127.0.0.1 unless told otherwise. The gateway asks for its token (`<state-dir>/token`): `Authorization: "
        "Bearer TOKEN`, or as the password of basic authentication. Errors are RFC 9457 objects (`application/problem+json`) with a stable "
        "`code`. A request of a foreign page, with a foreign `Host`, or with a form as its body is refused.\n");
    put_operations(f);
    put_routes(f, "Registry (for development: Confluent's interface)", pst_registry_routes(NULL), true);
    put_routes(f, "", &pst_registry_about_routes, false);
    put_routes(f, "", &pst_registry_own_routes, false);
    put_routes(f, "Scorer (`--metrics-listen`)", &pst_stats_routes, true);
    put_routes(f, "Trainer (`--port`)", &pst_http_thread_routes, true);
}

static void exit_page(FILE *f)
{
    fprintf(f, "# Exit statuses\n\n" GENERATED "| status | meaning |\n|---|---|\n");
    for (size_t i = 0; i < pst_n_exits; i++) {
        fprintf(f, "| %d | ", pst_exits[i].status);
        put(f, pst_exits[i].meaning);
        fprintf(f, " |\n");
    }
}

static int reference(const char *dir)
{
    static const struct {
        const char *name;
        void (*print)(FILE *f);
    } pages[] = {{"cli.md", cli_page},       {"pipeline.md", pipeline_page}, {"manifest.md", manifest_page},
                 {"events.md", events_page}, {"topics.md", topics_page},     {"metrics.md", metrics_page},
                 {"http.md", http_page},     {"openapi.json", openapi_page}, {"exit-status.md", exit_page}};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char *path = pst_fs_join(dir, pages[i].name);
        FILE *f = fopen(path, "w");
        if (!f) {
            perror(path);
            free(path);
            return 1;
        }
        free(path);
        pages[i].print(f);
        if (fclose(f))
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool man = argc == 3 && !strcmp(argv[1], "man");
    if (!man && (argc != 3 || strcmp(argv[1], "reference") != 0)) {
        fprintf(stderr, "Usage: docgen reference|man DIR\n");
        return 2;
    }
    return man ? docgen_man(argv[2]) : reference(argv[2]);
}
