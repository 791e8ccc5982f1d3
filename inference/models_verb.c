/* models_verb.c - penstock models list|show|alias|rm|fetch|register|test|explain: answers from the topic, changes by publishing to it. */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/platform/verb.h"
#include "common/platform/models.h"
#include "engine/backend_test.h"
#include "engine/device_of.h"
#include "engine/penstock_engine.h"
#include "verbs.h"
#include "common/bus/bus.h"
#include "common/objects/objects.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct models_opts {
    const char *name, *alias, *reason, *isa, *device;
    pst_opt_list from_end;
    int64_t batch, free_dim, threads;
    bool measure, no_fusion;
    bool onnxruntime;
} models_opts;

#define AT(field) offsetof(models_opts, field)
#define REASON                                                                    \
    {                                                                             \
        "reason", 0, PST_OPT_STR, AT(reason), "TEXT", NULL, "kept with the event" \
    }

static const pst_opt register_table[] = {{"name", 0, PST_OPT_STR, AT(name), "NAME", NULL, "the model's name; required"},
                                         {"alias", 0, PST_OPT_STR, AT(alias), "ALIAS", NULL, "set this alias to the new version"},
                                         REASON};
static const pst_opt alias_table[] = {
    {"from-end", 0, PST_OPT_LIST, AT(from_end), "TOPIC", NULL,
     "count from the present end of this input topic on, so that a replay gives the same scores; repeatable"},
    REASON};

static const pst_opt explain_table[] = {
    {"batch", 0, PST_OPT_INT, AT(batch), "N 1..1048576", "64", "rows of the run that memory and cost are told for"},
    {"free-dim", 0, PST_OPT_INT, AT(free_dim), "N 0..1048576", "0",
     "size of free dimensions after an input's first (a length, a height); 0 = the first of 8, 32, 224, 64, 1, 5 the model takes"},
    {"measure", 0, PST_OPT_BOOL, AT(measure), NULL, NULL, "also time it: ns per row at that batch, the best of eight spells"},
    {"threads", 0, PST_OPT_INT, AT(threads), "N 1..64", "1", "of one run, as in a pipeline file"},
    {"isa", 0, PST_OPT_STR, AT(isa), "NAME", NULL, "portable, avx2 or avx512 instead of the best this CPU has"},
    {"no-fusion", 0, PST_OPT_BOOL, AT(no_fusion), NULL, NULL, "the reference kernels, node by node"},
    {"device", 0, PST_OPT_STR, AT(device), "DEVICE", NULL,
     "cpu, cuda, cuda:N or auto, as in a pipeline file; of one that cannot compute it, why and which node"}};

static const pst_opt test_table[] = {{"onnxruntime", 0, PST_OPT_BOOL, AT(onnxruntime), NULL, NULL,
                                      "let ONNX Runtime serve what the engine does not cover, instead of counting it as unsupported"}};

