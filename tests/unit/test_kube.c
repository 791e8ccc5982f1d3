/* test_kube.c - what a process is in Kubernetes and what a pod's status means for us (lcm/kubernetes, the pure part): names, images, bodies, sentences,
 * quantities, the ways to an API server. */
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/fs.h"
#include "lcm/kubernetes/kube_access.h"
#include "lcm/kubernetes/kube_capacity.h"
#include "lcm/kubernetes/kube_run.h"
#include "lcm/kubernetes/kube_status.h"
#include "schemas/job_state.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const kube_opts OPTS = {.claim = "state",
                               .image = "registry/penstock:1",
                               .images = "mine=registry/mine,pytorch=registry:5000/torch",
                               .gpu_resource = "nvidia.com/gpu",
                               .gpu_label = "nvidia.com/gpu.product"};
static const kube_pod_conf CONF = {.opts = &OPTS,
                                   .namespace_ = "jobs",
                                   .site = "local",
                                   .node = "n",
                                   .state_dir = "/state",
                                   .folder_id = "0123456789abcdef0123456789abcdef",
                                   .objects = "/state/objects",
                                   .uid = 1000,
                                   .gid = 1001};
static const pst_process_id ID = {"training-abc", 2, "learner-1"};

static pst_manifest parsed(const char *framework, const char *more)
{
    char *yaml =
        pst_sprintf("name: j\nversion: '1'\ncpus: 0.25\ngpus: 2\nmemory: 1 GiB\nlearners: 2\nframework: {%s, command: 'true; $(rm)'}\n%s",
                    framework, more);
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    assert_int_equal(pst_manifest_parse(yaml, strlen(yaml), &m, &errors, &warnings), 0);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    free(yaml);
    return m;
}

static json_t *pod_for(const pst_manifest *m)
{
    json_t *pod = NULL;
    pst_err err = {0};
    kube_pod_of of = {.id = &ID, .manifest = m, .nonce_sha256 = "digest", .secret = "s-1", .gpus = 2, .grace_ms = 4500};
    assert_int_equal(kube_pod_json(&CONF, &of, &pod, &err), 0);
    return pod;
}

/* By a path of keys and places, "spec.containers.0.name". */
static const json_t *at(const json_t *j, const char *path)
{
    char *text = pst_strdup(path), *save = NULL;
    for (char *part = strtok_r(text, ".", &save); part; part = strtok_r(NULL, ".", &save))
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(part)) : json_object_get(j, part);
    free(text);
    return j;
}

static const char *text_at(const json_t *j, const char *path)
{
    const char *s = json_string_value(at(j, path));
    return s ? s : "";
}

static void test_kube_names_are_dns_labels_and_never_meet(void **state)
{
    static const char *const ids[] = {"training-abc",
                                      "Training-abc",
                                      "training_abc",
                                      "training.abc",
                                      "-training",
                                      "t",
                                      "training-abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-1",
                                      "training-abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-2"};
    char names[8][KUBE_NAME_MAX], label[64];
    for (size_t i = 0; i < 8; i++) {
        pst_process_id id = pst_process_id_of(ids[i], 1, "learner-1");
        kube_pod_name(&id, names[i]);
        size_t n = strlen(names[i]);
        assert_true(n && n <= 63 && strspn(names[i], "abcdefghijklmnopqrstuvwxyz0123456789-") == n);
        assert_true(names[i][0] != '-' && names[i][n - 1] != '-');
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
        kube_label(ids[i], label);
        assert_true(strlen(label) <= 63 && *label != '-');
    }
    assert_string_equal(names[0], "training-abc-g1-learner-1");
    kube_label("Node_1.x", label);
    assert_string_equal(label, "Node_1.x");
}

