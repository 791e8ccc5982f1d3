/* launcher_kubernetes.c - processes as pods of a cluster (kube_pod.h says what one is). Requests only note what is wanted; each poll() takes what the API
 * server said and then, for every process, does the next step from what is wanted and what is there:
 *
 *     wanted, no pod          POST the pod; a gang's all, or none: one that is refused takes the others back, and all are tried again later
 *     wanted, one that is over  DELETE it first: only its output is still to be published
 *     a pod that waits        its secret; a sentence about what it waits for
 *     to stop                 DELETE with the job's grace time; the kubelet's SIGTERM finds stop.json in the shared folder
 *     to be ended             DELETE with a second of grace; GONE once the pod is over or not there
 *     over, and told          DELETE: nobody needs it any more
 *
 * Steps are repeated whenever an answer is missing, so a crash between any two, of us or of the API server, changes nothing but the time it takes. What is
 * there is known by the watch (`pods`); a pod that a list leaves out is asked for by its name before it counts as gone, since the list may be
 * older than the answer that told of it. A pod is never deleted without its uid, and never without grace: what the API server forgets at once
 * may go on running on a node that does not answer, and that a person may say only. */
#include "lcm/kubernetes/kube_api.h"
#include "lcm/kubernetes/kube_capacity.h"
#include "lcm/kubernetes/kube_run.h"
#include "lcm/kubernetes/kube_status.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGAIN_US     500000
#define AGAIN_MAX_US 30000000
#define SAY_AGAIN_US 10000000 /* of a sentence that changes in its numbers only */
#define SWEEP_US     10000000
#define SETTLED_US   30000000 /* by then everything that lives was adopted */
#define KILL_GRACE_S 1

typedef enum { STEP_NONE, STEP_CREATE, STEP_LOOK, STEP_SECRET, STEP_DELETE } step;

/* What was asked for together: all or none of it is created. */
typedef struct gang {
    char *key;
    bool back;        /* one was refused: those that are there go, then all are tried again */
    int64_t retry_us; /* not before */
    int refusals;
} gang;

typedef struct item {
    int64_t number; /* of its requests */
    pst_process_id id;
    char name[KUBE_NAME_MAX];
    gang *gang;    /* while it is being created; borrowed */
    bool adopting; /* FOUND is owed */
    bool wanted;   /* a pod is to be made of it */
    bool made;     /* and is: from then on an end of it is an end of the process */
    bool lives;    /* its end is owed */
    bool stop;     /* it is to end in its grace time */
    bool kill, force;
    bool drop;        /* nobody asks for it any more: its pod goes, then it does */
    bool orphan;      /* nothing on disk is of it */
    bool secret;      /* is there */
    step asked;       /* and not answered yet */
    int asked_delete; /* grace of the last DELETE + 1, of this uid; 0 = none */
    char deleted_uid[64];
    int64_t retry_us;
    int failures;
    char said[480];
    int64_t said_us;
    char why[480], code[8]; /* how its last pod ended */
} item;

typedef struct kube {
    char *state_dir;
    const char *const *settings;
    const kube_opts *opts;
    kube_access *access;
    kube_api *api;
    kube_pod_conf conf;
    char folder_id[33];
    pst_inventory inventory;
    pst_map pods;   /* name → kube_pod: those that there are */
    pst_map items;  /* name → item */
    pst_map gangs;  /* key → gang */
    pst_map doubts; /* name → nothing: left out by a list, to be asked for */
    bool listed;
    int64_t numbers, sweep_us, opened_us;
    pst_launcher_news *news;
    size_t n_news, cap_news;
} kube;

static char there; /* what a set of names holds */

/* ---- small things --------------------------------------------------------------------------------------------------------------------- */

static pst_launcher_news *add_news(kube *k, pst_launcher_news_type type, const item *i)
{
    k->news = pst_array_room(k->news, k->n_news, &k->cap_news, sizeof *k->news);
    pst_launcher_news *news = &k->news[k->n_news++];
    *news = (pst_launcher_news){.type = type, .process = i->id};
    return news;
}

static kube_pod *pod_of(const kube *k, const item *i)
{
    return pst_map_get(&k->pods, i->name);
}

/* It is certain that there is none: everything was listed, and neither a doubt nor a creation is open. */
static bool is_absent(const kube *k, const item *i)
{
    return k->listed && !pod_of(k, i) && i->asked != STEP_CREATE && !pst_map_get(&k->doubts, i->name);
}