enum { LIST, SHOW, ALIAS, RM, FETCH, REGISTER, TEST, EXPLAIN, N_VERBS };
static const pst_usage usages[N_VERBS] = {
    [LIST] = {"models list", "[NAME]", "List model versions and their aliases.", NULL,
              "penstock models list\npenstock models list telemetry-ae --json", NULL, 0, false},
    [SHOW] = {"models show", "NAME[:V]", "Show one version; V is a number or an alias, without it the highest.", NULL,
              "penstock models show telemetry-ae\npenstock models show telemetry-ae:champion --json", NULL, 0, false},
    [ALIAS] = {"models alias", "NAME ALIAS V", "Let an alias mean version V; scorers that follow it swap without a pause.",
               "From which offset on they do, they record on the topic of models; penstock score replay goes by it.",
               "penstock models alias telemetry-ae champion 3\npenstock models alias telemetry-ae champion 3 --from-end telemetry",
               alias_table, 2, false},
    [RM] = {"models rm", "NAME:V", "Remove a version, or an alias (V is its name). Artefacts stay in the object store.", NULL,
            "penstock models rm telemetry-ae:2\npenstock models rm telemetry-ae:challenger", NULL, 0, false},
    [FETCH] = {"models fetch", "NAME:V FILE", "Copy a version's artefact into a file; its digest is checked.", NULL,
               "penstock models fetch telemetry-ae:champion model.onnx", NULL, 0, false},
    [REGISTER] = {"models register", "FILE --name N", "Register a model file as the next version.",
                  "The same file twice is one version. Prints name, version and digest.",
                  "penstock models register model.onnx --name fraud --alias champion", register_table, 3, false},
    [TEST] = {"models test", "DIR…", "Run folders in the layout of the ONNX backend tests: model.onnx, test_data_set_N.", NULL,
              "penstock models test onnx/backend/test/data/node/test_relu", test_table, 1, false},
    [EXPLAIN] =
        {"models explain", "FILE|NAME[:V]", "What the engine makes of a model: every step, its kernel, cost and memory.",
         "Compiles the model and runs it on made-up rows to see shapes, work and memory. FILE is an ONNX file, XGBoost's JSON or UBJSON, "
         "or\n"
         "LightGBM's text; a NAME is fetched from the registry. N is the batch, * another free dimension. FLOP/ROW counts a multiply-add "
         "as\n"
         "two; for trees it is the comparisons on the way down. MOVED/ROW is bytes read and written, constants included.",
         "penstock models explain model.onnx\npenstock models explain telemetry-ae:champion --batch 1 --measure\npenstock models explain "
         "model.onnx --json",
         explain_table, sizeof explain_table / sizeof *explain_table, false},
};

static json_t *version_json(const pst_model_event *v, const char *aliases)
{
    json_t *j = pst_event_to_json(&pst_model_event_type, v), *list = json_array();
    for (const char *a = aliases; *a;) {
        size_t n = strcspn(a, ",");
        json_array_append_new(list, json_stringn(a, n));
        a += n + (a[n] == ',');
    }
    json_object_set_new(j, "aliases", list);
    return j;
}

static void print_json(json_t *take)
{
    pst_json_print(stdout, take);
    json_decref(take);
}

/* ---- list, show ------------------------------------------------------------------------------------------------------------ */

typedef struct listing {
    bool json;
    size_t n;
} listing;

static void list_one(void *arg, const pst_model_event *v, const char *aliases)
{
    listing *l = arg;
    char when[32];
    if (l->json) {
        print_json(version_json(v, aliases));
    } else {
        if (!l->n)
            printf("%-28s %7s  %-20s %-13s %10s  %-12s  %-20s %s\n", "NAME", "VERSION", "ALIASES", "FORMAT", "BYTES", "DIGEST",
                   "REGISTERED", "TRAINING");
        printf("%-28s %7d  %-20s %-13s %10lld  %-12.12s  %-20.19s %s\n", v->name, v->version, *aliases ? aliases : "-", v->format,
               (long long)v->bytes, *v->digest ? v->digest : "-", pst_time_text(v->time, when), v->training_id ? v->training_id : "-");
    }
    l->n++;
}

typedef struct wanted {
    int version;
    char aliases[400];
} wanted;

static void find_aliases(void *arg, const pst_model_event *v, const char *aliases)
{
    wanted *w = arg;
    if (v->version == w->version)
        snprintf(w->aliases, sizeof(w->aliases), "%s", aliases);
}

/* "NAME:V", "NAME:alias", "NAME". */
static int find(const pst_models *m, const char *ref, const pst_model_event **ret, pst_err *err)
{
    const char *colon = strrchr(ref, ':');
    char *name = colon ? pst_strndup(ref, (size_t)(colon - ref)) : pst_strdup(ref);
    bool number = colon && isdigit((unsigned char)colon[1]) && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    *ret = pst_models_resolve(m, name, colon && !number ? colon + 1 : NULL, number ? atoi(colon + 1) : 0);
    free(name);
    return *ret ? 0
                : pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                              "there is no model %s; penstock models list shows what there is", ref);
}

