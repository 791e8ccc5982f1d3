/* mpi.h - frameworks whose learners are ranks of one mpirun (FfDL's horovod and pytorchmpi): the first learner runs the command of all of them, the others
 * wait until it is done and end with it.
 *
 *     learner-1   mpirun -np N … sh -c COMMAND ── ends ──▶ exit.json, published
 *     learner-2…  nothing runs ────────────────────────────▶ looks there, ends alike
 *
 * mpirun forks the ranks in learner-1's box, so that has the sizes and devices of all. On one host only: over several it needs a way to start
 * programs there, which penstock does not give to a job. @thread main. */
#ifndef PST_LCM_SUPERVISOR_MPI_H
#define PST_LCM_SUPERVISOR_MPI_H

#include "lcm/supervisor/run.h"

enum { SUP_MPI_ARGS = 12 };

bool sup_mpi_launches(const sup_run *r); /* this process runs mpirun; a job of one rank needs none */
bool sup_mpi_waits(const sup_run *r);
/* What is started for the shell command `command`: args[] up to a NULL; what is owned among them goes with done. PST_EUNSUPPORTED: there is no mpirun. */
typedef struct sup_mpi_command {
    char *mpirun, *n, *text;
    const char *args[SUP_MPI_ARGS];
} sup_mpi_command;
int sup_mpi_command_make(const sup_run *r, const char *path, const char *shell, const char *command, sup_mpi_command *ret_command,
                         pst_err *err);
void sup_mpi_command_done(sup_mpi_command *c);
/* The sizes of the box: of all that run in it. */
void sup_mpi_sizes(const sup_run *r, double *ret_cpus, int64_t *ret_memory_bytes);
char *sup_mpi_gpu_ids(const sup_run *r); /* of all; free() */
/* For a process that waits: returns once the first one is done, or this one is asked to stop. Fills how it ends. */
void sup_mpi_wait(sup_run *r, pst_rundir_exit *ret_exit);

#endif
