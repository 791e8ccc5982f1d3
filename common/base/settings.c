/* settings.c - every value is resolved once, with its origin, from the strongest source that names it: `doctor` and error messages can then say
 * where a wrong value came from. */
#include "common/base/settings.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/properties.h"
#include "common/base/secret.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* What -F files and the property sources say about settings that are not Kafka's. */
typedef struct extras {
    pst_setting bootstrap, registry, gateway, state_dir, store, objects, prefix;
    char *registry_auth;
} extras;

/* origin is taken over. */
static void setting_set(pst_setting *s, const char *value, char *origin)
{
    char *shown = pst_url_public(value);
    free(s->secret);
    s->secret = strcmp(shown, value) ? pst_strdup(value) : NULL;
    free(s->value);
    free(s->origin);
    s->value = shown;
    s->origin = origin;
}

static void setting_done(pst_setting *s)
{
    free(s->value);
    free(s->secret);
    free(s->origin);
}

const char *pst_setting_full(const pst_setting *s)
{
    return s->secret ? s->secret : s->value;
}

void pst_setting_put(pst_setting *s, const char *value, const char *origin)
{
    char *copy = pst_strdup(value); /* may be the setting's own */
    setting_set(s, copy, pst_strdup(origin));
    free(copy);
}

static const char *without_registry_prefix(const char *key)
{
    static const char prefix[] = "schema.registry.";
    return strncmp(key, prefix, sizeof prefix - 1) ? key : key + sizeof prefix - 1;
}

/* Routes one property: ours, the registry's, or librdkafka's. */
static void property(pst_settings *s, extras *x, const char *key, const char *value, const char *origin)
{
    struct {
        const char *key;
        pst_setting *to;
    } ours[] = {{"bootstrap.servers", &x->bootstrap}, {"metadata.broker.list", &x->bootstrap}, {"schema.registry.url", &x->registry},
                {"penstock.registry", &x->registry},  {"penstock.gateway", &x->gateway},       {"penstock.state.dir", &x->state_dir},
                {"penstock.store", &x->store},        {"penstock.objects", &x->objects},       {"penstock.prefix", &x->prefix}};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(key, ours[i].key)) {
            setting_set(ours[i].to, value, pst_strdup(origin));
            return;
        }
    if (!strcmp(without_registry_prefix(key), "basic.auth.user.info")) {
        free(x->registry_auth);
        x->registry_auth = pst_strdup(value);
        return;
    }
    if (!strcmp(without_registry_prefix(key), "basic.auth.credentials.source"))
        return; /* USER_INFO is the only one; the URL's own credentials are seen by the client */
    s->kafka = pst_array_one_more(s->kafka, s->n_kafka, sizeof *s->kafka);
    s->kafka[s->n_kafka++] = (pst_property){pst_strdup(key), pst_strdup(value), pst_strdup(origin)};
}

typedef struct reading {
    pst_settings *s;
    extras *x;
} reading;

static void take(void *arg, const char *key, const char *value, const char *origin)
{
    reading *r = arg;
    property(r->s, r->x, key, value, origin);
}

static int read_file(pst_settings *s, extras *x, const char *path, pst_err *err)
{
    pst_buf text = {0};
    reading r = {s, x};
    int rc = pst_fs_read(path, 1 << 20, &text, err);
    if (rc < 0 && err && err->code == PST_ENOTFOUND)
        err->code = PST_EINVAL;
    if (rc == 0)
        rc = pst_properties_parse(text.data ? text.data : "", text.len, path, take, &r, err);
    pst_buf_done(&text);
    return rc;
}

static void read_environment(pst_settings *s, extras *x)
{
    static const char prefix[] = "PENSTOCK_X_";
    for (char **e = environ; *e; e++) {
        const char *eq = strchr(*e, '=');
        if (strncmp(*e, prefix, sizeof prefix - 1) || !eq)
            continue;
        char *key = pst_strndup(*e + sizeof prefix - 1, (size_t)(eq - *e) - (sizeof prefix - 1));
        for (char *p = key; *p; p++)
            *p = *p == '_' ? '.' : (char)tolower((unsigned char)*p);
        char *origin = pst_sprintf("environment %.*s", (int)(eq - *e), *e);
        property(s, x, key, eq + 1, origin);
        free(origin);
        free(key);
    }
}