static void print_signature(const char *what, const pst_tensor_signature *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("  %-12s %s %s(", what, s[i].name, s[i].dtype);
        for (size_t d = 0; d < s[i].n_shape; d++) {
            if (s[i].shape[d] < 0)
                printf("%sN", d ? ", " : "");
            else
                printf("%s%lld", d ? ", " : "", (long long)s[i].shape[d]);
        }
        printf(")\n");
    }
}

static void print_version(const pst_model_event *v, const char *aliases)
{
    char when[32];
    printf("%s version %d\n", v->name, v->version);
    printf("  %-12s %s\n", "aliases", *aliases ? aliases : "-");
    printf("  %-12s sha256 %s, %lld bytes, %s\n", "artefact", v->digest, (long long)v->bytes, v->format);
    printf("  %-12s %s\n", "uri", v->uri);
    printf("  %-12s %s by %s\n", "registered", pst_time_text(v->time, when), *v->actor ? v->actor : "-");
    if (v->reason)
        printf("  %-12s %s\n", "reason", v->reason);
    if (v->training_id)
        printf("  %-12s %s, generation %d\n", "training", v->training_id, v->has_generation ? v->generation : 1);
    print_signature("input", v->inputs, v->n_inputs);
    print_signature("output", v->outputs, v->n_outputs);
    for (size_t i = 0; i < v->n_features; i++)
        printf("%s%s%s", i ? ", " : "  features     ", v->features[i], i + 1 == v->n_features ? "\n" : "");
    for (size_t i = 0; i < v->n_trained_on; i++)
        printf("  %-12s %s[%d] offsets %lld to %lld\n", "trained on", v->trained_on[i].topic, v->trained_on[i].partition,
               (long long)v->trained_on[i].from, (long long)v->trained_on[i].to);
    for (size_t i = 0; i < v->n_metrics; i++)
        printf("  %-12s %s %.6g\n", "metric", v->metrics[i].key, v->metrics[i].value);
}

static int list_or_show(pst_verb_run *v, int which)
{
    pst_models *m = pst_models_new();
    int rc = pst_models_load(m, v->client, &v->err);
    if (rc == 0 && which == LIST) {
        listing l = {.json = v->settings.json};
        pst_models_each(m, v->n_args ? v->args[0] : NULL, list_one, &l);
        if (!l.n && v->n_args)
            rc = pst_err_set(&v->err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                             "there is no model %s; penstock models list shows what there is", v->args[0]);
        else if (!l.n && !l.json && !v->settings.quiet)
            fprintf(stderr,
                    "no models yet; a job with penstock.model.name in its manifest makes one, and so does penstock models register\n");
    } else if (rc == 0) {
        const pst_model_event *e = NULL;
        rc = find(m, v->args[0], &e, &v->err);
        if (rc == 0) {
            wanted w = {.version = e->version};
            pst_models_each(m, e->name, find_aliases, &w);
            if (v->settings.json)
                print_json(version_json(e, w.aliases));
            else
                print_version(e, w.aliases);
        }
    }
    pst_models_free(m);
    return rc;
}

/* ---- changes --------------------------------------------------------------------------------------------------------------- */

static int add_ends(pst_verb_run *v, const char *topic, pst_effective_from **list, size_t *n)
{
    pst_topic_info info = {0};
    int rc = pst_admin_topic(v->client->bus, topic, &info, 10000, &v->err);
    for (int p = 0; rc == 0 && p < info.partitions; p++) {
        *list = pst_array_one_more(*list, *n, sizeof(**list));
        (*list)[(*n)++] = (pst_effective_from){pst_strdup(topic), p, info.high[p]};
    }
    pst_topic_info_done(&info);
    return rc;
}

