/* kube_pod.c - builds the bodies as JSON trees. Everything that comes from a manifest is a value in one, never a piece of a path, a name or a shell's line:
 * names are made of checked ids, and the command goes by spec.json to the supervisor, not by the pod. */
#include "lcm/kubernetes/kube_pod.h"

#include "common/base/buf.h"
#include "common/base/handover.h"
#include "common/base/hash.h"
#include "common/base/json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM_DIR  "/penstock"
#define SETTINGS_DIR "/penstock-settings"
#define SECRET_DIR   "/penstock-secret"
#define OVERHEAD     (128ll << 20) /* memory of the supervisor beside the learner */
#define MARGIN_S     15            /* for results and reports, beyond the job's grace time */

/* ---- names ------------------------------------------------------------------------------------------------------------------------- */

/* Another text never gives the same name: what had to be changed or cut ends with a digest of the whole. */
static void name_of(const char *text, bool lower, size_t most, char *ret)
{
    char hex[65];
    size_t n = 0;
    bool same = *text && strlen(text) <= most;
    for (; text[n] && n < most; n++) {
        char c = text[n];
        bool good = isalnum((unsigned char)c) ? !lower || !isupper((unsigned char)c) : c == '-' || (!lower && (c == '_' || c == '.'));
        same = same && good;
        ret[n] = good ? c : (char)tolower((unsigned char)c);
        if (!isalnum((unsigned char)c))
            ret[n] = good ? c : '-';
    }
    ret[n] = 0;
    if (same && isalnum((unsigned char)ret[0]) && isalnum((unsigned char)ret[n - 1]))
        return;
    pst_sha256_hex(text, strlen(text), hex);
    while (n > most - 14) /* "p" before it, "-" and 12 digits behind it */
        n--;
    memmove(ret + 1, ret, n);
    ret[0] = 'p';
    snprintf(ret + 1 + n, 14, "-%.12s", hex);
}

void kube_pod_name(const pst_process_id *id, char ret_name[KUBE_NAME_MAX])
{
    char *text = pst_sprintf("%s-g%d-%s", id->training_id, id->generation, id->process);
    name_of(text, true, KUBE_NAME_MAX - 1, ret_name);
    free(text);
}

void kube_label(const char *text, char ret_value[64])
{
    name_of(text, false, 63, ret_value);
}

/* ---- images ------------------------------------------------------------------------------------------------------------------------- */

/* FfDL's learner images; the version is the tag. */
static const struct {
    const char *framework, *image;
} images[] = {{"tensorflow", "tensorflow/tensorflow"}, {"caffe", "bvlc/caffe"},        {"caffe2", "caffe2ai/caffe2"},
              {"pytorch", "pytorch/pytorch"},          {"h2o3", "opsh2oai/h2o3-ffdl"}, {"horovod", "uber/horovod"},
              {"pytorchmpi", "tomcli/pytorch"}};

/* With the version as its tag, unless it has one, or a digest. */
static char *with_version(const char *image, size_t len, const char *version)
{
    const char *slash = memrchr(image, '/', len);
    const char *last = slash ? slash + 1 : image;
    bool whole = memchr(last, ':', len - (size_t)(last - image)) || memchr(image, '@', len) || !version || !*version;
    return whole ? pst_strndup(image, len) : pst_sprintf("%.*s:%s", (int)len, image, version);
}

static char *operators_image(const char *list, const pst_manifest *m)
{
    size_t n = strlen(m->framework);
    for (const char *p = list; p && *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        if (len > n + 1 && !strncmp(p, m->framework, n) && p[n] == '=')
            return with_version(p + n + 1, len - n - 1, m->framework_version);
        p += len;
    }
    return NULL;
}

static bool is_image(const char *text)
{
    size_t n = strlen(text);
    return n && n <= 255 && isalnum((unsigned char)*text) &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/:@-") == n;
}