static bool pod_lives(const kube_pod *p)
{
    return p && p->phase != KUBE_POD_OVER;
}

static item *item_of(kube *k, const pst_process_id *id, bool make)
{
    char name[KUBE_NAME_MAX];
    kube_pod_name(id, name);
    item *i = pst_map_get(&k->items, name);
    if (i || !make)
        return i;
    i = pst_alloc(sizeof *i);
    i->number = ++k->numbers;
    i->id = *id;
    memcpy(i->name, name, sizeof name);
    pst_map_put(&k->items, name, i);
    return i;
}

static gang *gang_of(kube *k, const pst_process_id *id)
{
    char *key = pst_sprintf("%s/%d", id->training_id, id->generation);
    gang *g = pst_map_get(&k->gangs, key);
    if (!g) {
        g = pst_alloc(sizeof *g);
        g->key = pst_strdup(key);
        pst_map_put(&k->gangs, key, g);
    }
    free(key);
    return g;
}

static void gang_free(void *p)
{
    gang *g = p;
    if (g)
        free(g->key);
    free(g);
}

static void gang_leave(kube *k, item *i)
{
    gang *g = i->gang;
    i->gang = NULL;
    for (size_t n = 0; n < k->items.n && g; n++) {
        const item *other = k->items.at[n].key ? k->items.at[n].value : NULL;
        if (other && other->gang == g)
            return;
    }
    if (g)
        gang_free(pst_map_take(&k->gangs, g->key));
}

/* Said once, and again when it is another sentence; one whose numbers alone change, now and then. */
static void say(kube *k, item *i, const char *code, const char *why)
{
    int64_t now = pst_mono_us();
    if (!*why || !strcmp(i->said, why) || (*i->said && !strncmp(i->said, why, 60) && now - i->said_us < SAY_AGAIN_US))
        return;
    snprintf(i->said, sizeof i->said, "%s", why);
    i->said_us = now;
    pst_launcher_news *news = add_news(k, PST_LAUNCHER_WAITS, i);
    snprintf(news->why, sizeof news->why, "%s", why);
    snprintf(news->exit.reason_code, sizeof news->exit.reason_code, "%s", code);
}

static bool has_ended(const kube *k, const item *i)
{
    return kube_run_ended(k->state_dir, &i->id);
}

static void observe(const kube *k, const item *i, bool lives, pst_launcher_news *news)
{
    kube_run_observe(k->state_dir, &i->id, lives, pod_of(k, i), news);
}

static void later(item *i, int wait_s)
{
    int64_t us = AGAIN_US << (i->failures < 7 ? i->failures : 7);
    i->failures++;
    us = us < AGAIN_MAX_US ? us : AGAIN_MAX_US;
    i->retry_us = pst_mono_us() + (wait_s ? (int64_t)wait_s * 1000000 : us);
}

/* ---- requests to the API server ---------------------------------------------------------------------------------------------------------- */

static void ask(kube *k, item *i, step s, const char *method, char *take_path, json_t *take_body)
{
    i->asked = s;
    kube_api_ask(k->api, i->number, method, take_path, take_body);
    free(take_path);
}

static char *pod_path(const kube *k, const char *name)
{
    return pst_sprintf("/api/v1/namespaces/%s/pods%s%s", k->conf.namespace_, name ? "/" : "", name ? name : "");
}

static void nonce_digest(const kube *k, const pst_process_id *id, char ret_nonce[PST_RUNDIR_NONCE_MAX], char ret_hex[65])
{
    pst_rundir_nonce_read(k->state_dir, id->training_id, id->generation, ret_nonce);
    pst_sha256_hex(ret_nonce, strlen(ret_nonce), ret_hex);
}

static void not_created(kube *k, item *i, const char *why)
{
    snprintf(add_news(k, PST_LAUNCHER_NOT_CREATED, i)->why, sizeof k->news->why, "%s", why);
    i->wanted = i->lives = i->made = false;
    i->drop = true;
}

