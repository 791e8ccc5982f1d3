/* gang_local.c - processes of one host meet in the generation's folder. Each leaves there by which address and ports it is reached; the one of rank 0 makes
 * the list of it as soon as all have. So a gang on one computer starts while the broker is away, and waits for no round to the Trainer and back.
 * Where some are on another host, their notes are not there, and the list comes from the LCM (gang.h). */
#include "lcm/supervisor/gang.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "lcm/supervisor/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME      "reachable.json"
#define BYTES_MAX 4096

int sup_gang_note(const sup_run *r, const char *host, pst_err *err)
{
    const sup_ports *p = &r->gang.ports;
    json_t *j = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i}", "host", host, "address", p->address, "port", p->port[SUP_PORT_SERVICE],
                          "master_port", p->port[SUP_PORT_MASTER], "other_port", p->port[SUP_PORT_OTHER], "gpus", r->spec.gpus);
    char *path = pst_fs_join(r->dir, NAME), *text = pst_json_text(j);
    int rc = pst_fs_replace(path, text, strlen(text), 0600, err);
    json_decref(j);
    free(text);
    free(path);
    return rc;
}

static int port_of(const json_t *j, const char *key)
{
    int64_t v = pst_json_int(j, key, 0);
    return v > 0 && v < 65536 ? (int)v : 0; /* 0: pst_members_write() refuses it */
}

/* The i-th process of the manifest, by its note; its rank is filled in by the caller. */
static int read_note(const sup_run *r, const char *gen_dir, int i, pst_member *ret, pst_err *err)
{
    pst_member m = {.rank = -1, .local_rank = -1};
    const pst_role *role = pst_manifest_process(&r->manifest, i, m.process);
    char *dir = pst_fs_join(gen_dir, m.process), *path = pst_fs_join(dir, NAME);
    pst_buf b = {0};
    json_t *j = NULL;
    int rc = pst_fs_read(path, BYTES_MAX, &b, err);
    if (!rc)
        rc = pst_json_parse(b.data, b.len, path, &j, err);
    if (!rc && pst_manifest_role(&r->manifest, m.process, &m.index)) {
        int64_t gpus = pst_json_int(j, "gpus", 0);
        snprintf(m.role, sizeof m.role, "%s", role->name);
        snprintf(m.host, sizeof m.host, "%s", pst_json_str(j, "host", ""));
        snprintf(m.address, sizeof m.address, "%s", pst_json_str(j, "address", ""));
        m.count = role->count;
        m.port = port_of(j, "port");
        m.master_port = port_of(j, "master_port");
        m.other_port = port_of(j, "other_port");
        m.slots = gpus > 1 && gpus < 1024 ? (int)gpus : 1;
        *ret = m;
    }
    json_decref(j);
    pst_buf_done(&b);
    free(path);
    free(dir);
    return rc;
}

/* Pods share the folder, and each is a host of its own. */
static int count_on_host(const pst_member *at, int n, const char *host)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += at[i].rank >= 0 && !strcmp(at[i].host, host);
    return count;
}

int sup_gang_gather(const sup_run *r, const char *gen_dir, pst_err *err)
{
    int n = pst_manifest_processes(&r->manifest), rank = 0, rc = 0;
    pst_member *at = pst_alloc((size_t)n * sizeof *at);
    for (int i = n - 1; i >= 0 && !rc; i--) /* the last is started last */
        rc = read_note(r, gen_dir, i, &at[i], err);
    for (int i = 0; i < n && !rc; i++)
        if (pst_role_is_ranked(at[i].role)) {
            at[i].rank = rank++;
            at[i].local_rank = count_on_host(at, i, at[i].host);
        }
    for (int i = 0; i < n && !rc; i++)
        if (at[i].rank >= 0)
            at[i].local_size = count_on_host(at, n, at[i].host);
    if (!rc)
        rc = pst_members_write(gen_dir, &(pst_members){at, (size_t)n}, err);
    free(at);
    if (rc == PST_ENOTFOUND)
        pst_err_clear(err);
    return rc == PST_ENOTFOUND ? PST_EAGAIN : rc;
}
