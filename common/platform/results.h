/* results.h - where a job's results lie: the one rule by which the supervisor makes the folder and whoever hands results out finds it. */
#ifndef PST_COMMON_PLATFORM_RESULTS_H
#define PST_COMMON_PLATFORM_RESULTS_H

#include "schemas/manifest.h"

/* The user's own folder where a mounted store names one (FfDL: <container>/<training id>), else the job's. *ret_dir is RESULT_DIR, *ret_bucket the folder
 * above it; free() both. Nothing is made. @thread any */
void pst_results_place(const char *state_dir, const char *training_id, const pst_manifest *m, char **ret_bucket, char **ret_dir);

#endif
