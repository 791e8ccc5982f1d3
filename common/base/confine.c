/* confine.c - a process is confined, as far as it can be here. What a kernel, a container or a security module refuses is found out by doing it in a child, not by reading
 * version numbers. The rules of each step: landlock(7), capabilities(7), mount_namespaces(7), user_namespaces(7), pivot by covering: the folder
 * to hide gets an empty one mounted over it, into which what must stay is moved as mounts that were cloned before. */
#include "common/base/confine.h"

#include "common/base/buf.h"
#include "common/base/confine_mount.h"
#include "common/base/confine_pids.h"
#include "common/base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* landlock.h of the oldest system that we build on is older than what we use. */
#define LL_MAKE_BLOCK   (1ull << 11)
#define LL_REFER        (1ull << 13)
#define LL_SCOPE_SIGNAL (1ull << 1)
#define HOSTS           "/etc/hosts"
#define LL_RULE_PATH    1
#define LL_VERSION      1u
typedef struct landlock_attr {
    uint64_t fs, net, scoped;
} landlock_attr;
typedef struct __attribute__((packed)) landlock_path {
    uint64_t allowed;
    int32_t parent;
} landlock_path;

/* What a job's command keeps of root's rights: to own and to reach files. It cannot look into processes, load, mount, trace, or change user. */
static const int kept_caps[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_NET_BIND_SERVICE};

/* ---- steps, all of them safe after a fork ------------------------------------------------------------------------------------- */

/* Decimal digits without printf, which may lock. Returns the end. */
static char *put_number(char *to, unsigned long v)
{
    char digits[24];
    int n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *to++ = digits[--n];
    return to;
}

static void identity_map(char *to, unsigned long id)
{
    to = put_number(to, id);
    *to++ = ' ';
    to = put_number(to, id);
    memcpy(to, " 1", 3);
}

/* Mounts of its own. Without being root that takes a user namespace, in which we stay who we are. */
static int own_mounts(uid_t uid, gid_t gid)
{
    char map[64];
    if (uid == 0)
        return unshare(CLONE_NEWNS) < 0 ? errno : 0;
    prctl(PR_SET_DUMPABLE, 1); /* else the maps belong to root; closed again below, before anything else runs */
    int e = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? errno : 0;
    if (!e)
        e = pst_fs_put_text("/proc/self/setgroups", "deny");
    identity_map(map, uid);
    if (!e)
        e = pst_fs_put_text("/proc/self/uid_map", map);
    identity_map(map, gid);
    if (!e)
        e = pst_fs_put_text("/proc/self/gid_map", map);
    prctl(PR_SET_DUMPABLE, 0);
    return e;
}

/* mkdir -p inside the empty folder that covers the hidden one; path is writable memory. */
static void make_way(char *path, size_t from)
{
    for (char *p = path + from + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        pst_confine_folder(path);
        *p = '/';
    }
    pst_confine_folder(path);
}

/* Whether path is the folder, or below it. */
static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

static bool is_temporary(const char *path)
{
    return !strcmp(path, "/tmp") || !strcmp(path, "/var/tmp") || !strcmp(path, "/dev/shm");
}

static int cover(const char *path)
{
    bool scratch = is_temporary(path);
    return mount("none", path, "tmpfs", MS_NOSUID | MS_NODEV, scratch ? "mode=1777" : "size=256k,mode=0755") < 0 ? errno : 0;
}

/* A file that is nobody's business looks empty and takes nothing; a folder is empty. Sockets are files: whoever listens there hears nothing. */
static int mask(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return cover(path);
    return mount("/dev/null", path, NULL, MS_BIND, NULL) < 0 ? errno : 0;
}

/* As it is, but nothing in it can be changed. */
static int fix(const char *path)
{
    int tree = pst_confine_take(path), e = tree < 0 ? errno : pst_confine_set(tree, "", PST_CONFINE_RDONLY);
    if (!e)
        e = pst_confine_put(tree, path, true);
    if (tree >= 0)
        close(tree);
    return e == ENOENT || e == ENOSYS ? 0 : e;
}