static int set_alias(pst_verb_run *v, const models_opts *o)
{
    char *end;
    long version = strtol(v->args[2], &end, 10);
    if (*end || version < 1 || version > INT32_MAX)
        return pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s is no version number", v->args[2]);
    pst_effective_from *from = NULL;
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->from_end.n; i++)
        rc = add_ends(v, o->from_end.items[i], &from, &n);
    if (rc == 0)
        rc = pst_models_set_alias_from(v->client, v->args[0], v->args[1], (int)version, from, n, pst_account_name(NULL), o->reason, NULL,
                                       &v->err);
    for (size_t i = 0; i < n; i++)
        free(from[i].topic);
    free(from);
    if (rc == 0 && !v->settings.quiet)
        printf("%s:%s is version %ld\n", v->args[0], v->args[1], version);
    return rc;
}

static int remove_one(pst_verb_run *v)
{
    char *name = pst_strdup(v->args[0]), *colon = strrchr(name, ':');
    int rc;
    if (!colon || !colon[1] || colon == name) {
        rc = pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "which version? penstock models rm %s:NUMBER, or %s:ALIAS",
                         v->args[0], v->args[0]);
    } else {
        *colon = 0;
        char *end;
        long version = strtol(colon + 1, &end, 10);
        rc = *end == 0 && version > 0 && version <= INT32_MAX
                 ? pst_models_delete(v->client, name, (int)version, NULL, pst_account_name(NULL), NULL, &v->err)
                 : pst_models_delete(v->client, name, 0, colon + 1, pst_account_name(NULL), NULL, &v->err);
    }
    free(name);
    return rc;
}

static int fetch(pst_verb_run *v)
{
    pst_models *m = pst_models_new();
    pst_objects *o = NULL;
    const pst_model_event *e = NULL;
    int rc = pst_models_load(m, v->client, &v->err);
    if (rc == 0 && (rc = find(m, v->args[0], &e, &v->err)) == 0 && (rc = pst_objects_open(v->settings.objects.value, &o, &v->err)) == 0)
        rc = pst_objects_get_file(o, e->uri, e->digest, v->args[1], &v->err);
    if (rc == 0 && !v->settings.quiet)
        fprintf(stderr, "%s version %d, sha256 %s\n", e->name, e->version, e->digest);
    pst_objects_close(o);
    pst_models_free(m);
    return rc;
}

static int register_one(pst_verb_run *v, const models_opts *o)
{
    if (!o->name)
        return pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "under which name? penstock models register %s --name NAME",
                           v->args[0]);
    pst_objects *objects = NULL;
    pst_model_event e = {0};
    pst_model_draft d = {
        .name = o->name, .path = v->args[0], .format = "onnx", .alias = o->alias, .actor = pst_account_name(NULL), .reason = o->reason};
    int rc = pst_objects_open(v->settings.objects.value, &objects, &v->err);
    if (rc == 0)
        rc = pst_models_register(v->client, objects, &d, &e, &v->err);
    if (rc == 0 && v->settings.json)
        print_json(version_json(&e, o->alias ? o->alias : ""));
    else if (rc == 0)
        printf("%s:%d sha256 %s\n", e.name, e.version, e.digest);
    if (rc == 0 && e.reason && (!o->reason || strcmp(e.reason, o->reason) != 0)) /* what registering found out about it */
        fprintf(stderr, "%s:%d: %s\n", e.name, e.version, e.reason);
    pst_event_clear(&pst_model_event_type, &e);
    pst_objects_close(objects);
    return rc;
}

/* The artefact of NAME[:V] in a temporary file, to be unlinked and freed by the caller. */
static int fetch_temporary(pst_verb_run *v, char **ret_path)
{
    const char *dir = getenv("TMPDIR");
    char *path = pst_sprintf("%s/penstock-model-XXXXXX", dir && *dir ? dir : "/tmp");
    pst_models *m = pst_models_new();
    pst_objects *o = NULL;
    const pst_model_event *e = NULL;
    int fd = mkstemp(path), rc = fd < 0 ? pst_err_sys(&v->err, errno, "cannot make %s", path) : 0;
    if (rc == 0 && (rc = pst_models_load(m, v->client, &v->err)) == 0 && (rc = find(m, v->args[0], &e, &v->err)) == 0 &&
        (rc = pst_objects_open(v->settings.objects.value, &o, &v->err)) == 0)
        rc = pst_objects_get_file(o, e->uri, e->digest, path, &v->err);
    if (fd >= 0)
        close(fd);
    pst_objects_close(o);
    pst_models_free(m);
    *ret_path = path;
    return rc;
}

