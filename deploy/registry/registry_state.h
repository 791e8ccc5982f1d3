/* registry_state.h - what a registry remembers: the fold of the `_schemas` topic, whose records have Confluent's form. No I/O, one owner.
 * Ids mean a schema within a context (":.ctx:subject"; almost everyone uses the default one, "."). */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_STATE_H
#define PST_DEPLOY_REGISTRY_REGISTRY_STATE_H

#include "common/base/json.h"
#include "common/base/map.h"
#include "schemas/avro.h"

typedef struct rschema {
    int32_t id;
    char *text, *type;  /* "AVRO"; others are kept and served when an older registry wrote them */
    char *canon;        /* registry_canon.h; the text itself when it is not Avro */
    json_t *references; /* NULL = none */
    pst_schema *avro;   /* parsed at first need */
    bool avro_tried;
    size_t uses; /* versions that have it, deleted ones included */
} rschema;

typedef struct rversion {
    int version;
    rschema *schema;
    bool deleted;
} rversion;

typedef struct rcontext {
    char *name;
    pst_map by_id, by_canon; /* → rschema */
    int32_t id_max;          /* highest ever seen */
} rcontext;

typedef struct rsubject {
    char *name;
    rcontext *context;
    rversion *versions; /* ascending */
    size_t n;
    int version_max;    /* highest ever seen */
    char *level, *mode; /* NULL = the global one */
} rsubject;

typedef struct rstate {
    pst_map subjects, contexts;
    char *level, *mode; /* global; NULL = BACKWARD, READWRITE */
} rstate;

void rstate_clear(rstate *s);
/* One record of the topic. PST_EPARSE/DATA for what cannot be understood: skip it, say so, go on. Unknown key types are fine. */
int rstate_apply(rstate *s, const void *key, size_t key_len, const void *value, size_t value_len, pst_err *err);

rsubject *rstate_subject(const rstate *s, const char *name);    /* NULL: nothing is known of it */
rcontext *rstate_context(const rstate *s, const char *subject); /* of a subject's name; NULL when nothing is in it */
rschema *rcontext_by_id(const rcontext *c, int32_t id);
rversion *rsubject_version(const rsubject *s, int version);         /* deleted ones too */
rversion *rsubject_latest(const rsubject *s, bool deleted);         /* live ones only, unless deleted */
size_t rsubject_count(const rsubject *s, bool deleted);             /* NULL-safe */
const char *rstate_level(const rstate *s, const rsubject *subject); /* effective */
const char *rstate_mode(const rstate *s, const rsubject *subject);
const pst_schema *rschema_avro(rschema *s); /* NULL: not Avro, or beyond our parser */
bool registry_level_ok(const char *level);
bool registry_mode_ok(const char *mode);
/* ":.:s" is "s". Result borrowed from name. */
const char *registry_subject_plain(const char *name);

#endif
