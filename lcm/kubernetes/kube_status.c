/* kube_status.c - reads pods. The API server's objects grow with every release and other controllers write into them, so nothing is demanded but name, uid
 * and our notes; what is not understood is left out, and a sentence that is there is passed on as it stands. */
#include "lcm/kubernetes/kube_status.h"

#include "common/base/json.h"
#include "schemas/job_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line: messages of several lines stand in events and tables of one. */
static void say(kube_pod *p, const char *code, const char *what, const char *text)
{
    if (*p->why)
        return;
    snprintf(p->code, sizeof p->code, "%s", code);
    snprintf(p->why, sizeof p->why, "%s%s%s", what, *what && *text ? ": " : "", text);
    for (char *c = p->why; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
}

static const json_t *condition(const json_t *status, const char *type)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(status, "conditions"), i, c) if (!strcmp(pst_json_str(c, "type", ""), type)) return c;
    return NULL;
}

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(text, list[i]))
            return true;
    return false;
}

/* ContainerCreating and PodInitializing are the ordinary way; what else a container waits for is a trouble. */
static void read_waiting(kube_pod *p, const json_t *containers)
{
    static const char *const images[] = {"ErrImagePull",      "ImagePullBackOff",    "InvalidImageName",
                                         "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError"};
    static const char *const usual[] = {"ContainerCreating", "PodInitializing", ""};
    size_t i;
    json_t *c;
    json_array_foreach(containers, i, c)
    {
        const json_t *w = json_object_get(json_object_get(c, "state"), "waiting");
        const char *reason = pst_json_str(w, "reason", "");
        if (!w || is_one_of(reason, usual, sizeof usual / sizeof *usual))
            continue;
        bool image = is_one_of(reason, images, sizeof images / sizeof *images);
        char *what = pst_sprintf("container %s of pod %s waits: %s%s%s", pst_json_str(c, "name", "?"), p->name, reason, image ? " of " : "",
                                 image ? pst_json_str(c, "image", "?") : "");
        say(p, image ? "S103" : "S104", what, pst_json_str(w, "message", ""));
        free(what);
    }
}

static void read_pending(kube_pod *p, const json_t *status)
{
    const json_t *c = condition(status, "PodScheduled");
    if (c && !strcmp(pst_json_str(c, "status", ""), "False")) {
        char *what = pst_sprintf("pod %s finds no node (%s)", p->name, pst_json_str(c, "reason", "?"));
        say(p, "S100", what, pst_json_str(c, "message", ""));
        free(what);
    }
    read_waiting(p, json_object_get(status, "initContainerStatuses"));
    read_waiting(p, json_object_get(status, "containerStatuses"));
}

static void read_ended(kube_pod *p, const json_t *containers, bool init)
{
    size_t i;
    json_t *c;
    json_array_foreach(containers, i, c)
    {
        const json_t *t = json_object_get(json_object_get(c, "state"), "terminated");
        int64_t code = pst_json_int(t, "exitCode", 0);
        const char *reason = pst_json_str(t, "reason", "");
        if (!t || (!code && strcmp(reason, "OOMKilled") != 0))
            continue;
        bool oom = !strcmp(reason, "OOMKilled");
        char *what =
            pst_sprintf("%sthe %scontainer %s of pod %s was ended: %s, exit code %lld", oom ? PST_REASON_OOM : "", init ? "init " : "",
                        pst_json_str(c, "name", "?"), p->name, *reason ? reason : "it failed", (long long)code);
        say(p, "S104", what, pst_json_str(t, "message", ""));
        free(what);
    }
}

static void read_over(kube_pod *p, const json_t *status)
{
    const json_t *c = condition(status, "DisruptionTarget");
    const char *reason = pst_json_str(status, "reason", "");
    if (*reason) {
        char *what = pst_sprintf("pod %s ended: %s", p->name, reason);
        say(p, "S104", what, pst_json_str(status, "message", ""));
        free(what);
    }
    if (c && !strcmp(pst_json_str(c, "status", ""), "True")) {
        char *what = pst_sprintf("pod %s was disrupted: %s", p->name, pst_json_str(c, "reason", "?"));
        say(p, "S104", what, pst_json_str(c, "message", ""));
        free(what);
    }
    read_ended(p, json_object_get(status, "initContainerStatuses"), true);
    read_ended(p, json_object_get(status, "containerStatuses"), false);
}

/* "<training id>/<generation>/<process>"; checked as any name that may become a path. */
static void read_note(const char *note, pst_process_id *ret)
{
    const char *a = strchr(note, '/'), *b = a ? strchr(a + 1, '/') : NULL;
    char *end;
    long generation = a ? strtol(a + 1, &end, 10) : 0;
    if (!b || end != b || generation < 1 || generation > 1000000000 || a - note >= (int)sizeof ret->training_id ||
        strlen(b + 1) >= sizeof ret->process)
        return;
    char *training_id = pst_strndup(note, (size_t)(a - note));
    if (pst_rundir_name_ok(training_id) && pst_rundir_name_ok(b + 1))
        *ret = pst_process_id_of(training_id, (int)generation, b + 1);
    free(training_id);
}

bool kube_pod_read(const json_t *pod, kube_pod *ret)
{
    const json_t *meta = json_object_get(pod, "metadata"), *status = json_object_get(pod, "status"), *v;
    const json_t *notes = json_object_get(meta, "annotations");
    const char *name = pst_json_str(meta, "name", ""), *uid = pst_json_str(meta, "uid", ""),
               *phase = pst_json_str(status, "phase", "Pending");
    size_t i;
    *ret = (kube_pod){.phase = KUBE_POD_WAITS};
    if (!*name || strlen(name) >= sizeof ret->name || !*uid || strlen(uid) >= sizeof ret->uid)
        return false;
    memcpy(ret->name, name, strlen(name) + 1);
    memcpy(ret->uid, uid, strlen(uid) + 1);
    read_note(pst_json_str(notes, KUBE_NOTE_PROCESS, ""), &ret->id);
    snprintf(ret->nonce_sha256, sizeof ret->nonce_sha256, "%s", pst_json_str(notes, KUBE_NOTE_NONCE, ""));
    snprintf(ret->folder_id, sizeof ret->folder_id, "%s", pst_json_str(notes, KUBE_NOTE_FOLDER, ""));
    ret->deleting = json_is_string(json_object_get(meta, "deletionTimestamp"));
    json_array_foreach(json_object_get(json_object_get(pod, "spec"), "volumes"), i, v) if (json_object_get(v, "secret"))
        snprintf(ret->secret, sizeof ret->secret, "%s", pst_json_str(json_object_get(v, "secret"), "secretName", ""));
    if (!strcmp(phase, "Succeeded") || !strcmp(phase, "Failed")) {
        ret->phase = KUBE_POD_OVER;
        read_over(ret, status);
    } else {
        ret->phase = strcmp(phase, "Pending") ? KUBE_POD_RUNS : KUBE_POD_WAITS;
        read_pending(ret, status);
    }
    return *ret->id.training_id != 0;
}

void kube_refusal(long status, const json_t *body, char *ret, size_t size)
{
    const char *message = pst_json_str(body, "message", "");
    if (*message)
        snprintf(ret, size, "%.300s (HTTP %ld)", message, status);
    else
        snprintf(ret, size, "HTTP %ld", status);
    for (char *c = ret; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
}