static int read_x(pst_settings *s, extras *x, const pst_setting_flags *f, pst_err *err)
{
    for (size_t i = 0; i < f->n_x; i++) {
        const char *eq = strchr(f->x[i], '=');
        if (!eq || eq == f->x[i])
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "-X %s: wanted property=value, as in -X linger.ms=5",
                               f->x[i]);
        char *key = pst_strndup(f->x[i], (size_t)(eq - f->x[i]));
        property(s, x, key, eq + 1, "-X");
        free(key);
    }
    return 0;
}

char *pst_profile_path(const char *state_dir)
{
    return pst_fs_join(state_dir, "profile.json");
}

static json_t *read_object(const char *path)
{
    pst_buf b = {0};
    json_t *j = NULL;
    if (pst_fs_read(path, 1 << 20, &b, NULL) == 0)
        pst_json_parse(b.data, b.len, path, &j, NULL);
    pst_buf_done(&b);
    return j;
}

static json_t *read_profile(const char *state_dir, char **ret_path)
{
    *ret_path = pst_profile_path(state_dir);
    return read_object(*ret_path);
}

/* Gives a setting that came from the profile the credentials that were written beside it, if they belong to that very address. */
static void add_secret(pst_setting *to, const json_t *secrets, const char *name)
{
    const char *full = pst_json_str(secrets, name, NULL);
    if (!full || strncmp(to->origin, "profile", 7))
        return;
    char *shown = pst_url_public(full);
    if (!strcmp(shown, to->value)) {
        free(to->secret);
        to->secret = pst_strdup(full);
    }
    free(shown);
}

static void read_secrets(pst_settings *s)
{
    char *path = pst_fs_join(s->state_dir.value, "secrets.json");
    json_t *j = read_object(path);
    add_secret(&s->registry, j, "registry");
    add_secret(&s->gateway, j, "gateway");
    add_secret(&s->store, j, "store");
    add_secret(&s->objects, j, "objects");
    json_decref(j);
    free(path);
}

/* Secrets first: a profile is never there without the credentials that its addresses need. Both files are private and replaced as a whole. */
int pst_profile_write(const pst_settings *s, pst_err *err)
{
    char *token = pst_token_path(s->state_dir.value), *path = pst_profile_path(s->state_dir.value);
    char *secrets_path = pst_fs_join(s->state_dir.value, "secrets.json");
    json_t *p = json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s, s:s}", "bootstrap", s->bootstrap.value, "registry", s->registry.value,
                          "gateway", s->gateway.value, "embedded", s->embedded, "store", s->store.value, "objects", s->objects.value,
                          "prefix", s->prefix.value, "token_file", token);
    json_t *secrets = json_object();
    const struct {
        const char *name;
        const pst_setting *of;
    } rows[] = {{"registry", &s->registry}, {"gateway", &s->gateway}, {"store", &s->store}, {"objects", &s->objects}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].of->secret)
            json_object_set_new(secrets, rows[i].name, json_string(rows[i].of->secret));
    char *text = pst_json_text(secrets);
    int rc = 0;
    if (json_object_size(secrets))
        rc = pst_fs_write_atomic(secrets_path, text, strlen(text), 0600, err);
    else
        unlink(secrets_path);
    free(text);
    text = pst_json_text(p);
    if (!rc)
        rc = pst_fs_write_atomic(path, text, strlen(text), 0600, err);
    free(text);
    json_decref(p);
    json_decref(secrets);
    free(token);
    free(path);
    free(secrets_path);
    return rc;
}

static void read_token(pst_settings *s, const json_t *profile)
{
    const char *env = getenv("PENSTOCK_TOKEN"), *file = pst_json_str(profile, "token_file", NULL);
    char *own = pst_token_path(s->state_dir.value);
    free(s->token);
    s->token = env && *env ? pst_strdup(env) : NULL;
    if (!s->token && file)
        pst_token_read(file, &s->token, NULL);
    if (!s->token)
        pst_token_read(own, &s->token, NULL);
    free(own);
}

/* Strongest first: flag, property (-X, environment PENSTOCK_X_, -F in that order already), PENSTOCK_…, profile, default. A -F value is
 * weaker than PENSTOCK_…; extras remembers its origin, which tells the two apart. */
static void resolve(pst_setting *to, const char *flag, pst_setting *extra, const char *env_name, const char *profile,
                    const char *profile_path, const char *def)
{
    const char *env = getenv(env_name);
    bool strong = extra->value && (!strcmp(extra->origin, "-X") || !strncmp(extra->origin, "environment", 11));
    if (flag)
        setting_set(to, flag, pst_strdup("flag"));
    else if (strong)
        setting_set(to, pst_setting_full(extra), pst_strdup(extra->origin));
    else if (env && *env)
        setting_set(to, env, pst_sprintf("environment %s", env_name));
    else if (extra->value)
        setting_set(to, pst_setting_full(extra), pst_strdup(extra->origin));
    else if (profile)
        setting_set(to, profile, pst_sprintf("profile %s", profile_path));
    else
        setting_set(to, def, pst_strdup("default"));
}