static void test_kube_images_are_ffdls_unless_somebody_says_otherwise(void **state)
{
    static const struct {
        const char *framework, *image;
    } rows[] = {{"name: tensorflow, version: 1.5.0-py3", "tensorflow/tensorflow:1.5.0-py3"},
                {"name: caffe, version: cpu", "bvlc/caffe:cpu"},
                {"name: horovod, version: v", "uber/horovod:v"},
                {"name: pytorchmpi, version: 0925mpi", "tomcli/pytorch:0925mpi"},
                {"name: custom, version: 'host:5000/a/b:2'", "host:5000/a/b:2"},
                {"name: pytorch, version: latest", "registry:5000/torch:latest"}, /* the operator's */
                {"name: mine, version: '7'", "registry/mine:7"},
                {"name: mine, version: '7', image: 'own@sha256:00'", "own@sha256:00"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_manifest m = parsed(rows[i].framework, "");
        char *image = NULL;
        assert_int_equal(kube_pod_image(&CONF, &m, &image, NULL), 0);
        assert_string_equal(image, rows[i].image);
        free(image);
        pst_manifest_done(&m);
    }
}

static void test_kube_no_image_is_refused_with_the_cure(void **state)
{
    static const char *const bad[] = {"name: unheard, version: '1'", "name: custom, version: 'a b'", "name: custom, version: '-x'",
                                      "name: unheard, version: '1', image: '$(x)'"};
    for (size_t i = 0; i < 4; i++) {
        pst_manifest m = parsed(bad[i], "");
        char *image = NULL;
        pst_err err = {0};
        assert_int_equal(kube_pod_image(&CONF, &m, &image, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, "framework.image"));
        assert_null(image);
        pst_manifest_done(&m);
    }
}

static void test_kube_a_pod_may_do_nothing_but_its_job(void **state)
{
    pst_manifest m = parsed("name: custom, version: image:1", "gpu_type: nvidia-h100\n");
    json_t *pod = pod_for(&m);
    char *text = pst_json_text(pod);
    assert_string_equal(text_at(pod, "metadata.name"), "training-abc-g2-learner-1");
    assert_string_equal(text_at(pod, "spec.restartPolicy"), "Never");
    assert_true(json_is_false(at(pod, "spec.automountServiceAccountToken")));
    assert_true(json_is_true(at(pod, "spec.securityContext.runAsNonRoot")));
    assert_int_equal(json_integer_value(at(pod, "spec.securityContext.runAsUser")), 1000);
    assert_string_equal(text_at(pod, "spec.securityContext.seccompProfile.type"), "RuntimeDefault");
    for (int init = 0; init < 2; init++) {
        const json_t *c = at(pod, init ? "spec.initContainers.0" : "spec.containers.0");
        assert_true(json_is_false(at(c, "securityContext.allowPrivilegeEscalation")));
        assert_string_equal(text_at(c, "securityContext.capabilities.drop.0"), "ALL");
    }
    const json_t *c = at(pod, "spec.containers.0");
    assert_string_equal(text_at(c, "image"), "image:1");
    assert_string_equal(text_at(c, "resources.limits.cpu"), "250m");
    assert_string_equal(text_at(c, "resources.requests.memory"), "1207959552"); /* 1 GiB and the supervisor's 128 MiB */
    assert_string_equal(text_at(json_object_get(at(c, "resources"), "limits"), "cpu"), "250m");
    assert_string_equal(json_string_value(json_object_get(at(c, "resources.limits"), "nvidia.com/gpu")), "2");
    assert_string_equal(json_string_value(json_object_get(at(pod, "spec.nodeSelector"), "nvidia.com/gpu.product")), "nvidia-h100");
    assert_string_equal(text_at(pod, "spec.tolerations.0.value"), "gpu-task");
    assert_int_equal(json_integer_value(at(pod, "spec.terminationGracePeriodSeconds")), 20);
    assert_string_equal(text_at(c, "volumeMounts.2.mountPath"), "/state/jobs/training-abc");
    assert_string_equal(text_at(c, "volumeMounts.2.subPath"), "jobs/training-abc");
    assert_string_equal(text_at(c, "volumeMounts.3.mountPath"), "/job");
    assert_null(strstr(text, "rm)")); /* the command goes by the spec, not by the pod, where $(…) would be read */
    free(text);
    json_decref(pod);
    pst_manifest_done(&m);
}

static void test_kube_a_list_of_gpu_types_is_liked_not_demanded(void **state)
{
    pst_manifest m = parsed("name: custom, version: image:1", "penstock: {gpu_preference: [h100, a100]}\n");
    json_t *pod = pod_for(&m);
    const json_t *terms = at(pod, "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution");
    assert_null(at(pod, "spec.nodeSelector"));
    assert_int_equal(json_array_size(terms), 2);
    assert_true(json_integer_value(at(terms, "0.weight")) > json_integer_value(at(terms, "1.weight")));
    assert_string_equal(text_at(terms, "1.preference.matchExpressions.0.values.0"), "a100");
    json_decref(pod);
    pst_manifest_done(&m);
}

static void test_kube_a_secret_is_its_pods(void **state)
{
    static const char *const settings[] = {"PENSTOCK_BOOTSTRAP_SERVERS=b:9092", "PENSTOCK_X=1", NULL};
    json_t *s = kube_secret_json(&CONF, &ID, "s-1", "uid-1", settings, "nonce-1");
    size_t len;
    char *data = pst_base64_decode(text_at(s, "data.settings"), &len);
    assert_string_equal(text_at(s, "metadata.ownerReferences.0.uid"), "uid-1");
    assert_string_equal(text_at(s, "metadata.ownerReferences.0.name"), "training-abc-g2-learner-1");
    assert_true(json_is_true(at(s, "immutable")));
    assert_string_equal(data, "PENSTOCK_BOOTSTRAP_SERVERS=b:9092");
    assert_non_null(memmem(data, len, "\0PENSTOCK_RUN_NONCE=nonce-1\0", 28));
    free(data);
    json_decref(s);
}

/* ---- status ------------------------------------------------------------------------------------------------------------------------- */

static kube_pod seen(const char *status, const char *meta)
{
    char *text =
        pst_sprintf("{\"metadata\":{\"name\":\"p\",\"uid\":\"u\",\"annotations\":{\"penstock/process\":\"training-abc/2/learner-1\"}%s},"
                    "\"spec\":{\"volumes\":[{\"name\":\"secret\",\"secret\":{\"secretName\":\"s-1\"}}]},\"status\":%s}",
                    meta, status);
    kube_pod p;
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_true(kube_pod_read(j, &p));
    json_decref(j);
    free(text);
    return p;
}

static void test_kube_a_pod_tells_what_it_waits_for(void **state)
{
    kube_pod p = seen("{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\",\"reason\":\"Unschedulable\","
                      "\"message\":\"0/3 nodes:\\n1 Insufficient nvidia.com/gpu\"}]}",
                      "");
    assert_true(p.phase == KUBE_POD_WAITS && pst_process_id_same(&p.id, &ID));
    assert_string_equal(p.code, "S100");
    assert_non_null(strstr(p.why, "Unschedulable): 0/3 nodes: 1 Insufficient nvidia.com/gpu")); /* in one line */
    assert_string_equal(p.secret, "s-1");
    p = seen("{\"phase\":\"Pending\",\"containerStatuses\":[{\"name\":\"learner\",\"image\":\"no/such\",\"state\":{\"waiting\":{\"reason\":"
             "\"ErrImagePull\",\"message\":\"denied\"}}}]}",
             "");
    assert_string_equal(p.code, "S103");
    assert_non_null(strstr(p.why, "ErrImagePull of no/such: denied"));
    p = seen("{\"phase\":\"Pending\",\"initContainerStatuses\":[{\"name\":\"install\",\"state\":{\"waiting\":{\"reason\":"
             "\"CreateContainerConfigError\",\"message\":\"secret s-1 not found\"}}}]}",
             "");
    assert_string_equal(p.code, "S104");
    p = seen("{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{\"reason\":\"PodInitializing\"}}}]}", "");
    assert_string_equal(p.why, "");
}

static void test_kube_a_pod_is_over_when_the_kubelet_says_so(void **state)
{
    kube_pod p =
        seen("{\"phase\":\"Failed\",\"containerStatuses\":[{\"name\":\"learner\",\"state\":{\"terminated\":{\"exitCode\":137,\"reason\":"
             "\"OOMKilled\"}}}]}",
             "");
    assert_true(p.phase == KUBE_POD_OVER && !strncmp(p.why, PST_REASON_OOM, strlen(PST_REASON_OOM)));
    p = seen("{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"The node was low on memory\"}", "");
    assert_non_null(strstr(p.why, "Evicted: The node was low on memory"));
    p = seen("{\"phase\":\"Succeeded\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"exitCode\":0}}}]}", "");
    assert_true(p.phase == KUBE_POD_OVER && !*p.why);
    /* its node does not answer, and it is being deleted: neither is an end */
    p = seen("{\"phase\":\"Running\",\"reason\":\"NodeLost\"}", ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"");
    assert_true(p.phase == KUBE_POD_RUNS && p.deleting);
    p = seen("{\"phase\":\"Unknown\"}", "");
    assert_true(p.phase == KUBE_POD_RUNS);
}

/* Another LCM may have the same node's name: what it may take for forgotten is what its own folder made. */
static void test_kube_a_pod_tells_which_state_folder_made_it(void **state)
{
    char dir[] = "/tmp/test_kube.XXXXXX", a[33], again[33], b[33];
    pst_err err = {0};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(kube_run_folder_id(dir, "a", a, &err), 0);
    assert_int_equal(kube_run_folder_id(dir, "a", again, &err), 0);
    assert_int_equal(kube_run_folder_id(dir, "b", b, &err), 0);
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 32);
    pst_fs_remove_tree(dir, NULL);
    pst_manifest m = parsed("name: custom, version: image:1", "");
    json_t *pod = pod_for(&m);
    kube_pod p;
    json_object_set_new(json_object_get(pod, "metadata"), "uid", json_string("u"));
    assert_true(kube_pod_read(pod, &p));
    assert_string_equal(p.folder_id, CONF.folder_id);
    json_decref(pod);
    pst_manifest_done(&m);
}

