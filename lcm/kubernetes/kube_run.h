/* kube_run.h - the run directory of a process that is a pod: what its supervisor will read, and what it left. The folder is shared, so an end that was written
 * down is seen here whether or not the API server answers; whether anything lives is the API server's to say. @thread one owner. */
#ifndef PST_LCM_KUBE_RUN_H
#define PST_LCM_KUBE_RUN_H

#include "lcm/launcher.h"

/* exit.json is there, or its model is being registered: from then on only its output is published. */
bool kube_run_ended(const char *state_dir, const pst_process_id *id);
/* Fills in seen, exit, stop_reason, published. lives: its pod does, asked before; there: the API server has one, in whatever state. */
void kube_run_observe(const char *state_dir, const pst_process_id *id, bool lives, bool there, pst_launcher_news *ret);
/* spec.json, once, and the folders that are mounted. */
int kube_run_write(const char *state_dir, const pst_process_id *id, const pst_lcm_devices *devices, pst_err *err);
/* Those that kube_run_write() was given; below n_devices. */
void kube_run_devices(const char *state_dir, const pst_process_id *id, int n_devices, pst_lcm_devices *ret);
/* Of a state folder and site: made once, then as it is. Call with the site's lock held. */
int kube_run_folder_id(const char *state_dir, const char *site, char ret_id[33], pst_err *err);
/* "file:DIR", "file:///DIR": the folder; NULL: it is none. */
const char *kube_run_folder(const char *objects);

#endif