static void post_pod(kube *k, item *i)
{
    char *dir = pst_rundir_dir(k->state_dir, &i->id), nonce[PST_RUNDIR_NONCE_MAX], hex[65], digits[9], secret[KUBE_SECRET_MAX];
    unsigned random;
    pst_rundir_spec spec = {0};
    pst_manifest m = {0};
    pst_complaints errors = {0}, warnings = {0};
    pst_err err = {0};
    json_t *pod = NULL;
    nonce_digest(k, &i->id, nonce, hex);
    pst_random(&random, sizeof random);
    snprintf(digits, sizeof digits, "%08x", random);
    snprintf(secret, sizeof secret, "%s-%s", i->name, digits);
    int rc = pst_rundir_spec_read(dir, &spec, &err);
    if (!rc) {
        pst_manifest_parse(spec.manifest, strlen(spec.manifest), &m, &errors, &warnings); /* the Trainer has admitted it */
        rc = kube_pod_json(
            &k->conf,
            &(kube_pod_of){
                .id = &i->id, .manifest = &m, .nonce_sha256 = hex, .secret = secret, .gpus = spec.gpus, .grace_ms = spec.grace_ms},
            &pod, &err);
        pst_manifest_done(&m);
    }
    if (!rc)
        ask(k, i, STEP_CREATE, "POST", pod_path(k, NULL), pod);
    else
        not_created(k, i, err.text);
    explicit_bzero(nonce, sizeof nonce);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    pst_rundir_spec_done(&spec);
    free(dir);
}

static void post_secret(kube *k, item *i, const kube_pod *p)
{
    char nonce[PST_RUNDIR_NONCE_MAX], hex[65];
    nonce_digest(k, &i->id, nonce, hex);
    json_t *secret = kube_secret_json(&k->conf, &i->id, p->secret, p->uid, k->settings, nonce);
    explicit_bzero(nonce, sizeof nonce);
    ask(k, i, STEP_SECRET, "POST", pst_sprintf("/api/v1/namespaces/%s/secrets", k->conf.namespace_), secret);
}

/* Once for each grace time and pod; the watch tells what comes of it. */
static void delete_pod(kube *k, item *i, const kube_pod *p, int grace_s)
{
    bool same = !strcmp(i->deleted_uid, p->uid);
    if (same && i->asked_delete && i->asked_delete - 1 <= grace_s)
        return;
    snprintf(i->deleted_uid, sizeof i->deleted_uid, "%s", p->uid);
    i->asked_delete = grace_s + 1;
    ask(k, i, STEP_DELETE, "DELETE", pod_path(k, i->name),
        json_pack("{s:s, s:s, s:i, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "DeleteOptions", "gracePeriodSeconds", grace_s,
                  "propagationPolicy", "Background", "preconditions", "uid", p->uid));
}

static void look(kube *k, item *i)
{
    ask(k, i, STEP_LOOK, "GET", pod_path(k, i->name), NULL);
}

/* ---- what the API server says ------------------------------------------------------------------------------------------------------------- */

static void pod_gone(kube *k, const char *name)
{
    kube_pod *p = pst_map_take(&k->pods, name);
    item *i = pst_map_get(&k->items, name);
    if (p && i && *p->why) {
        snprintf(i->why, sizeof i->why, "%s", p->why);
        snprintf(i->code, sizeof i->code, "%s", p->code);
    }
    free(p);
    pst_map_take(&k->doubts, name);
}

/* An older word about a pod that is over, or of one before it, changes nothing: only what the API server deletes comes again. */
static void pod_seen(kube *k, const json_t *pod)
{
    kube_pod now, *known;
    if (!kube_pod_read(pod, &now))
        return;
    pst_map_take(&k->doubts, now.name);
    known = pst_map_get(&k->pods, now.name);
    if (known && !strcmp(known->uid, now.uid) && known->phase > now.phase)
        return;
    if (!known) {
        known = pst_alloc(sizeof *known);
        pst_map_put(&k->pods, now.name, known);
    }
    *known = now;
}

static void listed(kube *k, const json_t *pods)
{
    pst_map names = {0};
    size_t n;
    json_t *pod;
    json_array_foreach(pods, n, pod)
    {
        pod_seen(k, pod);
        pst_map_put(&names, pst_json_str(json_object_get(pod, "metadata"), "name", ""), &there);
    }
    for (n = 0; n < k->pods.n; n++) {
        const char *name = k->pods.at[n].key;
        if (!name || pst_map_get(&names, name))
            continue;
        if (pst_map_get(&k->items, name)) /* perhaps it was made after the list */
            pst_map_put(&k->doubts, name, &there);
        else
            pod_gone(k, name);
    }
    pst_map_done(&names, NULL);
    if (!k->listed)
        pst_log(PST_LOG_INFO, "lcm", "event=pods_listed server=%s namespace=%s pods=%zu", k->access->server, k->conf.namespace_,
                json_array_size(pods));
    k->listed = true;
}

