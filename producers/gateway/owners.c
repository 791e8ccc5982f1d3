/* owners.c - a map that is emptied when it is full: what is forgotten is asked of the store again. An id that the store does not know is asked for five
 * times a second at most, so that the log lines of a job that was deleted do not become so many look-ups. */
#include "producers/gateway/owners.h"

#include "common/base/clock.h"
#include "common/base/map.h"
#include "schemas/task_array.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

enum { OWNERS_MAX = 100000, AGAIN_US = 200000 };

typedef struct owner {
    int64_t asked_us; /* of one that is not known */
    char name[];      /* "" = not known */
} owner;

struct gw_owners {
    gw_state *g;
    pst_map known;
};

gw_owners *gw_owners_new(gw_state *g)
{
    gw_owners *o = pst_alloc(sizeof *o);
    o->g = g;
    return o;
}

void gw_owners_free(gw_owners *o)
{
    if (!o)
        return;
    pst_map_done(&o->known, free);
    free(o);
}

static const owner *put(gw_owners *o, const char *training_id, const char *user)
{
    size_t n = strlen(user);
    if (o->known.live >= OWNERS_MAX) {
        pst_map_done(&o->known, free);
        memset(&o->known, 0, sizeof o->known);
    }
    owner *one = pst_alloc(sizeof *one + n + 1);
    one->asked_us = pst_mono_us();
    memcpy(one->name, user, n + 1);
    free(pst_map_put(&o->known, training_id, one));
    return one;
}

void gw_owners_learn(gw_owners *o, const char *training_id, const char *user)
{
    const owner *one = pst_map_get(&o->known, training_id);
    if (!one || strcmp(one->name, user) != 0)
        put(o, training_id, user);
}

/* A task is its array's owner's, whose first event comes before any of the task's: the store has the task's state only later. */
static const owner *of_array(gw_owners *o, const char *training_id)
{
    const owner *one = NULL;
    if (strlen(training_id) >= PST_TASK_ID_LEN || pst_task_index(training_id) < 0)
        return NULL;
    char *array = pst_strndup(training_id, (size_t)(strrchr(training_id, '-') - training_id));
    const char *name = gw_owners_of(o, array);
    char *user = name ? pst_strdup(name) : NULL; /* what is put may empty the map */
    if (user)
        one = put(o, training_id, user);
    free(user);
    free(array);
    return one;
}

const char *gw_owners_of(gw_owners *o, const char *training_id)
{
    pst_err err = {0};
    json_t *doc = NULL;
    const owner *one = pst_map_get(&o->known, training_id);
    const owner *arrays = one && *one->name ? NULL : of_array(o, training_id);
    if (arrays)
        return arrays->name;
    one = pst_map_get(&o->known, training_id); /* as above */
    if (!one || (!*one->name && one->asked_us + AGAIN_US < pst_mono_us())) {
        pst_store *s = gw_store_lock(o->g, &err);
        if (s)
            pst_store_get(s, "jobs", training_id, &doc, &err);
        gw_store_unlock(o->g);
        one = put(o, training_id, pst_json_str(doc, "user", ""));
        json_decref(doc);
    }
    return *one->name ? one->name : NULL;
}

char *gw_owner_of_record(const char *kind, const json_t *record)
{
    char id[64];
    const char *user = pst_json_str(record, "user", ""), *actor = pst_json_str(record, "actor", ""),
               *request = pst_json_str(record, "request_id", "");
    if (!strcmp(kind, "state")) /* UNKNOWN: a request came before its job; the user is who asked */
        return *user && strcmp(pst_json_str(record, "state", "UNKNOWN"), "UNKNOWN") != 0 ? pst_strdup(user) : NULL;
    if (strcmp(kind, "event") != 0 || strncmp(actor, "user:", 5) != 0 || !*request)
        return NULL;
    pst_training_id(actor + 5, request, id);
    return strcmp(id, pst_json_str(record, "training_id", "")) ? NULL : pst_strdup(actor + 5);
}
