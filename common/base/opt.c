/* opt.c - options and their help from one table a verb. getopt_long does the splitting; the tables do the rest. */
#include "common/base/opt.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/secret.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTS_MAX = 96, FIRST_LONG = 1000, NEGATED = 500 };

typedef struct common_opts {
    pst_opt_list x;
    const char *bootstrap, *registry, *gateway, *state_dir, *store, *objects, *prefix, *file, *color;
    bool json, quiet, no_input, help, version;
    int verbose;
    const char *debug; /* -v's list */
} common_opts;

#define AT(f) offsetof(common_opts, f)
static const pst_opt common_table[] = {
    {"bootstrap-server", 'b', PST_OPT_STR, AT(bootstrap), "HOST:PORT,…", NULL, "Kafka brokers [PENSTOCK_BOOTSTRAP_SERVERS]"},
    {"brokers", 0, PST_OPT_STR, AT(bootstrap), "HOST:PORT,…", NULL, NULL},
    {"registry", 0, PST_OPT_STR, AT(registry), "URL", NULL, "schema registry [PENSTOCK_REGISTRY]"},
    {"gateway", 0, PST_OPT_STR, AT(gateway), "URL", NULL, "HTTP gateway [PENSTOCK_GATEWAY]"},
    {"state-dir", 0, PST_OPT_STR, AT(state_dir), "DIR", NULL, "profile, run directories, default store [PENSTOCK_STATE_DIR]"},
    {"store", 0, PST_OPT_STR, AT(store), "URL", NULL, "sqlite:PATH, mongodb://…, memory: [PENSTOCK_STORE]"},
    {"objects", 0, PST_OPT_STR, AT(objects), "URL", NULL, "file:DIR or s3://BUCKET/PREFIX, where models and code lie [PENSTOCK_OBJECTS]"},
    {"prefix", 0, PST_OPT_STR, AT(prefix), "P", NULL, "of the platform's topics, `penstock.` [PENSTOCK_TOPIC_PREFIX]"},
    {"command-property", 'X', PST_OPT_LIST, AT(x), "K=V", NULL, "any librdkafka property [PENSTOCK_X_K=V]"},
    {"command-config", 'F', PST_OPT_STR, AT(file), "FILE", NULL, "properties file; lines of Java clients are translated [PENSTOCK_CONFIG]"},
    {"json", 0, PST_OPT_BOOL, AT(json), NULL, NULL, "answer in JSON on stdout"},
    {"quiet", 'q', PST_OPT_BOOL, AT(quiet), NULL, NULL, "no progress, warnings only"},
    {"verbose", 'v', PST_OPT_BOOL, AT(verbose), "[LIST]", NULL,
     "say more; of some parts only: -vbus,lcm, of services also -v bus,lcm (a wrong name is answered with all) [PENSTOCK_DEBUG]"},
    {"color", 0, PST_OPT_STR, AT(color), "WHEN", NULL, "auto, always, never [NO_COLOR]"},
    {"no-input", 0, PST_OPT_BOOL, AT(no_input), NULL, NULL, "never ask"},
    {"help", 'h', PST_OPT_BOOL, AT(help), NULL, NULL, "this text"},
    {"version", 0, PST_OPT_BOOL, AT(version), NULL, NULL, "version"},
};
enum { N_COMMON = sizeof common_table / sizeof *common_table };

const pst_opt *pst_opt_common(size_t *ret_n)
{
    *ret_n = N_COMMON;
    return common_table;
}

static bool own_letter(const pst_usage *u, char letter)
{
    for (size_t i = 0; i < u->n_opts; i++)
        if (letter && u->opts[i].letter == letter)
            return true;
    return false;
}

static bool own_name(const pst_usage *u, const char *name)
{
    for (size_t i = 0; i < u->n_opts; i++)
        if (!strcmp(u->opts[i].name, name))
            return true;
    return false;
}

static int bad(const pst_opt *o, const char *value, const char *wanted, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--%s %s: wanted %s", o->name, value, wanted);
}

