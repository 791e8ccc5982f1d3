/* cgroup.c - control groups by plain files: mkdir makes a group, a line into cgroup.procs moves a process, a line into a limit's file sets it
 * (kernel documentation: admin-guide/cgroup-v2.rst, admin-guide/cgroup-v1/). What one host refuses another allows, so each step is tried and
 * what came of it is what counts. */
#include "common/base/cgroup.h"

#include "common/base/buf.h"
#include "common/base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define CPU_PERIOD_US 100000
#define CPU_LEAST_US  10000    /* a tenth of a processor: with less a shell takes seconds to start */
#define V1_MAGIC      0x27e0eb /* linux/magic.h */
#define V2_MAGIC      0x63677270

static bool is_file(const char *dir, const char *name)
{
    char path[PST_CGROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static int put(const char *dir, const char *name, const char *text)
{
    char path[PST_CGROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return pst_fs_put_text(path, text);
}

/* The whole small file; "" when it cannot be read. */
static void get(const char *dir, const char *name, char *ret, size_t size)
{
    char path[PST_CGROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *ret = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, ret, size - 1);
    ret[n > 0 ? n : 0] = 0;
    close(fd);
}

/* The number behind "key " at the start of a line; 0 when there is none. */
static int64_t field(const char *text, const char *key)
{
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (!strncmp(p, key, strlen(key)) && p[strlen(key)] == ' ')
            return strtoll(p + strlen(key) + 1, NULL, 10);
    return 0;
}

/* Where a hierarchy is mounted: controller "" = version 2. False when it is not, or not from its root (a bind mount of a part). */
static bool mount_of(const char *mounts, const char *controller, char *ret, size_t size)
{
    char line[2048], root[512], at[512], options[512];
    for (const char *p = mounts; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %511s %511s", root, at) != 2)
            continue;
        bool v2 = !strncmp(tail + 3, "cgroup2 ", 8), v1 = !strncmp(tail + 3, "cgroup ", 7);
        if (!(*controller ? v1 : v2) || strcmp(root, "/") != 0)
            continue;
        if (v1) {
            if (sscanf(tail + 3, "%*s %*s %511s", options) != 1)
                continue;
            bool found = false;
            char *save = NULL;
            for (char *o = strtok_r(options, ",", &save); o; o = strtok_r(NULL, ",", &save))
                found = found || !strcmp(o, controller);
            if (!found)
                continue;
        }
        snprintf(ret, size, "%s", at);
        return true;
    }
    return false;
}

/* Our own group in a hierarchy: "7:pids:/x" (version 1), "0::/x" (version 2). */
static bool own_group(const char *text, const char *controller, char *ret, size_t size)
{
    char line[1024];
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        list++;
        bool found = !*controller && !*list;
        char *save = NULL;
        for (char *o = *controller ? strtok_r(list, ",", &save) : NULL; o; o = strtok_r(NULL, ",", &save))
            found = found || !strcmp(o, controller);
        if (found && !strstr(path, "/..")) {
            snprintf(ret, size, "%s", strcmp(path, "/") != 0 ? path : "");
            return true;
        }
    }
    return false;
}

static bool limited(const char *dir, const char *name)
{
    char text[64];
    get(dir, name, text, sizeof text);
    return *text && strncmp(text, "max", 3) != 0;
}

static bool make_at(const char *parent, const char *name, char *ret)
{
    if (snprintf(ret, PST_CGROUP_PATH, "%s/%s", parent, name) >= PST_CGROUP_PATH)
        return false;
    if (mkdir(ret, 0755) < 0 && errno != EEXIST)
        return false;
    char procs[PST_CGROUP_PATH + 32];
    snprintf(procs, sizeof procs, "%s/cgroup.procs", ret);
    if (access(procs, W_OK) == 0)
        return true;
    rmdir(ret);
    return false;
}

/* Version 2: below ourselves, if our own processes do not stand in the way of controllers there ("no internal processes"); else beside us,
 * where the controllers are on already and nothing limits us that a neighbour would be free of. */
static void make_v2(const char *mounts, const char *groups, const char *name, pst_cgroup *g)
{
    char at[512], own[512], parent[PST_CGROUP_PATH], *dir = g->path[g->n];
    if (!mount_of(mounts, "", at, sizeof at) || !own_group(groups, "", own, sizeof own))
        return;
    if (snprintf(parent, sizeof parent, "%s%s", at, own) >= (int)sizeof parent)
        return;
    static const char *const wanted[] = {"+memory", "+pids", "+cpu"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        put(parent, "cgroup.subtree_control", wanted[i]);
    bool made = make_at(parent, name, dir);
    if ((!made || !is_file(dir, "memory.max")) && *own && !limited(parent, "memory.max") && !limited(parent, "pids.max")) {
        char beside[PST_CGROUP_PATH];
        *strrchr(parent, '/') = 0;
        if (make_at(parent, name, beside)) {
            if (made)
                rmdir(dir);
            snprintf(dir, PST_CGROUP_PATH, "%s", beside);
            made = true;
        }
    }
    if (!made)
        return;
    g->n++;
    g->have |= PST_CGROUP_KILL | (is_file(dir, "memory.max") ? PST_CGROUP_MEMORY : 0) |
               (is_file(dir, "pids.max") ? PST_CGROUP_PROCESSES : 0) | (is_file(dir, "cpu.max") ? PST_CGROUP_CPUS : 0);
}

static void make_v1(const char *mounts, const char *groups, const char *controller, unsigned what, const char *name, pst_cgroup *g)
{
    char at[512], own[512], parent[PST_CGROUP_PATH];
    if (g->have & what || !mount_of(mounts, controller, at, sizeof at) || !own_group(groups, controller, own, sizeof own))
        return;
    if (snprintf(parent, sizeof parent, "%s%s", at, own) >= (int)sizeof parent || !make_at(parent, name, g->path[g->n]))
        return;
    g->n++;
    g->have |= what | PST_CGROUP_KILL;
}

static void open_joins(pst_cgroup *g)
{
    for (int i = 0; i < g->n; i++) {
        char path[PST_CGROUP_PATH + 32];
        snprintf(path, sizeof path, "%s/cgroup.procs", g->path[i]);
        g->fd[i] = open(path, O_WRONLY | O_CLOEXEC);
    }
}

void pst_cgroup_make(const char *name, pst_cgroup *ret)
{
    pst_buf mounts = {0}, groups = {0};
    pst_cgroup g = {.fd = {-1, -1, -1, -1}};
    if (pst_fs_read("/proc/self/mountinfo", 4 << 20, &mounts, NULL) == 0 && pst_fs_read("/proc/self/cgroup", 1 << 20, &groups, NULL) == 0 &&
        mounts.len && groups.len) {
        pst_buf_addc(&mounts, 0);
        pst_buf_addc(&groups, 0);
        make_v2(mounts.data, groups.data, name, &g);
        make_v1(mounts.data, groups.data, "memory", PST_CGROUP_MEMORY, name, &g);
        make_v1(mounts.data, groups.data, "pids", PST_CGROUP_PROCESSES, name, &g);
        make_v1(mounts.data, groups.data, "cpu", PST_CGROUP_CPUS, name, &g);
    }
    pst_buf_done(&mounts);
    pst_buf_done(&groups);
    open_joins(&g);
    *ret = g;
}

static bool put_in_any(const pst_cgroup *g, const char *name, const char *text)
{
    for (int i = 0; i < g->n; i++)
        if (is_file(g->path[i], name))
            return put(g->path[i], name, text) == 0;
    return false;
}

void pst_cgroup_limit(pst_cgroup *g, const pst_cgroup_limits *limits)
{
    char text[64];
    if (limits->memory_bytes > 0) {
        snprintf(text, sizeof text, "%lld", (long long)limits->memory_bytes);
        bool set = put_in_any(g, "memory.max", text) || put_in_any(g, "memory.limit_in_bytes", text);
        if (set) { /* swap would only put the end off */
            if (!put_in_any(g, "memory.swap.max", "0"))
                put_in_any(g, "memory.memsw.limit_in_bytes", text);
            put_in_any(g, "memory.oom.group", "1");
            g->enforced |= PST_CGROUP_MEMORY;
        }
    }
    if (limits->processes > 0) {
        snprintf(text, sizeof text, "%lld", (long long)limits->processes);
        g->enforced |= put_in_any(g, "pids.max", text) ? PST_CGROUP_PROCESSES : 0;
    }
    if (limits->cpus > 0) {
        long long quota = (long long)(limits->cpus * CPU_PERIOD_US);
        if (quota < CPU_LEAST_US)
            quota = CPU_LEAST_US;
        snprintf(text, sizeof text, "%lld %d", quota, CPU_PERIOD_US);
        bool set = put_in_any(g, "cpu.max", text);
        if (!set) {
            snprintf(text, sizeof text, "%lld", quota);
            set = put_in_any(g, "cpu.cfs_quota_us", text);
        }
        g->enforced |= set ? PST_CGROUP_CPUS : 0;
    }
}

int pst_cgroup_join(const pst_cgroup *g)
{
    int rc = 0;
    for (int i = 0; i < g->n; i++)
        if (g->fd[i] >= 0 && write(g->fd[i], "0", 1) < 0 && !rc)
            rc = errno;
    return rc;
}

void pst_cgroup_close(pst_cgroup *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->fd[i] >= 0) {
            close(g->fd[i]);
            g->fd[i] = -1;
        }
}

unsigned pst_cgroup_hits(const pst_cgroup *g)
{
    unsigned hits = 0;
    char text[1024];
    for (int i = 0; i < g->n; i++) {
        get(g->path[i], "memory.events", text, sizeof text);
        bool killed = field(text, "oom_kill") > 0;
        get(g->path[i], "memory.oom_control", text, sizeof text);
        killed = killed || field(text, "oom_kill") > 0;
        get(g->path[i], "pids.events", text, sizeof text);
        hits |= (killed ? PST_CGROUP_MEMORY : 0) | (field(text, "max") > 0 ? PST_CGROUP_PROCESSES : 0);
    }
    return hits;
}

int64_t pst_cgroup_refused(const pst_cgroup *g)
{
    int64_t most = 0;
    char text[256];
    for (int i = 0; i < g->n; i++) {
        get(g->path[i], "pids.events", text, sizeof text);
        int64_t n = field(text, "max");
        most = n > most ? n : most;
    }
    return most;
}

/* Counts the members of a folder; with sig signals each. A pid of 0 is a process of a namespace that we do not see. */
static int members(const char *dir, int sig)
{
    char path[PST_CGROUP_PATH + 32];
    pst_buf b = {0};
    int n = 0;
    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    if (pst_fs_read(path, 16 << 20, &b, NULL) < 0)
        return 0;
    pst_buf_addc(&b, 0);
    for (char *p = b.data, *end; *p; p = *end ? end + 1 : end) {
        long pid = strtol(p, &end, 10);
        if (end == p)
            break;
        n++;
        if (sig && pid > 1 && pid != getpid())
            kill((pid_t)pid, sig);
    }
    pst_buf_done(&b);
    return n;
}

int pst_cgroup_kill(const pst_cgroup *g)
{
    int most = 0;
    for (int i = 0; i < g->n; i++) {
        int n = members(g->path[i], 0);
        if (!n)
            continue;
        put(g->path[i], "pids.max", "0"); /* nothing more is forked: a bomb cannot outrun us */
        if (put(g->path[i], "cgroup.kill", "1") != 0)
            members(g->path[i], SIGKILL);
        n = members(g->path[i], 0);
        most = n > most ? n : most;
    }
    return most;
}

void pst_cgroup_remove(const pst_cgroup *g)
{
    for (int i = 0; i < g->n; i++)
        rmdir(g->path[i]);
}

static int remove_stale_in(const char *parent, const char *prefix, time_t before)
{
    DIR *d = opendir(parent);
    struct stat st;
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, prefix, strlen(prefix)) && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(st.st_mode) && st.st_mtime < before &&
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) == 0) /* refused while anything is in it */
            n++;
    if (d)
        closedir(d);
    return n;
}