static int put_back(const pst_confine_spec *w, const int *tree)
{
    int e = 0;
    for (int i = 0; i < w->n_keep && !e; i++) {
        for (int k = 0; k < w->n_hide; k++)
            if (is_below(w->keep[i], w->hide[k]))
                make_way((char *)w->keep[i], strlen(w->hide[k]));
        e = pst_confine_put(tree[i], w->keep[i], true);
    }
    return e;
}

/* Everything becomes read-only, and what is open is put over it as it was. A kernel that cannot do so (before 5.12) leaves all as it is. */
static int close_all_but(const pst_confine_spec *w)
{
    int tree[PST_CONFINE_OPEN], e = 0, n = 0;
    for (; n < w->n_open && !e; n++)
        if ((tree[n] = pst_confine_take(w->open[n])) < 0)
            e = errno;
    if (!e)
        e = pst_confine_set(-1, "/", PST_CONFINE_RDONLY);
    for (int i = 0; i < n && !e; i++)
        e = pst_confine_put(tree[i], w->open[i], true);
    return e == ENOSYS ? 0 : e;
}

/* Over the host's file, which nobody changes: names are looked up there by every program, whatever C library it has. */
static int put_hosts(int tree)
{
    int e = pst_confine_set(tree, "", PST_CONFINE_RDONLY);
    return e ? e : pst_confine_put(tree, HOSTS, false);
}

static int arrange_folders(const pst_confine *c, bool sandbox)
{
    const pst_confine_spec *w = &c->spec;
    int tree[PST_CONFINE_PATHS], e = 0, hosts = -1;
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) /* what the host mounts later is seen, what we do stays here */
        return errno;
    if (c->can & PST_CAN_DEVICES)
        e = pst_confine_devices_enter(&c->devices);
    for (int i = 0; i < w->n_keep && !e; i++)
        if ((tree[i] = pst_confine_take(w->keep[i])) < 0)
            e = errno;
    if (w->hosts && !e && (hosts = pst_confine_take(w->hosts)) < 0)
        e = errno;
    if (sandbox && !e)
        e = pst_confine_set(-1, "/", PST_CONFINE_RDONLY);
    else if (w->n_open && !e)
        e = close_all_but(w);
    for (int i = 0; i < w->n_fix && !sandbox && !e; i++)
        e = fix(w->fix[i]);
    for (int i = 0; i < w->n_hide && !e; i++)
        e = cover(w->hide[i]);
    for (int i = 0; i < w->n_mask && !e; i++)
        e = mask(w->mask[i]);
    if (!e)
        e = put_back(w, tree);
    if (hosts >= 0 && !e)
        e = put_hosts(hosts);
    for (int i = 0; i < w->n_hide && !e; i++)
        if (!is_temporary(w->hide[i]) && mount("none", w->hide[i], NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
            e = errno;
    return e;
}

/* The switches of the whole computer belong to root's uid, with or without its rights. Where they cannot be covered they stay as they are. */
static void guard_switches(void)
{
    static const char *const paths[] = {"/proc/sys", "/proc/sysrq-trigger", "/sys"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (mount(paths[i], paths[i], NULL, MS_BIND, NULL) == 0)
            mount(NULL, paths[i], NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static int landlock_version(void)
{
    long v = syscall(SYS_landlock_create_ruleset, NULL, 0, LL_VERSION);
    return v < 0 ? 0 : (int)v;
}

/* A domain: nothing outside of it can be traced or looked into from inside, and from ABI 6 on nothing outside be signalled. The one access
 * that a ruleset must name is one that nobody misses. ABI 1 would forbid to move files between folders: too much. */
static int landlock(bool scope_signals)
{
    landlock_attr a = {.fs = LL_MAKE_BLOCK | LL_REFER, .scoped = scope_signals ? LL_SCOPE_SIGNAL : 0};
    int set = (int)syscall(SYS_landlock_create_ruleset, &a, scope_signals ? sizeof a : sizeof a.fs, 0);
    int root = open("/", O_PATH | O_CLOEXEC), e = set < 0 || root < 0 ? errno : 0;
    landlock_path all = {.allowed = LL_REFER, .parent = root};
    if (!e && syscall(SYS_landlock_add_rule, set, LL_RULE_PATH, &all, 0) < 0)
        e = errno;
    if (!e && syscall(SYS_landlock_restrict_self, set, 0) < 0)
        e = errno;
    if (set >= 0)
        close(set);
    if (root >= 0)
        close(root);
    return e;
}

static uint64_t kept_mask(void)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < sizeof kept_caps / sizeof *kept_caps; i++)
        mask |= 1ull << kept_caps[i];
    return mask;
}

static int drop_caps(uint64_t keep)
{
    for (int cap = 0; cap < 64; cap++)
        if (!(keep >> cap & 1))
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* refused beyond the last one, and to whoever has none to drop */
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0)
        return errno;
    for (int i = 0; i < 2; i++) {
        data[i].permitted &= (uint32_t)(keep >> 32 * i);
        data[i].effective = data[i].permitted;
        data[i].inheritable = 0;
    }
    return syscall(SYS_capset, &head, data) < 0 ? errno : 0;
}

static void limit(int what, int64_t most)
{
    struct rlimit r;
    if (most <= 0 || getrlimit((__rlimit_resource_t)what, &r) < 0)
        return;
    if (r.rlim_max == RLIM_INFINITY || (rlim_t)most < r.rlim_max)
        r.rlim_max = (rlim_t)most;
    if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > r.rlim_max)
        r.rlim_cur = r.rlim_max;
    setrlimit((__rlimit_resource_t)what, &r);
}