static void test_kube_what_is_no_pod_of_ours_is_passed_over(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\"}}",
        "{\"metadata\":{\"name\":7,\"uid\":\"u\"}}",
        "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\",\"annotations\":{\"penstock/process\":\"../x/1/learner-1\"}}}",
        "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\",\"annotations\":{\"penstock/process\":\"a/1/../../etc\"}}}",
        "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\",\"annotations\":{\"penstock/process\":\"a/0/b\"}}}",
        "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\",\"annotations\":{\"penstock/process\":\"a/99999999999999999999/b\"}}}",
        ("{\"metadata\":{\"name\":\"p\",\"uid\":\"u\",\"annotations\":{\"penstock/process\":\"a/1/"
         "a-name-of-a-process-that-is-far-too-long\"}}}")};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        kube_pod p;
        json_t *j = json_loads(texts[i], 0, NULL);
        assert_non_null(j);
        assert_false(kube_pod_read(j, &p));
        json_decref(j);
    }
}

/* ---- capacity, access --------------------------------------------------------------------------------------------------------------- */

static void test_kube_nodes_are_counted_unless_the_operator_says(void **state)
{
    static const char text[] =
        "{\"items\":[{\"metadata\":{\"labels\":{\"nvidia.com/"
        "gpu.product\":\"h100\"}},\"status\":{\"allocatable\":{\"cpu\":\"7500m\",\"memory\":"
        "\"16Gi\",\"nvidia.com/gpu\":\"2\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}},"
        "{\"spec\":{\"unschedulable\":true},\"status\":{\"allocatable\":{\"cpu\":\"4\"}}},"
        "{\"status\":{\"allocatable\":{\"cpu\":\"4\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"Unknown\"}]}}]}";
    json_t *nodes = json_loads(text, 0, NULL);
    pst_inventory v = {0};
    kube_opts opts = OPTS;
    kube_count_nodes(&opts, nodes, &v);
    assert_true(v.cpus == 7.5 && v.memory_bytes == 16ll << 30 && v.n_devices == 2);
    assert_string_equal(v.devices[1].type, "h100");
    free(v.devices);
    v = (pst_inventory){0};
    opts.gpus = "";
    opts.cpus = 3;
    kube_count_nodes(&opts, nodes, &v);
    assert_true(v.cpus == 0 && v.n_devices == 0);
    json_decref(nodes);
    assert_int_equal(kube_offered_gpus("a=2,b=1", &v, NULL), 0);
    assert_int_equal(v.n_devices, 3);
    assert_string_equal(v.devices[2].type, "b");
    free(v.devices);
    static const char *const bad[] = {"a", "a=", "=1", "a=-1", "a=1x", "a=1,b", "a=99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        v = (pst_inventory){0};
        assert_int_equal(kube_offered_gpus(bad[i], &v, NULL), PST_EINVAL);
        free(v.devices);
    }
}

