/* gang.c - a process meets the others of its generation. Nobody knows a port before the supervisor beside the process has reserved it there, so addresses
 * are told first and come back as one list, from which every process takes the same. The list waits in a file: who asks when, and who is started
 * anew in between, makes no difference. */
#include "lcm/supervisor/gang.h"

#include "common/base/address.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/stop.h"
#include "lcm/supervisor/run.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOSTS     "/etc/hosts"
#define HOSTS_MAX (1 << 20)

enum { LOOK_SOON_MS = 20, LOOK_MS = 100, SOON_US = 3000000, SAY_US = 30000000 };

static void name_of_host(char *ret, size_t size)
{
    if (gethostname(ret, size - 1) < 0)
        *ret = 0;
    ret[size - 1] = 0;
    bool good = *ret && *ret != '-';
    for (const char *p = ret; *p && good; p++)
        good = isalnum((unsigned char)*p) || strchr(".-_", *p);
    if (!good)
        snprintf(ret, size, "localhost");
}

/* It alone: rank 0 of 1, or of none. */
static void be_alone(sup_run *r)
{
    sup_gang *g = &r->gang;
    pst_member *m = pst_alloc(sizeof *m);
    bool ranked = r->rank >= 0;
    *m = (pst_member){.index = r->role_index,
                      .count = r->role->count,
                      .rank = r->rank,
                      .local_rank = ranked ? 0 : -1,
                      .local_size = ranked,
                      .port = g->ports.port[SUP_PORT_SERVICE],
                      .master_port = g->ports.port[SUP_PORT_MASTER],
                      .other_port = g->ports.port[SUP_PORT_OTHER],
                      .slots = r->spec.gpus > 1 ? r->spec.gpus : 1};
    snprintf(m->process, sizeof m->process, "%s", r->spec.process);
    snprintf(m->role, sizeof m->role, "%s", r->role->name);
    snprintf(m->address, sizeof m->address, "%s", g->ports.address);
    name_of_host(m->host, sizeof m->host);
    g->members = (pst_members){m, 1};
    g->self = m;
}

static void say_reachable(const sup_run *r, const char *host)
{
    const sup_ports *p = &r->gang.ports;
    char port[SUP_PORTS][8];
    for (int i = 0; i < SUP_PORTS; i++)
        snprintf(port[i], sizeof port[i], "%d", p->port[i]);
    pst_str_pair details[] = {{(char *)"host", (char *)host},
                              {(char *)"address", (char *)p->address},
                              {(char *)"port", port[SUP_PORT_SERVICE]},
                              {(char *)"master_port", port[SUP_PORT_MASTER]},
                              {(char *)"other_port", port[SUP_PORT_OTHER]}};
    sup_outlet_report(r->outlet, &(pst_process_report){
                                     .type = PST_REPORT_TYPE_REACHABLE, .details = details, .n_details = sizeof details / sizeof *details});
    sup_outlet_begin(r->outlet); /* others wait for it */
}

static int report_reachable(sup_run *r, pst_err *err)
{
    char host[256];
    name_of_host(host, sizeof host);
    int rc = sup_gang_note(r, host, err);
    say_reachable(r, host);
    return rc;
}

int sup_gang_open(sup_run *r, pst_err *err)
{
    sup_gang *g = &r->gang;
    int rc = sup_ports_reserve(r->address ? r->address : r->spec.address, &g->ports, err);
    if (rc < 0)
        return rc;
    g->open = true;
    g->dir = pst_fs_join(r->dir, "gang");
    g->hosts = pst_fs_join(g->dir, "hosts");
    g->hostfile = pst_fs_join(g->dir, "hostfile");
    if (mkdir(g->dir, 0755) < 0 && errno != EEXIST)
        return pst_err_sys(err, errno, "cannot make %s", g->dir);
    if (chmod(g->dir, 0755) < 0) /* a sandbox's user reads there */
        return pst_err_sys(err, errno, "cannot open %s to the learner", g->dir);
    if (pst_manifest_processes(&r->manifest) > 1)
        return report_reachable(r, err);
    be_alone(r);
    return 0;
}

static int contradicts(pst_err *err, const char *what)
{
    return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "members", 0, "the list of the gang's members cannot be used: %s", what);
}

/* Whether the list is of this generation as it stands here: a port that is not ours any more must not be told to a learner. */
static int check(const sup_run *r, const pst_members *m, const pst_member **ret_self, pst_err *err)
{
    const sup_ports *p = &r->gang.ports;
    char what[400];
    const pst_member *self = pst_members_find(m, r->spec.process);
    if (!self)
        return contradicts(err, "this process is not in it");
    if (strcmp(self->address, p->address) != 0 || self->port != p->port[SUP_PORT_SERVICE] ||
        self->master_port != p->port[SUP_PORT_MASTER] || self->other_port != p->port[SUP_PORT_OTHER])
        return contradicts(err, "it has another address of this process than the one that is reserved");
    if (strcmp(self->role, r->role->name) != 0 || self->index != r->role_index || self->rank != r->rank)
        return contradicts(err, "it has another role or rank of this process than the manifest");
    for (size_t i = 0; i < m->n; i++)
        if (!r->spec.address && strcmp(m->at[i].host, self->host) != 0 && pst_address_is_loopback(m->at[i].address)) {
            snprintf(what, sizeof what,
                     "%s runs on the host %.150s, where only that host reaches %s: its LCM is to be started with --advertise and an "
                     "address of its "
                     "network",
                     m->at[i].process, m->at[i].host, m->at[i].address);
            return contradicts(err, what);
        }
    *ret_self = self;
    return 0;
}

