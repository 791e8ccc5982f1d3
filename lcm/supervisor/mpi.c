/* mpi.c - Open MPI's mpirun around the command. What the first learner is given for all (host file, number of ranks) comes from the members; PyTorch's
 * and torchrun's variables are set anew in each rank, since mpirun hands on one environment to all. The others look for the end of the first in its
 * run dir: it stands there before it is published, and survives both supervisors. */
#include "lcm/supervisor/mpi.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/stop.h"
#include "schemas/frameworks.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_MS = 200 };

/* mpirun gives each rank a terminal and puts together what they write. There Python writes a line at once; told not to buffer it would write the line and
 * its end apart, and another rank's line come between. */
static const char ranks[] = "export RANK=\"${OMPI_COMM_WORLD_RANK:-0}\" WORLD_SIZE=\"${OMPI_COMM_WORLD_SIZE:-1}\" "
                            "LOCAL_RANK=\"${OMPI_COMM_WORLD_LOCAL_RANK:-0}\" LOCAL_WORLD_SIZE=\"${OMPI_COMM_WORLD_LOCAL_SIZE:-1}\"\n"
                            "if [ -t 1 ]; then unset PYTHONUNBUFFERED; fi\n";

static int slots_of_all(const pst_members *m)
{
    int n = 0;
    for (size_t i = 0; i < m->n; i++)
        n += m->at[i].rank >= 0 ? m->at[i].slots : 0;
    return n;
}

bool sup_mpi_launches(const sup_run *r)
{
    return r->manifest.runs->by_mpirun && r->rank == 0 && slots_of_all(&r->gang.members) > 1;
}

bool sup_mpi_waits(const sup_run *r)
{
    return r->manifest.runs->by_mpirun && r->rank > 0;
}

/* The file that a shell would start; path: of the learner. NULL = none. */
static char *find_program(const char *path, const char *name)
{
    char *all = pst_strdup(path), *rest = all, *found = NULL;
    for (char *dir; !found && (dir = strsep(&rest, ":"));) {
        struct stat st;
        char *file = pst_fs_join(*dir ? dir : ".", name);
        if (*dir == '/' && stat(file, &st) == 0 && S_ISREG(st.st_mode) && access(file, X_OK) == 0)
            found = file;
        else
            free(file);
    }
    free(all);
    return found;
}

int sup_mpi_command_make(const sup_run *r, const char *path, const char *shell, const char *command, sup_mpi_command *ret_command,
                         pst_err *err)
{
    sup_mpi_command c = {.mpirun = find_program(path, "mpirun")};
    if (!c.mpirun)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "mpirun", 0,
                           "framework %s runs its learners under mpirun, and there is none in this host's PATH (%.200s); install Open MPI "
                           "(apt install openmpi-bin), or put its folder into PATH where `penstock lcm` is started",
                           r->manifest.framework, path);
    c.n = pst_sprintf("%d", slots_of_all(&r->gang.members));
    c.text = pst_sprintf("%s%s", ranks, command);
    const char *args[] = {c.mpirun,     "--allow-run-as-root", "--bind-to", "none", "-np", c.n,
                          "--hostfile", r->gang.hostfile,      shell,       "-c",   c.text};
    PST_ASSERT(sizeof args < sizeof c.args);
    memcpy(c.args, args, sizeof args);
    *ret_command = c;
    return 0;
}

void sup_mpi_command_done(sup_mpi_command *c)
{
    free(c->mpirun);
    free(c->n);
    free(c->text);
    *c = (sup_mpi_command){0};
}

void sup_mpi_sizes(const sup_run *r, double *ret_cpus, int64_t *ret_memory_bytes)
{
    *ret_cpus = r->role->cpus;
    *ret_memory_bytes = r->role->memory_bytes;
    if (!sup_mpi_launches(r))
        return;
    *ret_cpus = 0;
    *ret_memory_bytes = 0;
    for (size_t i = 0; i < r->manifest.n_roles; i++) {
        const pst_role *role = &r->manifest.roles[i];
        if (pst_role_is_ranked(role->name)) {
            *ret_cpus += role->cpus * role->count;
            *ret_memory_bytes += role->memory_bytes * role->count;
        }
    }
}