int kube_pod_image(const kube_pod_conf *conf, const pst_manifest *m, char **ret_image, pst_err *err)
{
    const char *own = pst_json_str(json_object_get(m->raw, "framework"), "image", NULL), *name = m->framework ? m->framework : "";
    char *image = own ? pst_strdup(own) : operators_image(conf->opts->images, m);
    if (!image && m->native)
        image = pst_strdup(conf->opts->image);
    if (!image && !strcmp(name, "custom")) /* FfDL: the version is the image */
        image = pst_strdup(m->framework_version ? m->framework_version : "");
    for (size_t i = 0; i < sizeof images / sizeof *images && !image; i++)
        if (!strcmp(name, images[i].framework))
            image = with_version(images[i].image, strlen(images[i].image), m->framework_version);
    if (image && is_image(image)) {
        *ret_image = image;
        return 0;
    }
    int rc = image ? pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "kubernetes", 0,
                                 "'%.100s' is no container image: give framework.image (or, with framework.name: custom, its version) as "
                                 "registry/name:tag",
                                 image)
                   : pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "kubernetes", 0,
                                 "no container image is known for framework '%.60s': give framework.image in the manifest, or have the "
                                 "operator start the LCM with --images %.60s=IMAGE",
                                 name, name);
    free(image);
    return rc;
}

/* ---- the pod ------------------------------------------------------------------------------------------------------------------------ */

static json_t *metadata(const kube_pod_conf *conf, const pst_process_id *id, const char *name)
{
    char node[64], training[64], generation[16], process[64];
    kube_label(conf->node, node);
    kube_label(id->training_id, training);
    kube_label(id->process, process);
    snprintf(generation, sizeof generation, "%d", id->generation);
    char *whole = pst_sprintf("%s/%d/%s", id->training_id, id->generation, id->process);
    json_t *m = json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:s, s:s, s:s, s:s}, s:{s:s}}", "name", name, "namespace", conf->namespace_,
                          "labels", "app.kubernetes.io/name", "penstock-learner", "app.kubernetes.io/managed-by", "penstock-lcm",
                          "app.kubernetes.io/part-of", "penstock", KUBE_LABEL_NODE, node, KUBE_LABEL_TRAINING, training,
                          "penstock/generation", generation, "penstock/process-name", process, "annotations", KUBE_NOTE_PROCESS, whole);
    free(whole);
    return m;
}

static json_t *security(bool of_pod, const kube_pod_conf *conf)
{
    json_t *s = of_pod ? json_pack("{s:{s:s}}", "seccompProfile", "type", "RuntimeDefault")
                       : json_pack("{s:b, s:{s:[s]}}", "allowPrivilegeEscalation", 0, "capabilities", "drop", "ALL");
    if (of_pod && conf->uid) {
        json_object_set_new(s, "runAsNonRoot", json_true());
        json_object_set_new(s, "runAsUser", json_integer(conf->uid));
        json_object_set_new(s, "runAsGroup", json_integer(conf->gid));
        json_object_set_new(s, "fsGroup", json_integer(conf->gid));
    }
    return s;
}

static json_t *mount(const char *volume, const char *at, const char *sub_path)
{
    json_t *m = json_pack("{s:s, s:s}", "name", volume, "mountPath", at);
    if (sub_path)
        json_object_set_new(m, "subPath", json_string(sub_path));
    return m;
}

static json_t *shared_mounts(const kube_pod_conf *conf, const pst_process_id *id)
{
    json_t *all = json_array();
    char *job = pst_rundir_job_dir(conf->state_dir, id->training_id);
    const char *job_sub = job + strlen(conf->state_dir) + 1;
    char *shared = pst_sprintf("%s/gen-%d/job", job_sub, id->generation);
    json_array_append_new(all, mount("state", job, job_sub));
    json_array_append_new(all, mount("state", "/job", shared)); /* FfDL's scripts name it so */
    size_t n = strlen(conf->state_dir);
    if (conf->objects && !strncmp(conf->objects, conf->state_dir, n) && conf->objects[n] == '/' && conf->objects[n + 1])
        json_array_append_new(all, mount("state", conf->objects, conf->objects + n + 1));
    free(shared);
    free(job);
    return all;
}

static json_t *env_of(const char *name, const char *value)
{
    return json_pack("{s:s, s:s}", "name", name, "value", value);
}

