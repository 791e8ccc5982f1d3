/* stores.h - object stores of a run: data in before its command, results out after it. @thread main. */
#ifndef PST_LCM_SUPERVISOR_STORES_H
#define PST_LCM_SUPERVISOR_STORES_H

#include "lcm/supervisor/run.h"

/* All keys of the store's bucket below $DATA_DIR (below $DATA_DIR/<id> where it is one of several). PST_ESTOPPED when asked to stop. */
int sup_run_fetch_store(sup_run *r, const pst_data_store *s, const char **ret_code, pst_err *err);
/* Of a later generation, on a node that has none: those that an earlier one stored. */
int sup_run_fetch_checkpoints(sup_run *r, const char **ret_code, pst_err *err);
/* Copies of data are removed; results, logs, checkpoints and the submitted code go into every results bucket. A store that refuses, or stays away, becomes part of the end in *x
 * (*ret_changed). PST_ESTOPPED: told to stop; whoever comes next goes on. */
int sup_run_put_results(sup_run *r, pst_rundir_exit *x, bool *ret_changed, pst_err *err);
/* Of a command that has ended, by a supervisor that cannot go on: a success whose results were to be put becomes S303. */
int sup_results_missed(const char *run_dir, const pst_rundir_spec *spec, const pst_err *why, pst_err *err);
/* A line of <step>.log ("load-data", "load-model", "store-results"), kept with the results as FfDL keeps them. */
void sup_run_step_log(sup_run *r, const char *step, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