char *sup_mpi_gpu_ids(const sup_run *r)
{
    const pst_members *m = &r->gang.members;
    pst_buf b = {0};
    if (!sup_mpi_launches(r))
        return pst_strdup(r->spec.gpus && r->spec.gpu_ids ? r->spec.gpu_ids : "");
    for (size_t i = 0; i < m->n; i++) {
        pst_process_id id = pst_process_id_of(r->spec.training_id, r->spec.generation, m->at[i].process);
        char *dir = pst_rundir_dir(r->spec.state_dir, &id);
        pst_rundir_spec spec;
        if (m->at[i].rank >= 0 && pst_rundir_spec_read(dir, &spec, NULL) == 0) {
            if (spec.gpus && spec.gpu_ids && *spec.gpu_ids)
                pst_buf_printf(&b, "%s%s", b.len ? "," : "", spec.gpu_ids);
            pst_rundir_spec_done(&spec);
        }
        free(dir);
    }
    return pst_buf_steal(&b);
}

/* PST_EAGAIN: it goes on. Published: whoever tells the Trainer of a failure first is named as its reason, and that is the first one. */
static int look(const char *dir, pst_rundir_exit *ret)
{
    pst_rundir_exit first;
    if (!pst_rundir_published(dir) || pst_rundir_exit_read(dir, &first, NULL) < 0)
        return PST_EAGAIN;
    *ret = first;
    return 0;
}

/* A rank of mpirun's is no child of its own supervisor: the master's mpirun starts it. So the supervisors of the others run nothing and wait for the master's
 * result, which becomes theirs: a gang that failed has one reason, the master's. */
void sup_mpi_wait(sup_run *r, pst_rundir_exit *ret_exit)
{
    const pst_member *master = sup_gang_master(&r->gang.members);
    PST_ASSERT(master && r->rank > 0);
    pst_process_id id = pst_process_id_of(r->spec.training_id, r->spec.generation, master->process);
    char *dir = pst_rundir_dir(r->spec.state_dir, &id);
    pst_rundir_exit first = {0};
    pst_rundir_stop_reason why;
    sup_run_say(r, "the command runs under mpirun, which %s starts for all learners", master->process);
    int rc;
    while ((rc = look(dir, &first)) == PST_EAGAIN) {
        why = pst_rundir_stop_reason_read(r->dir);
        if (pst_stop_requested() || why != PST_STOP_REASON_NONE)
            break;
        struct pollfd stop = {.fd = pst_stop_fd(), .events = POLLIN};
        poll(&stop, 1, LOOK_MS);
    }
    free(dir);
    *ret_exit = (pst_rundir_exit){0};
    if (rc < 0) {
        ret_exit->stop_reason = why == PST_STOP_REASON_NONE ? PST_STOP_REASON_PLATFORM_DOWN : why;
        if (ret_exit->stop_reason == PST_STOP_REASON_PLATFORM_DOWN)
            snprintf(ret_exit->reason_code, sizeof ret_exit->reason_code, "PLATFORM_DOWN");
        snprintf(ret_exit->reason, sizeof ret_exit->reason, "stopped while the command ran under %s's mpirun", master->process);
        return;
    }
    ret_exit->has_exit_code = true;
    ret_exit->exit_code = first.has_exit_code && !first.stop_reason ? first.exit_code : 1;
    if (ret_exit->exit_code) {
        snprintf(ret_exit->reason_code, sizeof ret_exit->reason_code, "%.30s", *first.reason_code ? first.reason_code : "C201");
        snprintf(ret_exit->reason, sizeof ret_exit->reason, "it ends with %s, whose mpirun ran the command: %.400s", master->process,
                 first.reason);
    }
}
