/* score_run.h - the scorer as a service: one pipeline, one thread, poll → score → produce → commit. */
#ifndef PST_INFERENCE_RUN_SCORE_RUN_H
#define PST_INFERENCE_RUN_SCORE_RUN_H

#include "common/base/settings.h"
#include "inference/core/score_core.h"

typedef struct pst_score_run_opts {
    bool exit_on_eof;
    int64_t records_max; /* 0 = no end */
    int slot;            /* -1 = found out */
    const char *metrics_listen;
} pst_score_run_opts;

/* Runs until told to stop (or the options say so). Returns the exit status (pst_exits); the error is told by then. */
int pst_score_run(const pst_settings *settings, const pst_pipeline *p, const pst_score_run_opts *opts);

#endif