/* The range of a number stands behind its name ("N -1..1023"). Every number has one: a --limit of -5 means nothing that anybody could want. */
static void range_of(const pst_opt *o, double *ret_lo, double *ret_hi)
{
    const char *at = o->value_name ? strchr(o->value_name, ' ') : NULL;
    *ret_lo = o->def && *o->def == '-' ? strtod(o->def, NULL) : 0;
    *ret_hi = INT32_MAX;
    if (at) {
        char *end;
        *ret_lo = (double)strtoll(at, &end, 10);
        PST_ASSERT(!strncmp(end, "..", 2));
        *ret_hi = (double)strtoll(end + 2, NULL, 10);
    }
}

static int check_range(const pst_opt *o, const char *value, double x, pst_err *err)
{
    double lo, hi;
    range_of(o, &lo, &hi);
    return x >= lo && x <= hi ? 0
                              : pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--%s %s: wanted %s from %.15g to %.15g",
                                            o->name, value, o->kind == PST_OPT_INT ? "a whole number" : "a number", lo, hi);
}

static int store_value(const pst_opt *o, const char *value, bool negated, void *base, pst_err *err)
{
    void *to = (char *)base + o->offset;
    char *end;
    errno = 0;
    switch (o->kind) {
    case PST_OPT_BOOL: *(bool *)to = !negated; return 0;
    case PST_OPT_STR: *(const char **)to = value; return 0;
    case PST_OPT_INT:
        *(int64_t *)to = strtoll(value, &end, 0);
        return *end || end == value || errno ? bad(o, value, "a whole number", err) : check_range(o, value, (double)*(int64_t *)to, err);
    case PST_OPT_DOUBLE:
        *(double *)to = strtod(value, &end);
        return *end || end == value || !isfinite(*(double *)to) ? bad(o, value, "a number", err)
                                                                : check_range(o, value, *(double *)to, err);
    case PST_OPT_BYTES: return pst_bytes_parse(value, to) < 0 ? bad(o, value, "a size such as 64MiB", err) : 0;
    case PST_OPT_SPAN: return pst_span_parse(value, to) < 0 ? bad(o, value, "a time such as 5ms, 2s, 1m", err) : 0;
    case PST_OPT_LIST: {
        pst_opt_list *l = to;
        l->items = pst_array_one_more(l->items, l->n, sizeof *l->items);
        l->items[l->n++] = value;
        return 0;
    }
    }
    return PST_EINVAL;
}

/* The two tables as getopt_long wants them; val = FIRST_LONG + index (own options first), + NEGATED for --no-name. */
typedef struct built {
    struct option longs[OPTS_MAX * 2 + 1];
    char shorts[OPTS_MAX * 2 + 4];
    char *negations[OPTS_MAX];
    size_t n_negations;
} built;

static void build(const pst_usage *u, built *b)
{
    size_t n = 0, s = 0;
    b->shorts[s++] = ':';
    PST_ASSERT(u->n_opts + N_COMMON < OPTS_MAX);
    for (size_t i = 0; i < u->n_opts + N_COMMON; i++) {
        bool common = i >= u->n_opts;
        const pst_opt *o = common ? &common_table[i - u->n_opts] : &u->opts[i];
        bool flag = o->kind == PST_OPT_BOOL;
        if (common && own_name(u, o->name))
            continue;
        int takes = required_argument;
        if (flag)
            takes = o->value_name ? optional_argument : no_argument;
        b->longs[n++] = (struct option){o->name, takes, NULL, FIRST_LONG + (int)i};
        if (flag && !common) {
            char *no = pst_sprintf("no-%s", o->name);
            b->negations[b->n_negations++] = no;
            b->longs[n++] = (struct option){no, no_argument, NULL, FIRST_LONG + NEGATED + (int)i};
        }
        if (o->letter && !(common && own_letter(u, o->letter))) {
            b->shorts[s++] = o->letter;
            for (int colon = 0; colon < (takes == optional_argument ? 2 : takes); colon++)
                b->shorts[s++] = ':';
        }
    }
    b->longs[n] = (struct option){0};
    b->shorts[s] = 0;
}

static int unknown(const pst_usage *u, const char *word, const built *b, pst_err *err)
{
    const char *names[OPTS_MAX * 2];
    size_t n = 0;
    for (const struct option *o = b->longs; o->name; o++)
        names[n++] = o->name;
    const char *near = !strncmp(word, "--", 2) ? pst_nearest(word + 2, names, n) : NULL;
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "unknown option %s%s%s; see penstock %s --help", word,
                       near ? ", did you mean --" : "", near ? near : "", u->verb);
}

