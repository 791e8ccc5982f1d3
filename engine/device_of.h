/* device_of.h - what computes a plan that was made with the backend "cuda", "cuda:N" or "auto"; for the platform. Not installed. @thread the plan's */
#ifndef PST_ENGINE_DEVICE_OF_H
#define PST_ENGINE_DEVICE_OF_H

#include "engine/penstock_engine.h"

/* "cuda:0" or "cpu"; it may change with a run, when a device is lost. *ret_why: why it is that one, "" = it was not to choose. Both are the plan's. */
const char *pst_plan_device(const pst_plan *p, const char **ret_why);
/* Under "auto": why the CPU took over from a device. 0 = it did not; PST_EIO the device is lost, PST_ETIMEDOUT it does not answer; else something that the device
 * cannot do. */
int pst_plan_device_left(const pst_plan *p);

#endif
