/* model_run.h - the bounds of a model's runs in this program: how long one may take, and that it ends when the program is told to. @thread any */
#ifndef PST_INFERENCE_CORE_MODEL_RUN_H
#define PST_INFERENCE_CORE_MODEL_RUN_H

#include "engine/penstock_engine.h"

/* A batch of a stream; one row to look whether a model ends. */
enum { PST_MODEL_RUN_MS = 120000, PST_MODEL_PROBE_MS = 5000 };

/* At most ms; told to stop, a run may go on for some seconds, so that an ordinary batch is finished and committed, unless told twice. */
pst_run_limits score_model_run_limits(int ms);

#endif
