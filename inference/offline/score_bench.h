/* score_bench.h - how fast this pipeline would be on this computer: real records, taken once, through decode, model and encode again and again. */
#ifndef PST_INFERENCE_OFFLINE_SCORE_BENCH_H
#define PST_INFERENCE_OFFLINE_SCORE_BENCH_H

#include "common/base/settings.h"
#include "inference/pipeline/pipeline.h"

typedef struct pst_score_bench_opts {
    const char *in;      /* a file as of a dry run; NULL = the newest records of the input topics */
    const char *batches; /* "1,32,512"; NULL = 1, 32, 512 and the pipeline's own */
    int64_t records_max, seconds;
} pst_score_bench_opts;

/* Exit status as pst_exits; 1 where a score is not the one of a dry run, 3 where some records cannot be scored. p: its batching and format are changed. */
int pst_score_bench(const pst_settings *settings, pst_pipeline *p, const pst_score_bench_opts *o);

#endif
