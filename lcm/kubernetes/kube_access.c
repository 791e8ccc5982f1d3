/* kube_access.c - three ways to the API server, in this order: --kubernetes-server with its options, --kubeconfig (or KUBECONFIG), the pod's own service
 * account. They are not mixed, but that a namespace or a token file that is given counts whatever the way. */
#include "lcm/kubernetes/kube_access.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCOUNT    "/var/run/secrets/kubernetes.io/serviceaccount"
#define CONFIG_MAX (1 << 20)
#define TOKEN_MAX  (64 << 10)
#define ANSWER_MAX (64u << 20)
#define TIMEOUT_MS 15000

static int wrong(pst_err *err, const char *fmt, const char *a, const char *b)
{
    char text[400];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, fmt, a, b);
#pragma GCC diagnostic pop
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kubernetes", 0, "%s", text);
}

/* ---- kubeconfig ---------------------------------------------------------------------------------------------------------------------- */

/* The member of a list of {name, <kind>: {…}}. */
static const json_t *named(const json_t *root, const char *list, const char *kind, const char *name)
{
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(root, list), i, x) if (!strcmp(pst_json_str(x, "name", ""), name)) return json_object_get(x, kind);
    return NULL;
}

/* A file's name as it stands, relative to the kubeconfig's folder. */
static char *beside(const char *config, const char *file)
{
    const char *slash = strrchr(config, '/');
    return *file == '/' || !slash ? pst_strdup(file) : pst_sprintf("%.*s/%s", (int)(slash - config), config, file);
}

/* KEY names a file; KEY-data holds what would be in it. Both absent: NULL. */
static int file_of(const json_t *from, const char *key, const char *config, const char *state_dir, char **ret_file, pst_err *err)
{
    char *data_key = pst_sprintf("%s-data", key);
    const char *file = pst_json_str(from, key, NULL), *coded = pst_json_str(from, data_key, NULL);
    size_t len = 0;
    int rc = 0;
    free(data_key);
    if (!coded) {
        *ret_file = file ? beside(config, file) : NULL;
        return 0;
    }
    void *data = pst_base64_decode(coded, &len);
    char *dir = pst_fs_join(state_dir, "kubernetes"), *name = pst_sprintf("%s.pem", key), *path = pst_fs_join(dir, name);
    if (!data)
        rc = wrong(err, "%s: %s-data is not base64", config, key);
    if (!rc)
        rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_fs_write_atomic(path, data, len, 0600, err);
    if (!rc)
        *ret_file = pst_strdup(path);
    if (data)
        explicit_bzero(data, len);
    free(data);
    free(path);
    free(name);
    free(dir);
    return rc;
}

static int refuse_what_we_do_not_do(const char *config, const json_t *cluster, const json_t *user, pst_err *err)
{
    static const char *const not_done[] = {"exec", "auth-provider", "username"};
    for (size_t i = 0; i < sizeof not_done / sizeof *not_done; i++)
        if (json_object_get(user, not_done[i]))
            return wrong(
                err,
                "%s: its user has '%s', which is not done here; give a token (token, tokenFile) or a client certificate, as that of a "
                "service account",
                config, not_done[i]);
    if (pst_json_bool(cluster, "insecure-skip-tls-verify", false))
        return wrong(err, "%s: insecure-skip-tls-verify is not done here; give the cluster's certificate-authority%s", config, "");
    return 0;
}

static int read_parts(const char *config, const json_t *root, const char *state_dir, kube_access *a, pst_err *err)
{
    const char *current = pst_json_str(root, "current-context", "");
    const json_t *context = named(root, "contexts", "context", current);
    const json_t *cluster = named(root, "clusters", "cluster", pst_json_str(context, "cluster", ""));
    const json_t *user = named(root, "users", "user", pst_json_str(context, "user", ""));
    const char *token_file = pst_json_str(user, "tokenFile", NULL), *server = pst_json_str(cluster, "server", NULL);
    if (!context || !cluster || !server)
        return wrong(err, "%s: its current-context '%s' names no context with a cluster that has a server", config, current);
    int rc = refuse_what_we_do_not_do(config, cluster, user, err);
    a->server = pst_strdup(server);
    a->namespace_ = pst_strdup(pst_json_str(context, "namespace", NULL));
    a->token = pst_strdup(pst_json_str(user, "token", NULL));
    a->token_file = token_file ? beside(config, token_file) : NULL;
    if (!rc)
        rc = file_of(cluster, "certificate-authority", config, state_dir, &a->ca_file, err);
    if (!rc)
        rc = file_of(user, "client-certificate", config, state_dir, &a->cert_file, err);
    if (!rc)
        rc = file_of(user, "client-key", config, state_dir, &a->key_file, err);
    if (!rc && !a->cert_file != !a->key_file)
        rc = wrong(err, "%s: client-certificate and client-key belong together%s", config, "");
    return rc;
}

static int read_kubeconfig(const char *config, const char *state_dir, kube_access *a, pst_err *err)
{
    pst_buf b = {0};
    pst_yaml y = {0};
    int rc = pst_fs_read(config, CONFIG_MAX, &b, err);
    if (!rc)
        rc = pst_yaml_parse(b.data ? b.data : "", b.len, config, &y, err);
    if (!rc)
        rc = read_parts(config, y.root, state_dir, a, err);
    pst_yaml_done(&y);
    if (b.data)
        explicit_bzero(b.data, b.len);
    pst_buf_done(&b);
    return rc;
}

/* ---- in a pod ------------------------------------------------------------------------------------------------------------------------ */