static void deleted(kube *k, const json_t *pod)
{
    kube_pod now;
    if (!kube_pod_read(pod, &now))
        return;
    const kube_pod *known = pst_map_get(&k->pods, now.name);
    if (known && strcmp(known->uid, now.uid) != 0) /* of its predecessor */
        return;
    if (now.phase == KUBE_POD_OVER)
        pod_seen(k, pod);                                         /* why it ended */
    else if (!now.deleting && pst_map_get(&k->items, now.name)) { /* perhaps it only lost its label: that too is told as its end */
        pst_map_put(&k->doubts, now.name, &there);
        return;
    }
    pod_gone(k, now.name);
}

static bool is_ours(const kube *k, const item *i, const kube_pod *p)
{
    char nonce[PST_RUNDIR_NONCE_MAX], hex[65];
    nonce_digest(k, &i->id, nonce, hex);
    explicit_bzero(nonce, sizeof nonce);
    return pst_process_id_same(&p->id, &i->id) && !strcmp(p->nonce_sha256, hex);
}

/* Refused for now: the whole gang goes back, and tries again. */
static void refused(kube *k, item *i, const kube_heard *h, bool taken_back)
{
    char text[400], why[480];
    gang *g = i->gang;
    if (h->status)
        kube_refusal(h->status, h->json, text, sizeof text);
    else
        snprintf(text, sizeof text, "%s", h->why);
    snprintf(why, sizeof why, "its pod cannot be created: %s; it is tried again", text);
    bool room = h->status == 403 && strstr(text, "quota");
    say(k, i, room ? "S100" : "S200", why);
    later(i, h->wait_s);
    if (!h->status) /* it may have come to be all the same */
        pst_map_put(&k->doubts, i->name, &there);
    if (!taken_back || !g)
        return;
    int64_t us = AGAIN_US << (g->refusals < 6 ? g->refusals : 6);
    g->refusals++;
    g->back = true;
    g->retry_us = pst_mono_us() + (us < AGAIN_MAX_US ? us : AGAIN_MAX_US);
}

/* Refused for good: none of its gang can be. */
static void invalid(kube *k, item *i, const kube_heard *h)
{
    char text[400];
    gang *g = i->gang;
    kube_refusal(h->status, h->json, text, sizeof text);
    for (size_t n = 0; n < k->items.n; n++) {
        item *other = k->items.at[n].key ? k->items.at[n].value : NULL;
        if (!other || (other != i && (!g || other->gang != g)))
            continue;
        not_created(k, other, text);
        other->gang = NULL;
    }
    if (g)
        gang_free(pst_map_take(&k->gangs, g->key));
}

static void created(kube *k, item *i, const kube_heard *h)
{
    const char *reason = pst_json_str(h->json, "reason", "");
    if (h->status == 200 || h->status == 201 || h->status == 202) {
        if (!pod_of(k, i)) /* the watch may have been quicker, and then knows more */
            pod_seen(k, h->json);
        i->failures = 0;
        i->made = true;
        i->secret = false;
    } else if (h->status == 409 && !strcmp(reason, "AlreadyExists")) {
        look(k, i);                /* whose is it? */
    } else if (h->status == 409) { /* the quota was being counted */
        later(i, 0);
    } else if (h->status == 400 || h->status == 422) {
        invalid(k, i, h);
    } else {
        refused(k, i, h, h->status == 403);
    }
}

static void looked(kube *k, item *i, const kube_heard *h)
{
    if (h->status == 404) {
        pod_gone(k, i->name);
    } else if (h->status == 200) {
        kube_pod p = {0};
        bool ours = kube_pod_read(h->json, &p) && is_ours(k, i, &p);
        if (ours) {
            pod_seen(k, h->json);
            i->made = i->made || (i->wanted && !p.deleting);
        } else if (i->wanted)
            not_created(k, i, "a pod of its name is there, and is not of this generation: somebody else made it");
        pst_map_take(&k->doubts, i->name);
        i->failures = 0;
    } else {
        later(i, h->wait_s);
    }
}

