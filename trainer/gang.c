/* gang.c - what the processes of a generation say together, as the job's state keeps them. */
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <string.h>

bool trainer_is_ranked(const pst_job_process *p)
{
    return pst_process_is_ranked(p->name);
}

bool trainer_has_succeeded(const pst_job_process *p)
{
    return p->state == PST_JOB_PROCESS_STATE_EXITED && p->has_exit_code && p->exit_code == 0 && !p->has_signal;
}

/* How many of the gang (ranked ones only, or all) are in a state of at least this rank. */
int trainer_count_from(const trainer_job *j, pst_job_process_state least, bool ranked_only)
{
    int n = 0;
    for (size_t i = 0; i < j->s.n_processes; i++)
        n += (!ranked_only || trainer_is_ranked(&j->s.processes[i])) && j->s.processes[i].state >= least;
    return n;
}

/* As in TFJob, whose end is the chief's where there is one: workers and servers under a chief may serve for ever. */
bool trainer_decides(const trainer_job *j, const pst_job_process *p)
{
    bool has_chief = j->s.n_processes && pst_process_is_of(j->s.processes[0].name, "chief"); /* the chief is the first */
    return has_chief ? pst_process_is_of(p->name, "chief") : trainer_is_ranked(p);
}

/* Where nobody decides nothing was done. */
bool trainer_work_is_done(const trainer_job *j)
{
    size_t deciding = 0;
    for (size_t i = 0; i < j->s.n_processes; i++) {
        bool decides = trainer_decides(j, &j->s.processes[i]);
        if (decides && !trainer_has_succeeded(&j->s.processes[i]))
            return false;
        deciding += decides;
    }
    return deciding > 0;
}

bool trainer_serves_until_ended(const trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (!pst_job_process_is_ended(j->s.processes[i].state) && !pst_process_is_of(j->s.processes[i].name, "ps"))
            return false;
    return true;
}

bool trainer_has_registered(const trainer_job *j)
{
    const pst_job_process *first = j->s.n_processes ? &j->s.processes[0] : NULL; /* they stand in the order of ranks */
    return first && j->s.model && first->finished && trainer_has_succeeded(first);
}

/* Every command that decides was done, by itself, before it could be stopped: what was asked for came too late. */
bool trainer_work_has_finished(const trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (trainer_decides(j, &j->s.processes[i]) && !j->s.processes[i].finished)
            return false;
    return trainer_work_is_done(j);
}
