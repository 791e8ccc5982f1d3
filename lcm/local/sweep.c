/* sweep.c - what a vanished supervisor left is found and ended. No one way finds everything on every host: a group needs a writable hierarchy, a tree a keeper that still lives, a
 * mark a process that kept its environment. Each is asked, and all must say zero. */
#include "lcm/local/sweep.h"

#include "common/base/cgroup.h"
#include "common/base/proc.h"
#include "common/base/proc_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Members of the learner's group, unless its id belongs to another process by now. */
static int kill_group(const pst_rundir_owner *o)
{
    int64_t now = o->learner_pid ? pst_proc_start_time(o->learner_pid) : 0;
    if (!o->learner_pid || (now && now != o->learner_start_time))
        return 0;
    PST_ASSERT(o->learner_pid > 1); /* -1 would be every process that may be signalled, -0 our own group */
    int n = pst_proc_group_count(o->learner_pid);
    if (n)
        kill(-o->learner_pid, SIGKILL);
    return n;
}

/* While the keeper lives, even a frozen one, nothing below it can get away: so it goes last. */
static int kill_below_keeper(const pst_rundir_owner *o)
{
    if (!pst_proc_alive(o->keeper_pid, o->keeper_start_time))
        return 0;
    PST_ASSERT(o->keeper_pid > 1 && o->keeper_pid != getpid());
    int n = pst_tree_kill(o->keeper_pid);
    if (!n)
        kill(o->keeper_pid, SIGKILL);
    return n + 1;
}

static int kill_cgroup(const char *run_dir)
{
    pst_cgroup g;
    if (!pst_rundir_cgroup_read(run_dir, &g))
        return 0;
    int n = pst_cgroup_kill(&g);
    if (!n)
        pst_cgroup_remove(&g);
    return n;
}

int host_sweep(const char *run_dir, const char *mark)
{
    pst_rundir_owner o = {0};
    int left = 0;
    bool known = pst_rundir_owner_read(run_dir, &o, NULL) == 0 && pst_rundir_owner_same_boot(&o);
    if (known && pst_proc_alive(o.pid, o.start_time)) {
        PST_ASSERT(o.pid > 1 && o.pid != getpid());
        kill(o.pid, SIGKILL);
        left++;
    } else if (!known) {
        left += pst_rundir_locked(run_dir);
    }
    left += kill_cgroup(run_dir);
    if (known)
        left += kill_below_keeper(&o) + kill_group(&o);
    return left + pst_proc_kill_marked(mark, known ? o.start_time : 0, SIGKILL);
}

void host_sweep_keeper(const char *run_dir)
{
    pst_rundir_owner o;
    if (pst_rundir_owner_read(run_dir, &o, NULL) == 0 && pst_rundir_owner_same_boot(&o) && !pst_proc_alive(o.pid, o.start_time))
        kill_below_keeper(&o);
}

int host_sweep_orphans(bool (*watched)(void *arg, pid_t pid), void *arg)
{
    DIR *d = opendir("/proc");
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        if (pid <= 1 || pst_proc_parent(pid) != getpid() || !pst_proc_start_time(pid) || watched(arg, pid))
            continue;
        kill(pid, SIGKILL);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}
