/* device_of.h - the words of `device:` and the engine's backends, both ways; for the platform. Not installed. @thread the plan's, if there is one */
#ifndef PST_ENGINE_DEVICE_OF_H
#define PST_ENGINE_DEVICE_OF_H

#include "engine/penstock_engine.h"

/* What a plan's opts name as their backend for device ("cpu", "cuda", "cuda:N", "auto"; NULL = "cpu"). On the CPU the engine may choose among
 * its own, which is what no name means. */
const char *pst_plan_backend_of(const char *device);

/* What computes a plan that was made with the backend "cuda", "cuda:N" or "auto": "cuda:0" or "cpu"; it may change with a run, when a device is
 * lost. *ret_why: why it is that one, "" = it was not to choose. Both are the plan's. */
const char *pst_plan_device(const pst_plan *p, const char **ret_why);
/* What computed the run that ended last: N of cuda:N, -1 = the CPU. Not always what pst_plan_device says: "auto" leaves small runs to the CPU. */
int pst_plan_ran_on(const pst_plan *p);
/* Threads of a run, the caller's with them: fewer than asked for where the process may not use so many CPUs. */
int pst_plan_threads(const pst_plan *p);
/* Under "auto": why the CPU took over from a device. 0 = it did not; PST_EIO the device is lost, PST_ETIMEDOUT it does not answer; else something that the device
 * cannot do. */
int pst_plan_device_left(const pst_plan *p);

#endif
