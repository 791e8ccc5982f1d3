/* kube_capacity.c - asked once, at the start: an inventory is a promise to the Trainer's queue, and one that changed with every node that comes and goes would
 * be no easier to explain than an unschedulable pod, which says what is missing. */
#include "lcm/kubernetes/kube_capacity.h"

#include "common/base/array.h"
#include "common/base/json.h"
#include "common/base/retry.h"
#include "common/base/stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 100000, AGAIN_MS = 1000 };

bool kube_quantity(const char *text, double *ret)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},
                 {"m", 1e-3},
                 {"k", 1e3},
                 {"M", 1e6},
                 {"G", 1e9},
                 {"T", 1e12},
                 {"P", 1e15},
                 {"Ki", 1024.},
                 {"Mi", 1048576.},
                 {"Gi", 1073741824.},
                 {"Ti", 1099511627776.},
                 {"Pi", 1125899906842624.}};
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v >= 0) || v > 1e18)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].suffix)) {
            *ret = v * units[i].factor;
            return true;
        }
    return false;
}

static void add_devices(pst_inventory *v, const char *type, size_t len, int n)
{
    for (int i = 0; i < n && v->n_devices < DEVICES_MAX; i++) {
        v->devices = pst_array_one_more(v->devices, (size_t)v->n_devices, sizeof *v->devices);
        pst_device *d = &v->devices[v->n_devices];
        *d = (pst_device){0};
        snprintf(d->id, sizeof d->id, "%d", v->n_devices++);
        snprintf(d->type, sizeof d->type, "%.*s", (int)len, type);
    }
}

int kube_offered_gpus(const char *text, pst_inventory *ret, pst_err *err)
{
    for (const char *p = text; p && *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        const char *eq = memchr(p, '=', len);
        char *end = NULL;
        long n = eq ? strtol(eq + 1, &end, 10) : -1;
        if (!eq || eq == p || eq - p >= 64 || end != p + len || end == eq + 1 || n < 0 || n > DEVICES_MAX)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--offer-gpus: '%.*s' is not TYPE=N", (int)len, p);
        add_devices(ret, p, (size_t)(eq - p), (int)n);
        p += len;
    }
    return 0;
}

static bool is_open(const json_t *node)
{
    size_t i;
    json_t *c;
    if (pst_json_bool(json_object_get(node, "spec"), "unschedulable", false))
        return false;
    json_array_foreach(json_object_get(json_object_get(node, "status"), "conditions"), i,
                       c) if (!strcmp(pst_json_str(c, "type", ""), "Ready")) return !strcmp(pst_json_str(c, "status", ""), "True");
    return true;
}

void kube_count_nodes(const kube_opts *opts, const json_t *nodes, pst_inventory *ret)
{
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(nodes, "items"), i, node)
    {
        const json_t *has = json_object_get(json_object_get(node, "status"), "allocatable");
        const char *type = pst_json_str(json_object_get(json_object_get(node, "metadata"), "labels"), opts->gpu_label, "");
        double v;
        if (!is_open(node))
            continue;
        if (!opts->cpus && kube_quantity(pst_json_str(has, "cpu", "0"), &v))
            ret->cpus += v;
        if (!opts->memory_bytes && kube_quantity(pst_json_str(has, "memory", "0"), &v))
            ret->memory_bytes += (int64_t)v;
        if (!opts->gpus && kube_quantity(pst_json_str(has, opts->gpu_resource, "0"), &v))
            add_devices(ret, type, strlen(type), (int)floor(v < DEVICES_MAX ? v : DEVICES_MAX));
    }
}

/* Pages of the list of nodes. */
static int ask(const kube_opts *opts, const kube_access *access, pst_fetch *f, pst_inventory *ret, pst_err *err)
{
    char *next = pst_strdup("");
    int rc = 0;
    do {
        char *coded = pst_fetch_escape(next, ""), *path = pst_sprintf("/api/v1/nodes?limit=500%s%s", *coded ? "&continue=" : "", coded);
        pst_fetch_answer answer;
        json_t *page = NULL;
        kube_get(access, f, path, &answer, &page);
        free(coded);
        free(path);
        free(next);
        next = pst_strdup(pst_json_str(json_object_get(page, "metadata"), "continue", ""));
        if (answer.end == PST_FETCH_STOPPED)
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_NONE, "kubernetes", 0, "asked to stop before the API server had answered");
        else if (answer.end == PST_FETCH_NOT_TRUSTED)
            rc = pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "kubernetes", 0, "%s is not trusted: %s", access->server, answer.why);
        else if (answer.end != PST_FETCH_ANSWERED)
            rc = pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "kubernetes", 0, "%s cannot be reached: %s", access->server, answer.why);
        else if (answer.status >= 500 || answer.status == 429)
            rc = pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "kubernetes", 0, "%s answers HTTP %ld", access->server, answer.status);
        else if (answer.status != 200)
            rc = pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "kubernetes", 0,
                             "%s does not tell of its nodes (HTTP %ld: %.200s): allow `list nodes`, or say what is offered: --offer-cpus, "
                             "--offer-memory, --offer-gpus",
                             access->server, answer.status, pst_json_str(page, "message", ""));
        else
            kube_count_nodes(opts, page, ret);
        json_decref(page);
    } while (!rc && *next);
    free(next);
    return rc;
}

int kube_capacity(const kube_opts *opts, const kube_access *access, pst_inventory *ret, pst_err *err)
{
    pst_fetch *f = NULL;
    pst_inventory v = {0};
    int rc = pst_fetch_open(&f, err);
    bool all_said = opts->cpus && opts->memory_bytes && opts->gpus;
    while (!rc) {
        v = (pst_inventory){.cpus = opts->cpus, .memory_bytes = opts->memory_bytes};
        rc = kube_offered_gpus(opts->gpus, &v, err);
        if (rc || all_said)
            break;
        rc = ask(opts, access, f, &v, err);
        if (!rc || err->cls != PST_CLASS_RETRY)
            break;
        free(v.devices);
        v.devices = NULL;
        if (!pst_retry("lcm", err, AGAIN_MS)) {
            rc = PST_ESTOPPED;
            break;
        }
        pst_err_clear(err);
        rc = 0;
    }
    pst_fetch_close(f);
    if (rc < 0)
        free(v.devices);
    else
        *ret = v;
    return rc;
}
