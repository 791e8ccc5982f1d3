/* members.c - the list is small JSON, written beside and renamed. It is checked as a whole both ways: a port or a name out of it becomes part of an
 * environment, a hosts file and a path, and it comes from reports of other computers. */
#include "common/objects/members.h"

#include "common/base/address.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/objects/rundir.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME      "members.json"
#define FILE_MAX  (4 << 20)
#define SLOTS_MAX 1024

static int refuse(pst_err *err, const pst_member *m, const char *what)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "members", 0, "the list of a gang's members: %.31s has %s", m->process, what);
}

static bool is_host(const char *host)
{
    for (const char *p = host; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr(".-_", *p))
            return false;
    return *host && *host != '-';
}

static bool is_port(int port)
{
    return port > 0 && port < 65536;
}

static int check_one(const pst_member *m, size_t n, pst_err *err)
{
    if (!pst_rundir_name_ok(m->process))
        return refuse(err, m, "no name of a process");
    if (!pst_rundir_name_ok(m->role))
        return refuse(err, m, "no name of a role");
    if (m->count < 1 || (size_t)m->count > n || m->index < 0 || m->index >= m->count)
        return refuse(err, m, "an index that its role's count does not have");
    if (m->rank < -1 || m->rank >= (int)n)
        return refuse(err, m, "a rank that is not below the number of members");
    if (m->rank < 0 ? m->local_rank != -1 || m->local_size : m->local_rank < 0 || m->local_rank >= m->local_size || m->local_size > (int)n)
        return refuse(err, m, "a local rank that is not below its host's number");
    if (!is_host(m->host))
        return refuse(err, m, "no name of a host");
    if (!pst_address_is_numeric(m->address))
        return refuse(err, m, "no numeric address");
    if (!is_port(m->port) || !is_port(m->master_port) || !is_port(m->other_port))
        return refuse(err, m, "a port that is not in 1 to 65535");
    if (m->slots < 1 || m->slots > SLOTS_MAX)
        return refuse(err, m, "a number of slots that is not in 1 to 1024");
    return 0;
}

/* Of `n` members, of which some have ranks: 0, 1, 2, … each once. */
static int check_ranks(const pst_members *m, pst_err *err)
{
    bool *seen = pst_alloc(m->n * sizeof *seen);
    size_t ranked = 0;
    int rc = 0;
    for (size_t i = 0; i < m->n && !rc; i++) {
        if (m->at[i].rank < 0)
            continue;
        if (seen[m->at[i].rank])
            rc = refuse(err, &m->at[i], "a rank that another one has");
        seen[m->at[i].rank] = true;
        ranked++;
    }
    for (size_t i = 0; i < ranked && !rc; i++)
        if (!seen[i])
            rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "members", 0, "the list of a gang's members: nobody has rank %zu", i);
    free(seen);
    return rc;
}

static int check(const pst_members *m, pst_err *err)
{
    int rc = 0;
    if (!m->n || m->n > PST_MEMBERS_MAX)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "members", 0, "the list of a gang's members has %zu; 1 to %d are possible",
                           m->n, PST_MEMBERS_MAX);
    for (size_t i = 0; i < m->n && !rc; i++) {
        rc = check_one(&m->at[i], m->n, err);
        for (size_t k = 0; k < i && !rc; k++)
            if (!strcmp(m->at[i].process, m->at[k].process))
                rc = refuse(err, &m->at[i], "two entries");
    }
    return rc ? rc : check_ranks(m, err);
}

static json_t *to_json(const pst_member *m)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:i, s:i, s:i, s:i}", "process", m->process, "role", m->role, "index",
                     m->index, "count", m->count, "rank", m->rank, "local_rank", m->local_rank, "local_size", m->local_size, "host",
                     m->host, "address", m->address, "port", m->port, "master_port", m->master_port, "other_port", m->other_port, "slots",
                     m->slots);
}

int pst_members_write(const char *gen_dir, const pst_members *m, pst_err *err)
{
    int rc = check(m, err);
    if (rc < 0)
        return rc;
    json_t *list = json_array(), *all = json_object();
    for (size_t i = 0; i < m->n; i++)
        json_array_append_new(list, to_json(&m->at[i]));
    json_object_set_new(all, "members", list);
    char *path = pst_fs_join(gen_dir, NAME), *text = pst_json_text(all);
    rc = pst_fs_write_atomic(path, text, strlen(text), 0600, err);
    json_decref(all);
    free(text);
    free(path);
    return rc;
}

/* A text that does not fit, or is none, is empty, and an empty one is refused. */
static void get_text(const json_t *j, const char *key, char *to, size_t size)
{
    const char *text = pst_json_str(j, key, "");
    if (strlen(text) < size)
        snprintf(to, size, "%s", text);
}

/* A number that an int does not hold is one that no member has. */
static int get_int(const json_t *j, const char *key)
{
    int64_t v = pst_json_int(j, key, -2);
    return v < -1 || v > INT32_MAX ? -2 : (int)v;
}

static pst_member from_json(const json_t *j)
{
    pst_member m = {.index = get_int(j, "index"),
                    .count = get_int(j, "count"),
                    .rank = get_int(j, "rank"),
                    .local_rank = get_int(j, "local_rank"),
                    .local_size = get_int(j, "local_size"),
                    .port = get_int(j, "port"),
                    .master_port = get_int(j, "master_port"),
                    .other_port = get_int(j, "other_port"),
                    .slots = get_int(j, "slots")};
    get_text(j, "process", m.process, sizeof m.process);
    get_text(j, "role", m.role, sizeof m.role);
    get_text(j, "host", m.host, sizeof m.host);
    get_text(j, "address", m.address, sizeof m.address);
    return m;
}

int pst_members_read(const char *gen_dir, pst_members *ret_members, pst_err *err)
{
    char *path = pst_fs_join(gen_dir, NAME);
    pst_buf b = {0};
    json_t *j = NULL;
    pst_members m = {0};
    int rc = pst_fs_read(path, FILE_MAX, &b, err);
    if (!rc)
        rc = pst_json_parse(b.data, b.len, path, &j, err);
    if (!rc) {
        const json_t *list = json_object_get(j, "members");
        m.n = json_array_size(list);
        m.at = pst_alloc((m.n + 1) * sizeof *m.at);
        for (size_t i = 0; i < m.n; i++)
            m.at[i] = from_json(json_array_get(list, i));
        rc = check(&m, err);
        pst_err_prefix(err, "%s", path);
    }
    if (rc < 0)
        pst_members_done(&m);
    else
        *ret_members = m;
    json_decref(j);
    pst_buf_done(&b);
    free(path);
    return rc;
}

void pst_members_done(pst_members *m)
{
    free(m->at);
    *m = (pst_members){0};
}

const pst_member *pst_members_find(const pst_members *m, const char *process)
{
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->at[i].process, process))
            return &m->at[i];
    return NULL;
}
