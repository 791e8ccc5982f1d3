/* settings.h - where things are: broker, registry, gateway, folders, store, objects, prefix, Kafka properties.
 * Precedence: flag, -X, environment, -F file, profile, defaults; each value remembers its origin for `penstock config explain`. */
#ifndef PST_BASE_SETTINGS_H
#define PST_BASE_SETTINGS_H

#include "common/base/err.h"

typedef struct pst_property {
    char *key, *value;
    char *origin; /* "-X", "environment PENSTOCK_X_…", "client.properties:3" */
} pst_property;

typedef struct pst_setting {
    char *value;  /* never NULL after load; without the credentials of an address: it may be shown */
    char *secret; /* the same with its credentials; NULL where there are none */
    char *origin; /* "flag", "environment PENSTOCK_…", "profile …/profile.json", "default", "-F file:line" */
} pst_setting;

typedef struct pst_settings {
    pst_setting bootstrap, registry, gateway, state_dir, store, objects, prefix;
    pst_setting debug;   /* components whose debug lines are said; "": none are named */
    char *token;         /* of the gateway: PENSTOCK_TOKEN, else <state-dir>/token; NULL = none to be had */
    pst_property *kafka; /* in order of rising precedence; passed to pst_bus_conf_set */
    size_t n_kafka;
    char *registry_user, *registry_password; /* from basic.auth.user.info, or NULL */
    bool embedded;                           /* profile or PENSTOCK_EMBEDDED=1: the broker is librdkafka's in-memory cluster */
    bool json, quiet, no_input;
    int verbose;
    bool color; /* stdout may be coloured */
} pst_settings;

/* For pst_opt_parse: the raw flags of one command line (NULL where not given). */
typedef struct pst_setting_flags {
    const char *bootstrap, *registry, *gateway, *state_dir, *store, *objects, *prefix, *file, *debug;
    const char *const *x; /* "k=v" */
    size_t n_x;
    bool json, quiet, no_input;
    int verbose;
    const char *color; /* auto always never */
} pst_setting_flags;

int pst_settings_load(const pst_setting_flags *flags, pst_settings *ret_settings, pst_err *err);
void pst_settings_done(pst_settings *s);
/* What to connect to: the address with its credentials. Not for people, logs or argv. */
const char *pst_setting_full(const pst_setting *s);
/* Gives it another value, whose credentials are kept apart. */
void pst_setting_put(pst_setting *s, const char *value, const char *origin);
/* Environment for a child program that shall see the same settings: "PENSTOCK_REGISTRY=…", NULL-terminated; free each and the array. What was
 * said by the environment alone (debug, instruction set, ONNX Runtime) goes on; a flag -v is for the program that it was given to. */
char **pst_settings_environ(const pst_settings *s);
char *pst_settings_topic(const pst_settings *s, const char *suffix); /* prefix + suffix; free() */

/* The profile that `penstock up` leaves in <state-dir>/profile.json: {"bootstrap","registry","gateway","embedded", …}. */
char *pst_profile_path(const char *state_dir);
/* The credentials of its addresses stand apart, in secrets.json (0600), which is removed where there are none. */
int pst_profile_write(const pst_settings *s, pst_err *err);

/* In whose name a request is made: what is given, else PENSTOCK_USER, else USER, else the account that runs us (getpwuid). Borrowed. */
const char *pst_account_name(const char *given);

#endif