static int own_root(pst_confine *c)
{
    c->step = "a root folder with /job";
    return c->can & PST_CAN_ROOT ? pst_confine_root_enter(&c->root) : 0;
}

/* As the first process of a sandbox: what it sees. */
static int furnish(void *arg)
{
    pst_confine *c = arg;
    c->step = "arranging folders";
    int e = arrange_folders(c, true);
    if (!e) {
        c->step = "a /proc of its own";
        e = mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? errno : 0;
    }
    if (!e)
        guard_switches();
    return e ? e : own_root(c);
}

static int become(uid_t user)
{
    gid_t group = (gid_t)user;
    return setgroups(0, NULL) < 0 || setresgid(group, group, group) < 0 || setresuid(user, user, user) < 0 ? errno : 0;
}

/* The order is forced: namespaces and mounts need rights that later steps give up, and capabilities go last, because the change of user needs
 * them. c->step names the step under way, for the error that the parent reports. */
int pst_confine_enter(pst_confine *c)
{
    int e = 0;
    bool sandbox = c->can & PST_CAN_SANDBOX;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    limit(RLIMIT_FSIZE, c->spec.file_bytes_max);
    limit(RLIMIT_NPROC, c->spec.processes_max);
    if (c->can & (PST_CAN_MOUNTS | PST_CAN_SANDBOX)) {
        c->step = "a mount namespace";
        e = own_mounts(c->uid, c->gid);
    }
    if (!e && sandbox) {
        c->step = "a process namespace";
        e = pst_confine_pids(furnish, c, c->spec.grace_ms);
    } else if (!e && c->can & PST_CAN_MOUNTS) {
        c->step = "hiding the platform's folders";
        e = arrange_folders(c, false);
        if (!e && c->uid == 0 && c->can & PST_CAN_NO_NEW_PRIVS)
            guard_switches();
        if (!e)
            e = own_root(c);
    }
    if (!e && c->can & PST_CAN_NO_NEW_PRIVS) {
        c->step = "no_new_privs";
        e = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? errno : 0;
    }
    if (!e && c->can & PST_CAN_LANDLOCK) {
        c->step = "Landlock";
        e = landlock(c->can & PST_CAN_SCOPE_SIGNALS);
    }
    if (!e && sandbox && c->spec.user) {
        c->step = "a user of its own";
        e = become(c->spec.user);
    }
    if (!e && c->can & PST_CAN_NO_NEW_PRIVS) {
        c->step = "giving up capabilities";
        e = drop_caps(c->uid == 0 && !sandbox ? kept_mask() : 0);
    }
    return e;
}