static void test_kube_quantities(void **state)
{
    double v;
    assert_true(kube_quantity("500m", &v) && v == 0.5);
    assert_true(kube_quantity("2Gi", &v) && v == 2147483648.);
    assert_true(kube_quantity("1e3", &v) && v == 1000);
    assert_false(kube_quantity("", &v) || kube_quantity("x", &v) || kube_quantity("-1", &v) || kube_quantity("1Q", &v) ||
                 kube_quantity("nan", &v));
}

static int open_config(const char *dir, const char *text, kube_access **ret, pst_err *err)
{
    char *file = pst_fs_join(dir, "config");
    kube_opts opts = OPTS;
    opts.kubeconfig = file;
    assert_int_equal(pst_fs_write_atomic(file, text, strlen(text), 0600, NULL), 0);
    int rc = kube_access_open(&opts, dir, ret, err);
    free(file);
    return rc;
}

#define CONFIG(CLUSTER, USER)                                                                                           \
    "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: team}}]\nclusters: [{name: k, " \
    "cluster: {" CLUSTER "}}]\nusers: [{name: u, user: {" USER "}}]\n"

static void test_kube_a_kubeconfig_is_read_or_refused_with_a_reason(void **state)
{
    char dir[] = "/tmp/penstock-kube-XXXXXX";
    kube_access *a = NULL;
    pst_err err = {0};
    pst_buf b = {0};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(open_config(dir, CONFIG("server: 'https://h:6443/', certificate-authority-data: Y2E=", "tokenFile: t"), &a, &err), 0);
    assert_string_equal(a->server, "https://h:6443");
    assert_string_equal(a->namespace_, "team");
    assert_int_equal(pst_fs_read(a->ca_file, 100, &b, NULL), 0);
    assert_string_equal(b.data, "ca");
    assert_true(!strncmp(a->token_file, dir, strlen(dir)) && strstr(a->token_file, "/t"));
    kube_access_close(a);
    pst_buf_done(&b);
    static const struct {
        const char *config, *says;
    } bad[] = {{CONFIG("server: 'https://h'", "exec: {command: aws}"), "exec"},
               {CONFIG("server: 'https://h', insecure-skip-tls-verify: true", "token: x"), "insecure-skip-tls-verify"},
               {CONFIG("server: 'https://h', certificate-authority-data: '%%'", "token: x"), "base64"},
               {CONFIG("server: 'https://h'", "client-certificate: c"), "client-key"},
               {CONFIG("server: 'ftp://h'", "token: x"), "https://"},
               {"current-context: none\n", "current-context"},
               {"- 1\n", "current-context"},
               {"a: [\n", "config:"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pst_err_clear(&err);
        assert_true(open_config(dir, bad[i].config, &a, &err) < 0);
        assert_non_null(strstr(err.text, bad[i].says));
    }
    pst_fs_remove_tree(dir, NULL);
}

static void test_kube_without_a_server_it_says_how_to_name_one(void **state)
{
    kube_access *a = NULL;
    pst_err err = {0};
    unsetenv("KUBECONFIG");
    unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(kube_access_open(&OPTS, "/tmp", &a, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "--kubeconfig"));
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_int_equal(kube_access_open(&OPTS, "/tmp", &a, NULL), 0);
    assert_string_equal(a->server, "https://[fd00::1]:443");
    kube_access_close(a);
    unsetenv("KUBERNETES_SERVICE_HOST");
    kube_opts opts = OPTS;
    opts.server = "http://127.0.0.1:1";
    opts.namespace_ = "Bad/../name";
    pst_err_clear(&err);
    assert_int_equal(kube_access_open(&opts, "/tmp", &a, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "namespace"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kube_names_are_dns_labels_and_never_meet),
                                       cmocka_unit_test(test_kube_images_are_ffdls_unless_somebody_says_otherwise),
                                       cmocka_unit_test(test_kube_no_image_is_refused_with_the_cure),
                                       cmocka_unit_test(test_kube_a_pod_may_do_nothing_but_its_job),
                                       cmocka_unit_test(test_kube_a_list_of_gpu_types_is_liked_not_demanded),
                                       cmocka_unit_test(test_kube_a_secret_is_its_pods),
                                       cmocka_unit_test(test_kube_a_pod_tells_what_it_waits_for),
                                       cmocka_unit_test(test_kube_a_pod_is_over_when_the_kubelet_says_so),
                                       cmocka_unit_test(test_kube_a_pod_tells_which_state_folder_made_it),
                                       cmocka_unit_test(test_kube_what_is_no_pod_of_ours_is_passed_over),
                                       cmocka_unit_test(test_kube_nodes_are_counted_unless_the_operator_says),
                                       cmocka_unit_test(test_kube_quantities),
                                       cmocka_unit_test(test_kube_a_kubeconfig_is_read_or_refused_with_a_reason),
                                       cmocka_unit_test(test_kube_without_a_server_it_says_how_to_name_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