/* PST_EAGAIN: not yet. */
static int look(sup_run *r, const char *gen_dir, pst_err *err)
{
    pst_members m = {0};
    const pst_member *self = NULL;
    int rc = pst_members_read(gen_dir, &m, err);
    if (rc == PST_ENOTFOUND) {
        pst_err_clear(err);
        rc = r->rank == 0 && !r->spec.address ? sup_gang_gather(r, gen_dir, err) : PST_EAGAIN;
        if (!rc)
            rc = pst_members_read(gen_dir, &m, err);
    }
    if (rc == PST_EAGAIN)
        return rc;
    if (!rc)
        rc = check(r, &m, &self, err);
    if (rc < 0) {
        pst_members_done(&m);
        return rc;
    }
    r->gang.members = m;
    r->gang.self = self;
    return 0;
}

/* For as long as it takes: that a gang does not meet is the Trainer's to find out, who knows the others. Over several nodes it is told again and again that
 * this one waits: the Trainer may know every address, and the list not come here all the same (trainer/meeting.c). */
static int wait_for_members(sup_run *r, pst_err *err)
{
    char *gen_dir = pst_rundir_gen_dir(r->spec.state_dir, r->spec.training_id, r->spec.generation);
    int64_t begin = pst_mono_us(), say_at = begin + SAY_US, again_at = begin + SAY_US;
    int rc;
    while ((rc = look(r, gen_dir, err)) == PST_EAGAIN) {
        int64_t now = pst_mono_us();
        if (pst_stop_requested() || pst_rundir_stop_reason_read(r->dir) != PST_STOP_REASON_NONE) {
            rc = PST_ESTOPPED;
            break;
        }
        if (r->spec.address && now >= again_at) {
            char host[256];
            again_at = now + SAY_US;
            name_of_host(host, sizeof host);
            say_reachable(r, host);
        }
        if (now >= say_at) {
            say_at = now + 10 * SAY_US;
            sup_run_say(r, "waits for the addresses of the other processes of the gang");
        }
        struct pollfd stop = {.fd = pst_stop_fd(), .events = POLLIN};
        poll(&stop, 1, now - begin < SOON_US ? LOOK_SOON_MS : LOOK_MS);
    }
    free(gen_dir);
    return rc;
}

/* Takes text. */
static int put(const char *path, char *text, pst_err *err)
{
    int rc = pst_fs_replace(path, text, strlen(text), 0644, err);
    if (!rc && chmod(path, 0644) < 0) /* whatever the umask */
        rc = pst_err_sys(err, errno, "cannot open %s to the learner", path);
    free(text);
    return rc;
}

/* How many computers there are to it, by their addresses. */
static size_t count_hosts(const pst_members *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        bool seen = false;
        for (size_t k = 0; k < i && !seen; k++)
            seen = !strcmp(m->at[k].address, m->at[i].address);
        n += !seen;
    }
    return n;
}

int sup_gang_meet(sup_run *r, pst_err *err)
{
    sup_gang *g = &r->gang;
    int rc = g->self ? 0 : wait_for_members(r, err);
    if (rc < 0)
        return rc;
    if (r->spec.address)
        sup_run_say(
            r,
            "the gang has %zu processes over several nodes (%zu addresses), this one at %s; JOB_DIR, CHECKPOINT_DIR and RESULT_DIR are "
            "folders of node %s, shared with its processes only",
            g->members.n, count_hosts(&g->members), g->ports.address, r->spec.node);
    pst_buf hosts = {0};
    if (pst_fs_read(HOSTS, HOSTS_MAX, &hosts, NULL) < 0)
        pst_buf_adds(&hosts, "127.0.0.1 localhost\n");
    rc = put(g->hosts, sup_gang_hosts_text(&g->members, r->name_prefix, hosts.data ? hosts.data : ""), err);
    if (!rc)
        rc = put(g->hostfile, sup_gang_hostfile_text(&g->members, g->self), err);
    pst_buf_done(&hosts);
    return rc;
}

void sup_gang_ready(sup_run *r)
{
    if (r->gang.open)
        sup_ports_release(&r->gang.ports);
}

void sup_gang_close(sup_gang *g)
{
    if (g->open)
        sup_ports_done(&g->ports);
    pst_members_done(&g->members);
    free(g->dir);
    free(g->hosts);
    free(g->hostfile);
    *g = (sup_gang){0};
}