static char *default_state_dir(void)
{
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (xdg && *xdg == '/')
        return pst_fs_join(xdg, "penstock");
    return pst_sprintf("%s/.local/state/penstock", home && *home ? home : "/tmp");
}

static char *default_config(void)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool absolute = xdg && *xdg == '/'; /* else it is to be ignored, says the XDG specification */
    char *path = absolute ? pst_fs_join(xdg, "penstock/config") : pst_sprintf("%s/.config/penstock/config", home ? home : "");
    if (access(path, R_OK) < 0) {
        free(path);
        return NULL;
    }
    return path;
}

static void resolve_all(pst_settings *s, extras *x, const pst_setting_flags *f)
{
    char *def = default_state_dir(), *profile_path = NULL;
    resolve(&s->state_dir, f->state_dir, &x->state_dir, "PENSTOCK_STATE_DIR", NULL, NULL, def);
    free(def);
    json_t *p = read_profile(s->state_dir.value, &profile_path);
    resolve(&s->bootstrap, f->bootstrap, &x->bootstrap, "PENSTOCK_BOOTSTRAP_SERVERS", pst_json_str(p, "bootstrap", NULL), profile_path,
            "localhost:9092");
    resolve(&s->registry, f->registry, &x->registry, "PENSTOCK_REGISTRY", pst_json_str(p, "registry", NULL), profile_path,
            "http://localhost:8081");
    resolve(&s->gateway, f->gateway, &x->gateway, "PENSTOCK_GATEWAY", pst_json_str(p, "gateway", NULL), profile_path,
            "http://localhost:8080");
    def = pst_sprintf("sqlite:%s/store.db", s->state_dir.value);
    resolve(&s->store, f->store, &x->store, "PENSTOCK_STORE", pst_json_str(p, "store", NULL), profile_path, def);
    free(def);
    def = pst_sprintf("file:%s/objects", s->state_dir.value);
    resolve(&s->objects, f->objects, &x->objects, "PENSTOCK_OBJECTS", pst_json_str(p, "objects", NULL), profile_path, def);
    free(def);
    pst_setting nowhere = {0}; /* no property says it */
    resolve(&s->debug, f->debug, &nowhere, "PENSTOCK_DEBUG", NULL, NULL, "");
    resolve(&s->prefix, f->prefix, &x->prefix, "PENSTOCK_TOPIC_PREFIX", pst_json_str(p, "prefix", NULL), profile_path, "penstock.");
    const char *embedded = getenv("PENSTOCK_EMBEDDED");
    bool from_profile = !strncmp(s->bootstrap.origin, "profile", 7) || !strcmp(pst_json_str(p, "bootstrap", ""), s->bootstrap.value);
    s->embedded = embedded && *embedded ? strcmp(embedded, "0") != 0 : from_profile && pst_json_bool(p, "embedded", false);
    read_secrets(s);
    read_token(s, p);
    json_decref(p);
    free(profile_path);
}

static void extras_done(extras *x)
{
    pst_setting *all[] = {&x->bootstrap, &x->registry, &x->gateway, &x->state_dir, &x->store, &x->objects, &x->prefix};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        setting_done(all[i]);
    free(x->registry_auth);
}

/* Sources are read weakest file first into s (librdkafka's properties) and x (ours); only resolve_all decides which of ours wins. On failure
 * nothing is left in *ret_settings. */
int pst_settings_load(const pst_setting_flags *flags, pst_settings *ret_settings, pst_err *err)
{
    pst_settings s = {0};
    extras x = {0};
    const char *env_file = getenv("PENSTOCK_CONFIG");
    char *def_file = default_config();
    const char *file = env_file && *env_file ? env_file : def_file;
    if (flags->file)
        file = flags->file;
    int rc = file ? read_file(&s, &x, file, err) : 0;
    if (!rc) {
        read_environment(&s, &x);
        rc = read_x(&s, &x, flags, err);
    }
    if (!rc)
        resolve_all(&s, &x, flags);
    if (!rc && x.registry_auth) {
        char *colon = strchr(x.registry_auth, ':');
        if (!colon)
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "basic.auth.user.info: wanted user:password");
        else {
            s.registry_user = pst_strndup(x.registry_auth, (size_t)(colon - x.registry_auth));
            s.registry_password = pst_strdup(colon + 1);
        }
    }
    s.json = flags->json;
    s.quiet = flags->quiet;
    s.no_input = flags->no_input;
    s.verbose = flags->verbose;
    const char *when = flags->color ? flags->color : "auto", *no_color = getenv("NO_COLOR");
    s.color = !strcmp(when, "always") || (!strcmp(when, "auto") && isatty(1) && !(no_color && *no_color));
    extras_done(&x);
    free(def_file);
    if (rc < 0)
        pst_settings_done(&s);
    else
        *ret_settings = s;
    return rc;
}