/* ---- before the fork ---------------------------------------------------------------------------------------------------------- */

/* Whether the steps of `can` go through here, by a child that does them and nothing else. */
static bool goes_through(unsigned can)
{
    char dir[] = "/tmp/.penstock-probe-XXXXXX";
    bool made = can & (PST_CAN_MOUNTS | PST_CAN_SANDBOX) && mkdtemp(dir);
    pst_confine c = {.can = can, .uid = geteuid(), .gid = getegid(), .spec = {.hide = {dir}, .n_hide = made}};
    if (can & PST_CAN_SANDBOX && c.uid == 0)
        c.spec.user = PST_CONFINE_USERS;
    if (can & PST_CAN_HOSTS)
        c.spec.hosts = HOSTS;
    if (can & PST_CAN_DEVICES)
        pst_confine_devices_plan(&c.devices);
    if (can & PST_CAN_ROOT)
        pst_confine_root_plan(made ? dir : NULL, &c.root);
    pid_t pid = fork();
    if (pid == 0)
        _exit(pst_confine_enter(&c) ? 1 : 0);
    int status = 1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (made)
        rmdir(dir);
    pst_confine_devices_done(&c.devices);
    pst_confine_root_done(&c.root);
    return pid > 0 && status == 0;
}

static unsigned found;

static void look(void)
{
    int abi = landlock_version();
    found = goes_through(PST_CAN_NO_NEW_PRIVS) ? PST_CAN_NO_NEW_PRIVS : 0;
    if (!found)
        return; /* everything else rests on it */
    if (abi >= 6 && goes_through(found | PST_CAN_LANDLOCK | PST_CAN_SCOPE_SIGNALS))
        found |= PST_CAN_LANDLOCK | PST_CAN_SCOPE_SIGNALS;
    else if (abi >= 2 && goes_through(found | PST_CAN_LANDLOCK))
        found |= PST_CAN_LANDLOCK;
    if (goes_through(found | PST_CAN_MOUNTS))
        found |= PST_CAN_MOUNTS;
    if (found & PST_CAN_MOUNTS && goes_through(found | PST_CAN_DEVICES))
        found |= PST_CAN_DEVICES;
    if (found & PST_CAN_MOUNTS && goes_through(found | PST_CAN_ROOT))
        found |= PST_CAN_ROOT;
    if (found & PST_CAN_MOUNTS && goes_through(found | PST_CAN_HOSTS))
        found |= PST_CAN_HOSTS;
    if (found & PST_CAN_MOUNTS && goes_through(found | PST_CAN_SANDBOX))
        found |= PST_CAN_SANDBOX;
}

unsigned pst_confine_probe(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return found;
}

int pst_confine_floor(const char *word, pst_isolation *ret, pst_err *err)
{
    if (pst_isolation_parse(word, ret) < 0)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--isolation must be none, user or sandbox, found '%.40s'", word);
    unsigned can = *ret == PST_ISOLATION_NONE ? 0 : pst_confine_probe();
    if ((*ret == PST_ISOLATION_USER && !(can & PST_CAN_NO_NEW_PRIVS)) || (*ret == PST_ISOLATION_SANDBOX && !(can & PST_CAN_SANDBOX)))
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "config", 0,
                           "--isolation %s: this host does not give it; `penstock doctor` tells what it gives, and lacks", word);
    return 0;
}

void pst_confine_words(unsigned can, char *ret, size_t size)
{
    static const struct {
        unsigned bit;
        const char *word;
    } words[] = {{PST_CAN_NO_NEW_PRIVS, "no_new_privs"},
                 {PST_CAN_LANDLOCK, "Landlock (no look into other processes)"},
                 {PST_CAN_SCOPE_SIGNALS, "no signals to them"},
                 {PST_CAN_MOUNTS, "the platform's folders hidden"},
                 {PST_CAN_DEVICES, "a /dev without disks and consoles"},
                 {PST_CAN_ROOT, "/job"},
                 {PST_CAN_HOSTS, "names of a job's learners"},
                 {PST_CAN_SANDBOX, "sandbox on demand"}};
    size_t at = 0;
    *ret = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words && at < size; i++)
        if (can & words[i].bit)
            at += (size_t)snprintf(ret + at, size - at, "%s%s", at ? ", " : "", words[i].word);
}