int pst_cgroup_remove_stale(const char *prefix, int64_t older_than_s)
{
    static const char *const controllers[] = {"", "memory", "pids", "cpu"};
    pst_buf mounts = {0}, groups = {0};
    int n = 0;
    if (pst_fs_read("/proc/self/mountinfo", 4 << 20, &mounts, NULL) == 0 && pst_fs_read("/proc/self/cgroup", 1 << 20, &groups, NULL) == 0 &&
        mounts.len && groups.len) {
        pst_buf_addc(&mounts, 0);
        pst_buf_addc(&groups, 0);
        for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++) {
            char at[512], own[512], parent[PST_CGROUP_PATH];
            if (!mount_of(mounts.data, controllers[i], at, sizeof at) || !own_group(groups.data, controllers[i], own, sizeof own) ||
                snprintf(parent, sizeof parent, "%s%s", at, own) >= (int)sizeof parent)
                continue;
            n += remove_stale_in(parent, prefix, time(NULL) - (time_t)older_than_s);
            if (*own && !*controllers[i]) { /* make_v2: beside us */
                *strrchr(parent, '/') = 0;
                n += remove_stale_in(parent, prefix, time(NULL) - (time_t)older_than_s);
            }
        }
    }
    pst_buf_done(&mounts);
    pst_buf_done(&groups);
    return n;
}