static json_t *install_container(const kube_pod_conf *conf)
{
    return json_pack("{s:s, s:s, s:[s,s,s,s,s,s,s,s], s:o, s:{s:{s:s, s:s}, s:{s:s, s:s}}, s:[o,o,o]}", "name", "install", "image",
                     conf->opts->image, "command", "penstock-supervise", "supervise", "--install", PROGRAM_DIR, "--settings",
                     SECRET_DIR "/settings", "--settings-to", SETTINGS_DIR "/settings", "securityContext", security(false, conf),
                     "resources", "requests", "cpu", "50m", "memory", "64Mi", "limits", "cpu", "1", "memory", "256Mi", "volumeMounts",
                     mount("penstock", PROGRAM_DIR, NULL), mount("settings", SETTINGS_DIR, NULL), mount("secret", SECRET_DIR, NULL));
}

/* What a role leaves out it has from the job (pst_role). Limits are requests: a learner that is promised less than it may use is the first to be evicted. */
static json_t *resources(const kube_pod_conf *conf, const kube_pod_of *of, const pst_role *role)
{
    char cpu[32], memory[32], gpus[16];
    snprintf(cpu, sizeof cpu, "%lldm", (long long)(role->cpus * 1000 + 0.999));
    snprintf(memory, sizeof memory, "%lld", (long long)(role->memory_bytes + OVERHEAD));
    json_t *wanted = json_pack("{s:s, s:s}", "cpu", cpu, "memory", memory);
    snprintf(gpus, sizeof gpus, "%d", of->gpus);
    if (of->gpus)
        json_object_set_new(wanted, conf->opts->gpu_resource, json_string(gpus));
    json_t *r = json_pack("{s:o, s:O}", "requests", wanted, "limits", wanted);
    return r;
}

/* Our own image has the program where its libraries are; any other gets both. */
static json_t *command(const kube_pod_conf *conf, const kube_pod_of *of)
{
    char *dir = pst_rundir_dir(conf->state_dir, of->id);
    json_t *c = of->manifest->native
                    ? json_pack("[s]", "penstock-supervise")
                    : json_pack("[s,s,s,s]", PROGRAM_DIR "/ld.so", "--library-path", PROGRAM_DIR, PROGRAM_DIR "/penstock-supervise");
    json_t *rest = json_pack("[s,s,s,s,s]", "supervise", "--run-dir", dir, "--address", "$(PENSTOCK_POD_IP)");
    json_array_extend(c, rest);
    json_decref(rest);
    free(dir);
    return c;
}

static json_t *learner_container(const kube_pod_conf *conf, const kube_pod_of *of, const pst_role *role, const char *image)
{
    char handover[] = PST_HANDOVER_FILE;
    *strchr(handover, '=') = 0;
    char *file = pst_sprintf("%s%s", handover + strlen(handover) + 1, SETTINGS_DIR "/settings");
    json_t *env = json_pack("[o,o,{s:s, s:{s:{s:s}}}]", env_of(handover, file), env_of("PENSTOCK_STATE_DIR", conf->state_dir), "name",
                            "PENSTOCK_POD_IP", "valueFrom", "fieldRef", "fieldPath", "status.podIP");
    json_t *mounts = json_pack("[o,o]", mount("penstock", PROGRAM_DIR, NULL), mount("settings", SETTINGS_DIR, NULL));
    json_t *shared = shared_mounts(conf, of->id);
    json_array_extend(mounts, shared);
    json_decref(shared);
    free(file);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "name", "learner", "image", image, "command", command(conf, of), "env", env,
                     "resources", resources(conf, of, role), "securityContext", security(false, conf), "volumeMounts", mounts);
}