static void answered(kube *k, item *i, const kube_heard *h)
{
    step s = i->asked;
    char text[400];
    i->asked = STEP_NONE;
    switch (s) {
    case STEP_CREATE: created(k, i, h); break;
    case STEP_LOOK: looked(k, i, h); break;
    case STEP_SECRET:
        i->secret =
            h->status == 201 || h->status == 200 ||
            (h->status == 409 && !strcmp(pst_json_str(h->json, "reason", ""), "AlreadyExists")); /* else: a quota is being counted */
        if (i->secret)
            break;
        kube_refusal(h->status, h->json, text, sizeof text);
        if (h->status) {
            char *why = pst_sprintf("its secret cannot be created: %s; it is tried again", text);
            say(k, i, "S200", why);
            free(why);
        }
        later(i, h->wait_s);
        break;
    case STEP_DELETE:
        if (h->status == 404)
            pod_gone(k, i->name);
        else if (h->status != 200 && h->status != 202)
            i->asked_delete = 0;
        if (h->status == 409) /* another pod has that name by now */
            look(k, i);
        else if (!i->asked_delete)
            later(i, h->wait_s);
        break;
    default: break;
    }
}

static item *item_by_number(const kube *k, int64_t number)
{
    for (size_t n = 0; n < k->items.n; n++) {
        item *i = k->items.at[n].key ? k->items.at[n].value : NULL;
        if (i && i->number == number)
            return i;
    }
    return NULL;
}

static void hear(kube *k)
{
    kube_heard h;
    while (memset(&h, 0, sizeof h), kube_api_hear(k->api, &h)) {
        item *i = h.type == KUBE_ANSWERED ? item_by_number(k, h.of) : NULL;
        switch (h.type) {
        case KUBE_ANSWERED:
            if (i)
                answered(k, i, &h);
            break;
        case KUBE_LISTED: listed(k, h.json); break;
        case KUBE_CHANGED: pod_seen(k, h.json); break;
        case KUBE_DELETED: deleted(k, h.json); break;
        case KUBE_UNREACHABLE: pst_log(PST_LOG_WARN, "lcm", "event=watch_down reason=\"%s\"", h.why); break;
        }
        json_decref(h.json);
    }
}

/* ---- steps --------------------------------------------------------------------------------------------------------------------------------- */

static void tell_end(kube *k, item *i)
{
    pst_launcher_news *news = add_news(k, PST_LAUNCHER_CHANGED, i);
    observe(k, i, false, news);
    if (news->seen == PST_LCM_SEEN_ABSENT)
        news->seen = PST_LCM_SEEN_VANISHED;
    i->lives = i->stop = false;
    i->drop = news->seen == PST_LCM_SEEN_ENDED;
}

/* The LCM asked for the end, and nothing is left but what the run directory tells. */
static void tell_gone(kube *k, item *i, const kube_pod *p)
{
    bool ended = has_ended(k, i);
    pst_launcher_news *news = add_news(k, ended ? PST_LAUNCHER_CHANGED : PST_LAUNCHER_GONE, i);
    char *dir = pst_rundir_dir(k->state_dir, &i->id);
    news->published = !pst_rundir_has_spool(dir);
    if (ended)
        observe(k, i, false, news);
    const char *why = p ? p->why : i->why;
    if (!ended && *why) {
        snprintf(news->why, sizeof news->why, "%s", why);
        snprintf(news->exit.reason_code, sizeof news->exit.reason_code, "%s", p ? p->code : i->code);
    } else if (!ended && !p && !i->asked_delete) {
        snprintf(news->why, sizeof news->why, "pod %s is not there any more: it was deleted, and not by its LCM", i->name);
    }
    free(dir);
    i->kill = i->lives = i->stop = i->wanted = false;
    i->drop = true;
}

static void step_adopt(kube *k, item *i)
{
    const kube_pod *p = pod_of(k, i);
    if (!k->listed || pst_map_get(&k->doubts, i->name))
        return;
    bool lives = pod_lives(p) && is_ours(k, i, p);
    pst_launcher_news *news = add_news(k, PST_LAUNCHER_FOUND, i);
    observe(k, i, lives, news);
    kube_run_devices(k->state_dir, &i->id, k->inventory.n_devices, &news->devices);
    i->adopting = false;
    i->lives = lives;
    i->drop = !lives && news->seen != PST_LCM_SEEN_VANISHED;
    if (p && !lives) {
        snprintf(i->why, sizeof i->why, "%s", p->why);
        snprintf(i->code, sizeof i->code, "%s", p->code);
    }
}