static int explain(pst_verb_run *v, const models_opts *o)
{
    const char *what = v->args[0];
    bool named = !pst_fs_exists(what) && !strchr(what, '/') && !strchr(what, '.') && strcmp(what, "-") != 0;
    char *fetched = NULL, *text = NULL;
    pst_model *m = NULL;
    int rc = named ? fetch_temporary(v, &fetched) : 0;
    if (rc == 0)
        rc = pst_model_load_file(named ? fetched : what, NULL, &m, &v->err);
    pst_plan_opts plan = {
        .isa = o->isa, .no_fusion = o->no_fusion, .backend = pst_plan_backend_of(o->device), .threads = (uint64_t)o->threads};
    pst_explain_opts e = {
        .file = what, .batch = (size_t)o->batch, .free_dim = (size_t)o->free_dim, .json = v->settings.json, .measure = o->measure};
    if (rc == 0)
        rc = pst_model_explain(m, &plan, &e, &text, &v->err);
    if (rc == PST_ETIMEDOUT) /* of the model, not of the verb's own waiting */
        rc = v->err.code = PST_ELIMIT;
    if (rc == 0)
        fputs(text, stdout);
    free(text);
    pst_model_unref(m);
    if (fetched)
        unlink(fetched);
    free(fetched);
    return rc;
}

static int run_verb(int which, int argc, char **argv)
{
    static const struct {
        int least, most;
    } counts[N_VERBS] = {{0, 1}, {1, 1}, {3, 3}, {1, 1}, {2, 2}, {1, 1}, {1, -1}, {1, 1}};
    models_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &usages[which], argc, argv, &o, counts[which].least, counts[which].most);
    if (status >= 0)
        return status;
    int rc = 0;
    switch (which) {
    case LIST:
    case SHOW: rc = list_or_show(&v, which); break;
    case ALIAS: rc = set_alias(&v, &o); break;
    case RM: rc = remove_one(&v); break;
    case FETCH: rc = fetch(&v); break;
    case REGISTER: rc = register_one(&v, &o); break;
    case EXPLAIN: rc = explain(&v, &o); break;
    case TEST: status = pst_models_test(v.n_args, v.args, o.onnxruntime ? PST_NODE_TEST_ONNXRUNTIME : 0, stdout); break;
    default: break;
    }
    free(o.from_end.items);
    int end = pst_verb_end(&v, rc);
    return which == TEST && rc == 0 ? status : end;
}

static int models_run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(word, usages[i].verb + strlen("models ")))
            return run_verb(i, argc - 1, argv + 1);
    bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
    FILE *f = help ? stdout : stderr;
    if (*word && !help)
        fprintf(f, "penstock models: unknown verb %s\n", word);
    fprintf(f, "Usage: penstock models list|show|alias|rm|fetch|register|test|explain …\n\n");
    for (int i = 0; i < N_VERBS; i++) {
        char left[48];
        snprintf(left, sizeof(left), "%s %s", usages[i].verb + strlen("models "), usages[i].args);
        fprintf(f, "  %-24s %s\n", left, usages[i].summary);
    }
    fprintf(f, "\npenstock models VERB --help tells more.\n\nExamples:\n  penstock models list\n  penstock models alias telemetry-ae "
               "champion 2\n");
    return help ? 0 : 2;
}

const pst_verb pst_models_verb = {"models", "model versions and aliases: list, show, alias, rm, fetch, register, test, explain", "models",
                                  models_run,
                                  PST_USAGES(&usages[LIST], &usages[SHOW], &usages[ALIAS], &usages[RM], &usages[FETCH], &usages[REGISTER],
                                             &usages[TEST], &usages[EXPLAIN])};