/* One type: the pod runs there or waits. A list: the first is liked best (penstock.gpu_preference), none is demanded. */
static void place(const kube_pod_conf *conf, const kube_pod_of *of, json_t *spec)
{
    json_t *own = json_object_get(of->manifest->raw, "penstock"), *list = json_object_get(own, "gpu_preference"), *type;
    size_t i;
    if (!of->gpus)
        return;
    if (of->manifest->gpu_type && *of->manifest->gpu_type)
        json_object_set_new(spec, "nodeSelector", json_pack("{s:s}", conf->opts->gpu_label, of->manifest->gpu_type));
    json_t *liked = json_array();
    json_array_foreach(list, i, type) if (json_is_string(type) && i < 10) json_array_append_new(
        liked, json_pack("{s:i, s:{s:[{s:s, s:s, s:[s]}]}}", "weight", 100 - 10 * (int)i, "preference", "matchExpressions", "key",
                         conf->opts->gpu_label, "operator", "In", "values", json_string_value(type)));
    if (json_array_size(liked))
        json_object_set_new(spec, "affinity",
                            json_pack("{s:{s:O}}", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution", liked));
    json_decref(liked);
}

int kube_pod_json(const kube_pod_conf *conf, const kube_pod_of *of, json_t **ret_pod, pst_err *err)
{
    char name[KUBE_NAME_MAX], *image = NULL;
    int index, rc = kube_pod_image(conf, of->manifest, &image, err);
    const pst_role *role = pst_manifest_role(of->manifest, of->id->process, &index);
    if (!rc && !role)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "kubernetes", 0, "the manifest has no process %s", of->id->process);
    if (rc < 0) {
        free(image);
        return rc;
    }
    kube_pod_name(of->id, name);
    json_t *meta = metadata(conf, of->id, name);
    json_object_set_new(json_object_get(meta, "annotations"), KUBE_NOTE_NONCE, json_string(of->nonce_sha256));
    json_object_set_new(json_object_get(meta, "annotations"), KUBE_NOTE_FOLDER, json_string(conf->folder_id));
    json_t *spec = json_pack(
        "{s:s, s:b, s:b, s:i, s:o, s:[{s:s, s:s, s:s, s:s}], s:[o], s:[o], s:[{s:s, s:{s:s}}, {s:s, s:{}}, {s:s, s:{s:s, s:s}}, {s:s, "
        "s:{s:s, s:i}}]}",
        "restartPolicy", "Never", "automountServiceAccountToken", 0, "enableServiceLinks", 0, "terminationGracePeriodSeconds",
        (of->grace_ms + 999) / 1000 + MARGIN_S, "securityContext", security(true, conf), "tolerations", "key", "dedicated", "operator",
        "Equal", "value", "gpu-task", "effect", "NoSchedule", "initContainers", install_container(conf), "containers",
        learner_container(conf, of, role, image), "volumes", "name", "state", "persistentVolumeClaim", "claimName", conf->opts->claim,
        "name", "penstock", "emptyDir", "name", "settings", "emptyDir", "medium", "Memory", "sizeLimit", "8Mi", "name", "secret", "secret",
        "secretName", of->secret, "defaultMode", 0440);
    place(conf, of, spec);
    *ret_pod = json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Pod", "metadata", meta, "spec", spec);
    PST_ASSERT(*ret_pod);
    free(image);
    return 0;
}

json_t *kube_secret_json(const kube_pod_conf *conf, const pst_process_id *id, const char *secret, const char *pod_uid,
                         const char *const *settings, const char *nonce)
{
    char name[KUBE_NAME_MAX];
    pst_buf b = {0};
    kube_pod_name(id, name);
    for (; settings && *settings; settings++)
        pst_buf_add(&b, *settings, strlen(*settings) + 1);
    pst_buf_printf(&b, "PENSTOCK_RUN_NONCE=%s", nonce);
    pst_buf_addc(&b, 0);
    char *coded = pst_base64(b.data, b.len);
    explicit_bzero(b.data, b.len);
    pst_buf_done(&b);
    json_t *meta = metadata(conf, id, secret);
    json_object_set_new(meta, "ownerReferences",
                        json_pack("[{s:s, s:s, s:s, s:s}]", "apiVersion", "v1", "kind", "Pod", "name", name, "uid", pod_uid));
    json_t *j = json_pack("{s:s, s:s, s:o, s:s, s:b, s:{s:s}}", "apiVersion", "v1", "kind", "Secret", "metadata", meta, "type", "Opaque",
                          "immutable", 1, "data", "settings", coded);
    explicit_bzero(coded, strlen(coded));
    free(coded);
    return j;
}