/* A folder in another of the list comes along with that. */
static bool comes_along(const char *const *list, int n, int i)
{
    for (int k = 0; k < n; k++)
        if (k != i && is_below(list[i], list[k]) && (strcmp(list[i], list[k]) != 0 || k < i))
            return true;
    return false;
}

static bool is_in_any(const char *path, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (is_below(path, list[i]))
            return true;
    return false;
}

void pst_confine_plan(unsigned can, const pst_confine_spec *spec, pst_confine *ret)
{
    pst_confine c = {.can = can, .uid = geteuid(), .gid = getegid(), .spec = *spec};
    bool mounts = can & (PST_CAN_MOUNTS | PST_CAN_SANDBOX);
    PST_ASSERT(spec->n_hide <= PST_CONFINE_HIDDEN && spec->n_keep <= PST_CONFINE_PATHS && spec->n_mask <= PST_CONFINE_MASKED &&
               spec->n_fix <= PST_CONFINE_FIXED && spec->n_open <= PST_CONFINE_OPEN);
    c.spec.n_hide = c.spec.n_keep = c.spec.n_mask = c.spec.n_fix = c.spec.n_open = 0;
    for (int i = 0; i < spec->n_hide; i++)
        if (!comes_along(spec->hide, spec->n_hide, i))
            c.spec.hide[c.spec.n_hide++] = pst_strdup(spec->hide[i]);
    for (int i = 0; i < spec->n_mask; i++)
        if (!is_in_any(spec->mask[i], c.spec.hide, c.spec.n_hide))
            c.spec.mask[c.spec.n_mask++] = pst_strdup(spec->mask[i]);
    for (int i = 0; i < spec->n_fix; i++)
        c.spec.fix[c.spec.n_fix++] = pst_strdup(spec->fix[i]);
    for (int i = 0; i < spec->n_open; i++)
        if (!comes_along(spec->open, spec->n_open, i))
            c.spec.open[c.spec.n_open++] = pst_strdup(spec->open[i]);
    for (int i = 0; i < spec->n_keep; i++) {
        const char *path = spec->keep[i];
        bool lost = can & PST_CAN_SANDBOX || spec->n_open; /* there everything is, as far as writing goes */
        lost = lost || is_in_any(path, c.spec.hide, c.spec.n_hide) || is_in_any(path, c.spec.fix, c.spec.n_fix);
        for (int k = 0; k < c.spec.n_hide; k++)
            lost = lost && strcmp(path, c.spec.hide[k]) != 0;
        if (lost && !comes_along(spec->keep, spec->n_keep, i))
            c.spec.keep[c.spec.n_keep++] = pst_strdup(path);
    }
    if (mounts && can & PST_CAN_DEVICES)
        pst_confine_devices_plan(&c.devices);
    if (mounts && can & PST_CAN_ROOT)
        pst_confine_root_plan(spec->job, &c.root);
    c.spec.job = NULL;
    c.spec.hosts = mounts && can & PST_CAN_HOSTS && spec->hosts ? pst_strdup(spec->hosts) : NULL;
    *ret = c;
}

void pst_confine_done(pst_confine *c)
{
    for (int i = 0; i < c->spec.n_hide; i++)
        free((char *)c->spec.hide[i]);
    for (int i = 0; i < c->spec.n_keep; i++)
        free((char *)c->spec.keep[i]);
    for (int i = 0; i < c->spec.n_mask; i++)
        free((char *)c->spec.mask[i]);
    for (int i = 0; i < c->spec.n_fix; i++)
        free((char *)c->spec.fix[i]);
    for (int i = 0; i < c->spec.n_open; i++)
        free((char *)c->spec.open[i]);
    free((char *)c->spec.hosts);
    pst_confine_devices_done(&c->devices);
    pst_confine_root_done(&c->root);
    memset(&c->spec, 0, sizeof c->spec);
}