static const pst_opt *by_letter(const pst_usage *u, int letter, bool *ret_common)
{
    for (size_t i = 0; i < u->n_opts + N_COMMON; i++) {
        const pst_opt *o = i < u->n_opts ? &u->opts[i] : &common_table[i - u->n_opts];
        if (o->letter == letter) {
            *ret_common = i >= u->n_opts;
            return o;
        }
    }
    return NULL;
}

/* -v, -vv, -vbus,lcm, --verbose=bus,lcm. The next word is the list only where no argument could stand there. */
static void take_verbose(const pst_usage *u, int argc, char **argv, common_opts *c)
{
    const char *list = optarg;
    if (!list && u->args && !*u->args && optind < argc && *argv[optind] != '-')
        list = argv[optind++];
    c->verbose++;
    if (list && list[strspn(list, "v")])
        c->debug = list;
    else if (list)
        c->verbose += (int)strlen(list);
}

/* A long option's number says its place: below NEGATED it is the option itself, from NEGATED on its --no- form; a verb's own options come
 * before those that all verbs have. */
static int parse(const pst_usage *u, int argc, char **argv, void *opts, common_opts *c, const built *b, pst_err *err)
{
    optind = 0;
    opterr = 0;
    for (int got; (got = getopt_long(argc, argv, b->shorts, b->longs, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (got == ':') {
            char letter[3] = {'-', (char)optopt, 0};
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "option %s needs a value",
                               optopt > 0 && optopt < 256 ? letter : word);
        }
        if (got == '?') {
            char letter[3] = {'-', (char)optopt, 0};
            return unknown(u, optopt > 0 && optopt < 256 ? letter : word, b, err);
        }
        bool common = false, negated = false;
        const pst_opt *o;
        if (got >= FIRST_LONG) {
            size_t i = (size_t)(got - FIRST_LONG);
            negated = i >= NEGATED;
            i -= negated ? NEGATED : 0;
            common = i >= u->n_opts;
            o = common ? &common_table[i - u->n_opts] : &u->opts[i];
        } else
            o = by_letter(u, got, &common);
        if (common && !strcmp(o->name, "verbose"))
            take_verbose(u, argc, argv, c);
        else if (store_value(o, optarg, negated, common ? (void *)c : opts, err) < 0)
            return PST_EINVAL;
    }
    return 0;
}

static void print_option(FILE *f, const pst_opt *o)
{
    char left[96];
    if (!o->help)
        return;
    bool number = o->kind == PST_OPT_INT || o->kind == PST_OPT_DOUBLE;
    int name_len = 0; /* of a number without the range behind it */
    if (o->value_name)
        name_len = (int)(number ? strcspn(o->value_name, " ") : strlen(o->value_name));
    snprintf(left, sizeof left, "%s%c%s --%s%s%.*s", o->letter ? "-" : " ", o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
             name_len ? " " : "", name_len, o->value_name ? o->value_name : "");
    int width = 0; /* characters, not bytes */
    for (const char *p = left; *p; p++)
        width += (*p & 0xc0) != 0x80;
    fprintf(f, "  %s%*s%s%s%s%s\n", left, width < 33 ? 34 - width : 1, "", o->help, o->def ? " [" : "", o->def ? o->def : "",
            o->def ? "]" : "");
}

void pst_opt_help(const pst_usage *u, void *file)
{
    FILE *f = file;
    fprintf(f, "Usage: penstock %s [options]%s%s\n\n%s\n", u->verb, u->args && *u->args ? " " : "", u->args ? u->args : "", u->summary);
    if (u->text)
        fprintf(f, "\n%s\n", u->text);
    if (u->n_opts) {
        fprintf(f, "\nOptions:\n");
        for (size_t i = 0; i < u->n_opts; i++)
            print_option(f, &u->opts[i]);
    }
    fprintf(f, "\nOptions of every verb:\n");
    for (size_t i = 0; i < N_COMMON; i++)
        if (!own_name(u, common_table[i].name))
            print_option(f, &common_table[i]);
    if (u->examples) {
        fprintf(f, "\nExamples:\n");
        for (const char *p = u->examples; *p;) {
            size_t n = strcspn(p, "\n");
            fprintf(f, "  %.*s\n", (int)n, p);
            p += n + (p[n] == '\n');
        }
    }
}

static int defaults(const pst_usage *u, void *opts, pst_err *err)
{
    static const size_t sizes[] = {
        [PST_OPT_BOOL] = sizeof(bool),        [PST_OPT_STR] = sizeof(char *),    [PST_OPT_INT] = sizeof(int64_t),
        [PST_OPT_DOUBLE] = sizeof(double),    [PST_OPT_BYTES] = sizeof(int64_t), [PST_OPT_SPAN] = sizeof(int64_t),
        [PST_OPT_LIST] = sizeof(pst_opt_list)};
    for (size_t i = 0; i < u->n_opts; i++) /* no default is zero, whatever the caller's struct holds */
        memset((char *)opts + u->opts[i].offset, 0, sizes[u->opts[i].kind]);
    for (size_t i = 0; i < u->n_opts; i++)
        if (u->opts[i].def && store_value(&u->opts[i], u->opts[i].def, !strcmp(u->opts[i].def, "false"), opts, err) < 0)
            return PST_EINVAL;
    return 0;
}

static int settings_of(const common_opts *c, pst_settings *ret, pst_err *err)
{
    if (c->color && strcmp(c->color, "auto") && strcmp(c->color, "always") && strcmp(c->color, "never"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--color %s: wanted auto, always or never", c->color);
    pst_setting_flags f = {c->bootstrap, c->registry, c->gateway, c->state_dir, c->store, c->objects,  c->prefix,       c->file,
                           c->debug,     c->x.items,  c->x.n,     c->json,      c->quiet, c->no_input, (int)c->verbose, c->color};
    pst_log_level level = c->quiet ? PST_LOG_WARN : PST_LOG_INFO;
    if (c->verbose && !c->debug)
        level = PST_LOG_DEBUG;
    pst_log_set_level(level);
    if (pst_log_set_debug(c->debug ? c->debug : getenv("PENSTOCK_DEBUG"), err) < 0) {
        pst_err_prefix(err, "%s", c->debug ? "-v" : "PENSTOCK_DEBUG");
        return PST_EINVAL;
    }
    return pst_settings_load(&f, ret, err);
}

/* The settings have copies of all of it; every user of this computer can read a command line. */
static void hide_secrets(const common_opts *c)
{
    const char *const urls[] = {c->bootstrap, c->registry, c->gateway, c->store, c->objects};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        if (urls[i])
            pst_secret_hide_url(urls[i]);
    for (size_t i = 0; i < c->x.n; i++)
        pst_secret_hide_property(c->x.items[i]);
}

int pst_opt_parse(const pst_usage *usage, int argc, char **argv, void *ret_opts, pst_settings *ret_settings, char ***ret_args,
                  int *ret_n_args, pst_err *err)
{
    common_opts c = {0};
    built *b = pst_alloc(sizeof *b);
    build(usage, b);
    int rc = defaults(usage, ret_opts, err);
    if (!rc)
        rc = parse(usage, argc, argv, ret_opts, &c, b, err);
    if (!rc && (c.help || c.version)) {
        if (c.help)
            pst_opt_help(usage, stdout);
        else
            printf("penstock %s\n", PST_VERSION);
        rc = 1;
    }
    if (!rc)
        rc = settings_of(&c, ret_settings, err);
    hide_secrets(&c);
    if (!rc) {
        int n = argc - optind;
        *ret_args = pst_alloc((size_t)(n + 1) * sizeof **ret_args);
        for (int i = 0; i < n; i++)
            (*ret_args)[i] = argv[optind + i];
        *ret_n_args = n;
        if (n && usage->args && !*usage->args) /* `down NAME` is not `down` */
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "\"%.80s\" is one argument too many; usage: penstock %s [options]", argv[optind], usage->verb);
    }
    free(c.x.items);
    for (size_t i = 0; i < b->n_negations; i++)
        free(b->negations[i]);
    free(b);
    return rc;
}