static void step_kill(kube *k, item *i)
{
    const kube_pod *p = pod_of(k, i);
    i->wanted = false;
    gang_leave(k, i);
    if (pod_lives(p) && !is_ours(k, i, p)) /* a stranger's, of the same name */
        p = NULL;
    if (!pod_lives(p)) {
        if (p || pod_of(k, i) || is_absent(k, i))
            tell_gone(k, i, p);
        return;
    }
    if (!i->force && has_ended(k, i)) {
        i->kill = false;
        add_news(k, PST_LAUNCHER_CHANGED, i)->seen = PST_LCM_SEEN_FLUSHING;
        return;
    }
    delete_pod(k, i, p, KILL_GRACE_S);
}

/* A pod of this gang that came too early goes again. None of its processes has begun its command: that waits for all of them. */
static void step_back(kube *k, item *i)
{
    const kube_pod *p = pod_of(k, i);
    if (p)
        delete_pod(k, i, p, KILL_GRACE_S);
}

static void step_create(kube *k, item *i)
{
    const kube_pod *p = pod_of(k, i);
    if (i->made) { /* with its gang it begins to count: settle_gangs() */
        i->wanted = i->gang;
        i->lives = !i->gang;
    } else if (p && p->phase == KUBE_POD_OVER) { /* the one before it */
        delete_pod(k, i, p, 0);
    } else if (p && !p->deleting) {
        i->made = is_ours(k, i, p);
        if (!i->made)
            look(k, i);
    } else if (!p && is_absent(k, i) && (!i->gang || pst_mono_us() >= i->gang->retry_us)) {
        post_pod(k, i);
    }
}

/* Before any of them counts as begun, all of them are there. */
static bool gang_is_there(const kube *k, const gang *g)
{
    for (size_t n = 0; n < k->items.n; n++) {
        const item *i = k->items.at[n].key ? k->items.at[n].value : NULL;
        if (i && i->gang == g && !i->made)
            return false;
    }
    return true;
}

static bool gang_is_away(const kube *k, const gang *g)
{
    for (size_t n = 0; n < k->items.n; n++) {
        const item *i = k->items.at[n].key ? k->items.at[n].value : NULL;
        if (i && i->gang == g && !is_absent(k, i))
            return false;
    }
    return true;
}

static void step_pod(kube *k, item *i, const kube_pod *p)
{
    if (i->stop && pod_lives(p)) {
        char *dir = pst_rundir_dir(k->state_dir, &i->id);
        pst_rundir_spec spec = {0};
        int grace_ms = pst_rundir_spec_read(dir, &spec, NULL) == 0 ? spec.grace_ms : 10000;
        pst_rundir_spec_done(&spec);
        free(dir);
        delete_pod(k, i, p, grace_ms / 1000 + 15);
    } else if (p->phase == KUBE_POD_WAITS && !p->deleting && !i->secret && *p->secret) {
        post_secret(k, i, p);
    } else if (p->phase == KUBE_POD_WAITS && *p->why) {
        say(k, i, p->code, p->why);
    }
}

/* One step at a time: the next follows the answer. */
static void advance(kube *k, item *i)
{
    const kube_pod *p = pod_of(k, i);
    if (i->adopting) {
        step_adopt(k, i);
        return;
    }
    if (i->asked != STEP_NONE || pst_mono_us() < i->retry_us)
        return;
    if (pst_map_get(&k->doubts, i->name)) {
        look(k, i);
    } else if (i->kill) {
        step_kill(k, i);
    } else if (i->gang && i->gang->back) {
        step_back(k, i);
    } else if (i->wanted && i->stop) {
        i->wanted = false;
        i->lives = true;
        gang_leave(k, i);
        if (!i->made)
            snprintf(i->why, sizeof i->why, "stopped before its pod was created");
    } else if (i->wanted) {
        step_create(k, i);
    } else if (i->lives && !pod_lives(p) && (p || is_absent(k, i))) {
        tell_end(k, i);
    } else if (i->drop && p) {
        if (p->phase == KUBE_POD_OVER || i->orphan || is_ours(k, i, p))
            delete_pod(k, i, p, p->phase == KUBE_POD_OVER ? 0 : KILL_GRACE_S);
    } else if (p) {
        step_pod(k, i, p);
    }
}

