/* node_id.c - a node is its state folder: what runs there was started under the folder's name, and would be lost under another. So the id is
 * drawn once and kept there, not taken from the host, which may be renamed, cloned, or have two such folders. */
#include "lcm/node_id.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/lock.h"
#include "common/objects/rundir.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 65536, HOST_MAX = 40 };

static int save(const lcm_node_id *id, pst_err *err)
{
    char *path = pst_fs_join(id->dir, "node.json");
    json_t *j = json_pack("{s:s, s:I, s:b}", "node", id->name, "epoch", (json_int_t)id->epoch, "draining", id->draining);
    char *text = pst_json_text(j);
    int rc = pst_fs_write_atomic(path, text, strlen(text), 0600, err);
    json_decref(j);
    free(text);
    free(path);
    return rc;
}

/* "gpu7-3fa9c210": the host for people, the rest because two computers, or two folders of one, may have the same. */
static void make_name(char ret_name[64])
{
    char host[256] = "";
    uint8_t some[4];
    size_t n = 0;
    gethostname(host, sizeof host - 1);
    for (const char *p = host; *p && *p != '.' && n < HOST_MAX; p++)
        if (isalnum((unsigned char)*p) || *p == '-')
            ret_name[n++] = (char)tolower((unsigned char)*p);
    ret_name[n] = 0;
    if (!isalnum((unsigned char)*ret_name))
        n = (size_t)snprintf(ret_name, 64, "node");
    ret_name[n++] = '-';
    pst_random(some, sizeof some);
    pst_hex(some, sizeof some, ret_name + n);
}

static int load(lcm_node_id *id, pst_err *err)
{
    char *path = pst_fs_join(id->dir, "node.json");
    pst_buf b = {0};
    json_t *j = NULL;
    int rc = pst_fs_read(path, FILE_MAX, &b, err);
    if (!rc)
        rc = pst_json_parse(b.data, b.len, path, &j, err);
    const char *name = rc ? NULL : pst_json_str(j, "node", "");
    if (!rc && (!pst_rundir_name_ok(name) || strlen(name) >= sizeof id->name))
        rc =
            pst_err_set(err, PST_EPARSE, PST_CLASS_FATAL, "lcm", 0, "%s names no node: remove it, and this LCM becomes another node", path);
    if (!rc) {
        snprintf(id->name, sizeof id->name, "%s", name);
        id->epoch = pst_json_int(j, "epoch", 0);
        id->draining = json_is_true(json_object_get(j, "draining"));
    }
    json_decref(j);
    pst_buf_done(&b);
    free(path);
    return rc;
}

int lcm_node_id_lock(const char *state_dir, const char *site, pst_err *err)
{
    char *dir = pst_sprintf("%s/sites/%s", state_dir, site), *path = pst_fs_join(dir, "lock");
    char *words = pst_sprintf("site=%s reason=\"another LCM runs this site from this state folder; waiting until it has gone\"", site);
    int rc = pst_fs_mkdirs(dir, 0700, err);
    if (!rc)
        rc = pst_lock_wait(path, PST_LOCK_VISIBLE, "lcm", words, err);
    free(words);
    free(path);
    free(dir);
    return rc;
}

int lcm_node_id_open(const char *state_dir, const char *site, const char *name, lcm_node_id *ret_id, pst_err *err)
{
    lcm_node_id id = {.dir = pst_sprintf("%s/sites/%s", state_dir, site)};
    int rc = pst_fs_mkdirs(id.dir, 0700, err);
    bool folder = !rc;
    if (folder)
        rc = load(&id, err);
    if (folder && rc == PST_ENOTFOUND) { /* the first start under this state folder and site */
        pst_err_clear(err);
        rc = 0;
        if (name)
            snprintf(id.name, sizeof id.name, "%s", name);
        else
            make_name(id.name);
    } else if (!rc && name && strcmp(name, id.name)) {
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "--node %s: the state folder %s is that of node %s, and what runs there runs under that name; "
                         "use another --state-dir",
                         name, state_dir, id.name);
    }
    id.epoch++;
    if (!rc)
        rc = save(&id, err);
    if (rc < 0)
        lcm_node_id_done(&id);
    else
        *ret_id = id;
    return rc;
}

int lcm_node_id_drain(lcm_node_id *id, bool draining, pst_err *err)
{
    id->draining = draining;
    return save(id, err);
}

void lcm_node_id_done(lcm_node_id *id)
{
    free(id->dir);
    id->dir = NULL;
}