void pst_settings_done(pst_settings *s)
{
    if (!s)
        return;
    pst_setting *all[] = {&s->bootstrap, &s->registry, &s->gateway, &s->state_dir, &s->store, &s->objects, &s->prefix, &s->debug};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        setting_done(all[i]);
    for (size_t i = 0; i < s->n_kafka; i++) {
        free(s->kafka[i].key);
        free(s->kafka[i].value);
        free(s->kafka[i].origin);
    }
    free(s->kafka);
    free(s->registry_user);
    free(s->registry_password);
    free(s->token);
    memset(s, 0, sizeof *s);
}

static char *env_name_of(const char *key)
{
    pst_buf b = {0};
    pst_buf_adds(&b, "PENSTOCK_X_");
    for (; *key; key++)
        pst_buf_addc(&b, *key == '.' ? '_' : (char)toupper((unsigned char)*key));
    return pst_buf_steal(&b);
}

/* Of PENSTOCK_… only what the settings do not say themselves. */
static bool goes_on(const char *variable)
{
    static const char *const names[] = {"PENSTOCK_DEBUG=", "PENSTOCK_ISA=", "PENSTOCK_ONNXRUNTIME=", "PENSTOCK_TEST", "PENSTOCK_OBJECTS_"};
    if (strncmp(variable, "PENSTOCK_", 9))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(variable, names[i], strlen(names[i])))
            return true;
    return false;
}

char **pst_settings_environ(const pst_settings *s)
{
    size_t n = 0, cap = s->n_kafka + 16;
    for (char **e = environ; *e; e++)
        cap++;
    char **out = pst_alloc(cap * sizeof *out);
    for (char **e = environ; *e; e++)
        if (goes_on(*e))
            out[n++] = pst_strdup(*e);
    const struct {
        const char *name, *value;
    } fixed[] = {{"PENSTOCK_BOOTSTRAP_SERVERS", s->bootstrap.value},  {"PENSTOCK_REGISTRY", pst_setting_full(&s->registry)},
                 {"PENSTOCK_GATEWAY", pst_setting_full(&s->gateway)}, {"PENSTOCK_STATE_DIR", s->state_dir.value},
                 {"PENSTOCK_STORE", pst_setting_full(&s->store)},     {"PENSTOCK_OBJECTS", pst_setting_full(&s->objects)},
                 {"PENSTOCK_TOPIC_PREFIX", s->prefix.value},          {"PENSTOCK_EMBEDDED", s->embedded ? "1" : "0"}};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        out[n++] = pst_sprintf("%s=%s", fixed[i].name, fixed[i].value);
    if (s->registry_user)
        out[n++] = pst_sprintf("PENSTOCK_X_BASIC_AUTH_USER_INFO=%s:%s", s->registry_user, s->registry_password);
    for (size_t i = 0; i < s->n_kafka; i++) {
        bool later = false; /* a stronger source names the same property further on */
        for (size_t j = i + 1; j < s->n_kafka && !later; j++)
            later = !strcmp(s->kafka[i].key, s->kafka[j].key);
        if (later)
            continue;
        char *name = env_name_of(s->kafka[i].key);
        out[n++] = pst_sprintf("%s=%s", name, s->kafka[i].value);
        free(name);
    }
    return out;
}

char *pst_settings_topic(const pst_settings *s, const char *suffix)
{
    return pst_sprintf("%s%s", s->prefix.value, suffix);
}

/* Services and scripts often have no USER; the account has a name all the same, or at least a number. */
static const char *own_account(void)
{
    static _Thread_local char name[64];
    char text[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(geteuid(), &entry, text, sizeof text, &found) == 0 && found && *found->pw_name)
        snprintf(name, sizeof name, "%s", found->pw_name);
    else
        snprintf(name, sizeof name, "uid-%u", (unsigned)geteuid());
    return name;
}

const char *pst_account_name(const char *given)
{
    const char *u = given ? given : getenv("PENSTOCK_USER");
    u = u && *u ? u : getenv("USER");
    return u && *u ? u : own_account();
}
