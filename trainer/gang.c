/* gang.c - what the processes of a generation say together, as the job's state keeps them. */
#include "trainer/core_state.h"

#include <string.h>

bool trainer_is_learner(const pst_job_process *p)
{
    return !strncmp(p->name, "learner-", 8);
}

bool trainer_has_succeeded(const pst_job_process *p)
{
    return p->state == PST_JOB_PROCESS_STATE_EXITED && p->has_exit_code && p->exit_code == 0 && !p->has_signal;
}

/* How many of the gang (learners only, or all) are in a state of at least this rank. */
int trainer_count_from(const trainer_job *j, pst_job_process_state least, bool learners_only)
{
    int n = 0;
    for (size_t i = 0; i < j->s.n_processes; i++)
        n += (!learners_only || trainer_is_learner(&j->s.processes[i])) && j->s.processes[i].state >= least;
    return n;
}

bool trainer_learners_have_succeeded(const trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (trainer_is_learner(&j->s.processes[i]) && !trainer_has_succeeded(&j->s.processes[i]))
            return false;
    return true;
}

bool trainer_has_registered(const trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (!strcmp(j->s.processes[i].name, "learner-1"))
            return j->s.model && j->s.processes[i].finished && trainer_has_succeeded(&j->s.processes[i]);
    return false;
}

/* Every learner's command was done, by itself, before it could be stopped: what was asked for came too late. */
bool trainer_learners_have_finished(const trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (trainer_is_learner(&j->s.processes[i]) && !j->s.processes[i].finished)
            return false;
    return trainer_learners_have_succeeded(j);
}
