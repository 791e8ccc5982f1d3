/* ort_lib.h - the library as the process has it: opened once, never closed. Threads: any. */
#ifndef PST_ENGINE_ORT_LIB_H
#define PST_ENGINE_ORT_LIB_H

#include "engine/ort/ort_api.h"

#include "common/base/err.h"

typedef struct ort_lib {
    ort_api api;
    ort_env *env;
    ort_memory *memory;       /* what describes plain memory of ours */
    ort_allocator *allocator; /* borrowed from the library */
    char version[32], path[400];
} ort_lib;

/* PST_ENOTFOUND: not there, forbidden or too old. */
int ort_lib_get(const ort_lib **ret, pst_err *err);
/* Writes what a status says and releases it: PST_OK for NULL, else code. what: "the session of the model" … */
int ort_check(const ort_lib *lib, ort_status *s, int code, const char *what, pst_err *err);

#endif