static int read_account(kube_access *a, pst_err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    pst_buf b = {0};
    if (!host || !*host)
        return wrong(
            err,
            "where is the API server of Kubernetes? This is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set): give --kubeconfig "
            "FILE, or --kubernetes-server URL%s%s",
            "", "");
    bool six = strchr(host, ':');
    a->server = pst_sprintf("https://%s%s%s:%s", six ? "[" : "", host, six ? "]" : "", port && *port ? port : "443");
    a->ca_file = pst_strdup(ACCOUNT "/ca.crt");
    a->token_file = pst_strdup(ACCOUNT "/token");
    if (pst_fs_read(ACCOUNT "/namespace", 256, &b, NULL) == 0 && b.len)
        a->namespace_ = pst_strndup(b.data, strcspn(b.data, "\n"));
    pst_buf_done(&b);
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------------------- */

static void replace(char **at, const char *with)
{
    if (!with)
        return;
    free(*at);
    *at = pst_strdup(with);
}

/* A DNS label; it becomes a part of paths. */
static bool is_namespace(const char *text)
{
    size_t n = strlen(text);
    return n && n <= 63 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && *text != '-';
}

int kube_access_open(const kube_opts *opts, const char *state_dir, kube_access **ret_access, pst_err *err)
{
    kube_access *a = pst_alloc(sizeof *a);
    const char *config = opts->kubeconfig ? opts->kubeconfig : getenv("KUBECONFIG");
    int rc = 0;
    if (opts->server)
        a->server = pst_strdup(opts->server);
    else
        rc = config && *config ? read_kubeconfig(config, state_dir, a, err) : read_account(a, err);
    replace(&a->namespace_, opts->namespace_);
    replace(&a->token_file, opts->token_file);
    replace(&a->ca_file, opts->ca_file);
    if (!a->namespace_)
        a->namespace_ = pst_strdup("default");
    if (!rc && !is_namespace(a->namespace_))
        rc = wrong(err, "'%s' is no name of a namespace%s", a->namespace_, "");
    if (!rc && strncmp(a->server, "https://", 8) != 0 && strncmp(a->server, "http://", 7) != 0)
        rc = wrong(err, "the API server's address '%s' begins with neither https:// nor http://%s", a->server, "");
    for (size_t n = a->server ? strlen(a->server) : 0; n && a->server[n - 1] == '/'; n--)
        a->server[n - 1] = 0;
    if (rc < 0) {
        kube_access_close(a);
        return rc;
    }
    *ret_access = a;
    return 0;
}

void kube_access_close(kube_access *a)
{
    if (!a)
        return;
    if (a->token)
        explicit_bzero(a->token, strlen(a->token));
    free(a->server);
    free(a->ca_file);
    free(a->token_file);
    free(a->token);
    free(a->cert_file);
    free(a->key_file);
    free(a->namespace_);
    free(a);
}

/* ---- a request ----------------------------------------------------------------------------------------------------------------------- */

/* "Authorization: Bearer …"; a token that would end its line is none. free(); NULL: there is no token. */
static char *bearer(const kube_access *a)
{
    pst_buf b = {0};
    char *header = NULL;
    const char *token = a->token;
    if (a->token_file)
        token = pst_fs_read(a->token_file, TOKEN_MAX, &b, NULL) == 0 ? b.data : NULL;
    if (token && strcspn(token, " \r\n\t"))
        header = pst_sprintf("Authorization: Bearer %.*s", (int)strcspn(token, " \r\n\t"), token);
    if (b.data)
        explicit_bzero(b.data, b.len);
    pst_buf_done(&b);
    return header;
}

/* The token is read anew for each call, since it is rotated under us, and wiped behind it. */
void kube_call(const kube_access *a, pst_fetch *f, const char *method, const char *path, const kube_call_as *as,
               pst_fetch_answer *ret_answer)
{
    char *url = pst_sprintf("%s%s", a->server, path), *token = bearer(a);
    const char *headers[4] = {"Accept: application/json", "Expect:"};
    size_t n = 2;
    if (as->body)
        headers[n++] = "Content-Type: application/json";
    if (token)
        headers[n++] = token;
    pst_fetch_do(f,
                 &(pst_fetch_request){.method = method,
                                      .url = url,
                                      .headers = headers,
                                      .n_headers = n,
                                      .body = as->body,
                                      .body_len = as->body ? strlen(as->body) : 0,
                                      .take = as->take,
                                      .header = as->header,
                                      .stopped = as->stopped,
                                      .arg = as->arg,
                                      .ca_file = a->ca_file,
                                      .cert_file = a->cert_file,
                                      .key_file = a->key_file,
                                      .timeout_ms = as->timeout_ms,
                                      .stall_s = as->stall_s},
                 ret_answer);
    if (token)
        explicit_bzero(token, strlen(token));
    free(token);
    free(url);
}

static bool take_all(void *arg, const void *data, size_t len)
{
    pst_buf *b = arg;
    if (b->len + len > ANSWER_MAX)
        return false;
    pst_buf_add(b, data, len);
    return true;
}

void kube_get(const kube_access *a, pst_fetch *f, const char *path, pst_fetch_answer *ret_answer, json_t **ret_json)
{
    pst_buf b = {0};
    kube_call(a, f, "GET", path, &(kube_call_as){.take = take_all, .arg = &b, .timeout_ms = TIMEOUT_MS}, ret_answer);
    *ret_json = ret_answer->end == PST_FETCH_ANSWERED && b.len ? json_loadb(b.data, b.len, 0, NULL) : NULL;
    pst_buf_done(&b);
}