/* Gangs that are complete are single processes from then on; of those that went back all are absent before any comes again. */
static void settle_gangs(kube *k)
{
    for (size_t n = 0; n < k->gangs.n; n++) {
        gang *g = k->gangs.at[n].key ? k->gangs.at[n].value : NULL;
        if (g && g->back && gang_is_away(k, g)) {
            g->back = false;
            for (size_t m = 0; m < k->items.n; m++) {
                item *i = k->items.at[m].key ? k->items.at[m].value : NULL;
                if (i && i->gang == g) {
                    i->wanted = true;
                    i->made = i->lives = false;
                }
            }
        }
        if (!g || g->back || !gang_is_there(k, g))
            continue;
        for (size_t m = 0; m < k->items.n; m++) {
            item *i = k->items.at[m].key ? k->items.at[m].value : NULL;
            if (i && i->gang == g) {
                i->gang = NULL;
                i->wanted = false;
                i->lives = true;
            }
        }
        gang_free(pst_map_take(&k->gangs, g->key));
    }
}

/* Nothing is to be done for it, and nothing of it is there. */
static bool is_done(const kube *k, const item *i)
{
    return i->drop && !i->adopting && !i->wanted && !i->lives && !i->kill && i->asked == STEP_NONE && is_absent(k, i);
}

/* Pods made from this very state folder that nobody here knows: of a job whose folders are gone, or ended and told before an end of ours. The node's
 * label alone says too little: an LCM of another folder may have that name too, and its intents are not here. */
static void sweep(kube *k)
{
    int64_t now = pst_mono_us();
    if (!k->listed || now < k->sweep_us || now - k->opened_us < SETTLED_US)
        return;
    k->sweep_us = now + SWEEP_US;
    for (size_t n = 0; n < k->pods.n; n++) {
        const kube_pod *p = k->pods.at[n].key ? k->pods.at[n].value : NULL;
        char name[KUBE_NAME_MAX];
        if (!p || pst_map_get(&k->items, p->name) || strcmp(p->folder_id, k->folder_id) != 0)
            continue;
        kube_pod_name(&p->id, name);
        char *dir = pst_rundir_gen_dir(k->state_dir, p->id.training_id, p->id.generation), *intent = pst_fs_join(dir, "intent.json");
        if (!strcmp(name, p->name) && (p->phase == KUBE_POD_OVER || !pst_fs_exists(intent))) {
            pst_log(PST_LOG_WARN, "lcm", "event=orphan_deleted pod=%s training_id=%s", p->name, p->id.training_id);
            item *i = item_of(k, &p->id, true);
            i->drop = i->orphan = true;
        }
        free(intent);
        free(dir);
    }
}

/* ---- the launcher -------------------------------------------------------------------------------------------------------------------------- */

static void kube_close(void *launcher)
{
    kube *k = launcher;
    if (!k)
        return;
    kube_api_close(k->api);
    kube_access_close(k->access);
    pst_map_done(&k->pods, free);
    pst_map_done(&k->items, free);
    pst_map_done(&k->gangs, gang_free);
    pst_map_done(&k->doubts, NULL);
    free(k->inventory.devices);
    free(k->news);
    free(k->state_dir);
    free(k);
}