char *pst_cgroup_text(const pst_cgroup *g)
{
    pst_buf b = {0};
    for (int i = 0; i < g->n; i++)
        pst_buf_printf(&b, "%s\n", g->path[i]);
    return b.data ? pst_buf_steal(&b) : pst_strdup("");
}

void pst_cgroup_from_text(const char *text, const char *name, pst_cgroup *ret)
{
    pst_cgroup g = {.fd = {-1, -1, -1, -1}};
    size_t len = strlen(name);
    for (const char *p = text; *p && g.n < PST_CGROUP_MAX; p += strcspn(p, "\n"), p += *p == '\n') {
        char *path = g.path[g.n];
        size_t n = strcspn(p, "\n");
        if (n >= PST_CGROUP_PATH || n <= len + 1 || strncmp(p + n - len, name, len) != 0 || p[n - len - 1] != '/' || *p != '/')
            continue;
        snprintf(path, PST_CGROUP_PATH, "%.*s", (int)n, p);
        struct statfs fs; /* a folder that only looks like a group could name anybody's processes */
        if (strstr(path, "/../") || statfs(path, &fs) < 0 || (fs.f_type != V1_MAGIC && fs.f_type != V2_MAGIC))
            continue;
        g.n++;
        g.have |= PST_CGROUP_KILL;
    }
    *ret = g;
}