/* In the order in which an error is nearest to its cause: who we are, whose pods are ours, what the cluster has, and only then the watch, which needs all three. */
static int kube_open(const pst_launcher_conf *conf, void **ret_launcher, pst_err *err)
{
    kube *k = pst_alloc(sizeof *k);
    char node[64], *path = NULL;
    k->state_dir = pst_strdup(conf->state_dir);
    k->settings = conf->environ;
    k->opts = conf->kubernetes;
    k->opened_us = pst_mono_us();
    PST_ASSERT(k->opts);
    int rc = kube_access_open(k->opts, k->state_dir, &k->access, err);
    if (!rc)
        rc = kube_run_folder_id(k->state_dir, conf->site, k->folder_id, err);
    if (!rc)
        rc = kube_capacity(k->opts, k->access, &k->inventory, err);
    if (!rc) {
        k->conf = (kube_pod_conf){.opts = k->opts,
                                  .namespace_ = k->access->namespace_,
                                  .site = conf->site,
                                  .node = conf->node,
                                  .state_dir = k->state_dir,
                                  .folder_id = k->folder_id,
                                  .objects = kube_run_folder(conf->objects),
                                  .uid = geteuid(),
                                  .gid = getegid()};
        kube_label(conf->node, node);
        path = pst_sprintf("/api/v1/namespaces/%s/pods?labelSelector=penstock%%2Fnode%%3D%s", k->conf.namespace_, node);
        rc = kube_api_open(k->access, path, &k->api, err);
    }
    free(path);
    if (rc < 0) {
        kube_close(k);
        return rc;
    }
    *ret_launcher = k;
    return 0;
}

static const pst_inventory *kube_inventory(void *launcher)
{
    kube *k = launcher;
    return &k->inventory;
}

static void kube_adopt(void *launcher, const pst_process_id *id)
{
    item_of(launcher, id, true)->adopting = true;
}

/* Of a gang that an LCM was creating when it ended, those that are there belong to it again, as long as they have not met: they may have to go back. */
static void join_gang(kube *k, const item *i)
{
    char *dir = pst_rundir_gen_dir(k->state_dir, i->id.training_id, i->id.generation), *members = pst_fs_join(dir, "members.json");
    bool met = pst_fs_exists(members);
    for (size_t n = 0; n < k->items.n && !met; n++) {
        item *other = k->items.at[n].key ? k->items.at[n].value : NULL;
        if (!other || other->gang || !other->lives || other->stop || other->kill || other->id.generation != i->id.generation ||
            strcmp(other->id.training_id, i->id.training_id) != 0 || has_ended(k, other))
            continue;
        other->gang = i->gang;
        other->wanted = other->made = true;
        other->lives = false;
    }
    free(members);
    free(dir);
}

/* What ended is not begun again: its supervisor finds exit.json there and only publishes. That needs no gang. */
static void kube_create(void *launcher, const pst_process_id *id, const pst_lcm_devices *devices)
{
    kube *k = launcher;
    item *i = item_of(k, id, true);
    pst_err err = {0};
    i->drop = false;
    if (i->wanted)
        return;
    if (kube_run_write(k->state_dir, id, devices, &err) < 0) {
        not_created(k, i, err.text);
        return;
    }
    i->wanted = true;
    i->made = i->kill = i->stop = i->lives = false;
    *i->said = *i->why = 0;
    if (!has_ended(k, i)) {
        i->gang = gang_of(k, id);
        join_gang(k, i);
    }
}

static void kube_stop(void *launcher, const pst_process_id *id)
{
    item *i = item_of(launcher, id, false);
    if (i)
        i->stop = true;
}

static void kube_delete(void *launcher, const pst_process_id *id, bool force)
{
    item *i = item_of(launcher, id, true);
    i->kill = true;
    i->force |= force;
    i->drop = false;
}

static void give_news(kube *k, pst_launcher_fn fn, void *arg)
{
    pst_launcher_news *news = k->news;
    size_t n = k->n_news;
    k->news = NULL;
    k->n_news = k->cap_news = 0;
    for (size_t i = 0; i < n; i++)
        fn(arg, &news[i]);
    free(news);
}

static void kube_poll(void *launcher, pst_launcher_fn fn, void *arg)
{
    kube *k = launcher;
    hear(k);
    settle_gangs(k);
    for (size_t n = 0; n < k->items.n; n++)
        if (k->items.at[n].key)
            advance(k, k->items.at[n].value);
    for (size_t n = 0; n < k->items.n; n++)
        if (k->items.at[n].key && is_done(k, k->items.at[n].value))
            free(pst_map_take(&k->items, k->items.at[n].key));
    sweep(k);
    give_news(k, fn, arg);
}

const pst_launcher_ops pst_launcher_kubernetes = {.name = "kubernetes",
                                                  .open = kube_open,
                                                  .close = kube_close,
                                                  .inventory = kube_inventory,
                                                  .adopt = kube_adopt,
                                                  .create = kube_create,
                                                  .stop = kube_stop,
                                                  .delete = kube_delete,
                                                  .poll = kube_poll};
