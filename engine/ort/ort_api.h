/* ort_api.h - the few entries of ONNX Runtime's C interface that are used, declared here so that no header of it is needed to build.
 *
 * The library exports one symbol, OrtGetApiBase; GetApi(version) of it gives a table of function pointers to which entries are
 * only ever appended, so an index once given keeps its meaning in every later release. We ask for version 11 (release 1.11, 2022),
 * the lowest that has all of these, and so work with any newer library. Indices and types: onnxruntime_c_api.h; every one of them
 * is exercised by tests/unit/test_engine_ort.c.
 *
 * A call that can fail returns a status: NULL, or an object to be read with error_text and released. Threads: any. */
#ifndef PST_ENGINE_ORT_API_H
#define PST_ENGINE_ORT_API_H

#include <stddef.h>
#include <stdint.h>

#define ORT_API_WANTED 11

typedef struct ort_status ort_status;
typedef struct ort_env ort_env;
typedef struct ort_options ort_options;
typedef struct ort_session ort_session;
typedef struct ort_value ort_value;
typedef struct ort_shape ort_shape; /* a tensor's type and shape */
typedef struct ort_memory ort_memory;
typedef struct ort_arena ort_arena;
typedef struct ort_allocator ort_allocator;
/* severity: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal */
typedef void (*ort_log_fn)(void *arg, int severity, const char *category, const char *id, const char *where, const char *text);

enum { ORT_VALUE_TENSOR = 1, ORT_VALUE_SEQUENCE = 2, ORT_VALUE_OPTIONAL = 6 };

/* X(index, name, result, parameters) */
#define ORT_ENTRIES(X)                                                                                                        \
    X(2, error_text, const char *, (const ort_status *))                                                                      \
    X(4, env_new, ort_status *, (ort_log_fn log, void *arg, int severity, const char *id, ort_env **ret))                     \
    X(6, telemetry_off, ort_status *, (const ort_env *))                                                                      \
    X(8, session_new, ort_status *, (const ort_env *, const void *model, size_t len, const ort_options *, ort_session **ret)) \
    X(9, session_run, ort_status *,                                                                                           \
      (ort_session *, const void *run_options, const char *const *in_names, const ort_value *const *in, size_t n_in,          \
       const char *const *out_names, size_t n_out, ort_value **ret_out))                                                      \
    X(10, options_new, ort_status *, (ort_options * *ret))                                                                    \
    X(13, options_order, ort_status *, (ort_options *, int parallel))                                                         \
    X(17, options_no_patterns, ort_status *, (ort_options *))                                                                 \
    X(22, options_severity, ort_status *, (ort_options *, int severity))                                                      \
    X(24, options_threads_in, ort_status *, (ort_options *, int n))                                                           \
    X(25, options_threads_between, ort_status *, (ort_options *, int n))                                                      \
    X(39, run_options_new, ort_status *, (void **ret))                                                                        \
    X(46, run_terminate, ort_status *, (void *run_options))                                                                   \
    X(48, tensor_new, ort_status *, (ort_allocator *, const int64_t *dims, size_t rank, int dtype, ort_value **ret))          \
    X(49, tensor_over, ort_status *,                                                                                          \
      (const ort_memory *, void *data, size_t len, const int64_t *dims, size_t rank, int dtype, ort_value **ret))             \
    X(51, tensor_data, ort_status *, (ort_value *, void **ret))                                                               \
    X(52, texts_set, ort_status *, (ort_value *, const char *const *texts, size_t n))                                         \
    X(53, texts_len, ort_status *, (const ort_value *, size_t *ret))                                                          \
    X(54, texts_get, ort_status *, (const ort_value *, void *ret_bytes, size_t len, size_t *ret_offsets, size_t n))           \
    X(60, shape_dtype, ort_status *, (const ort_shape *, int *ret))                                                           \
    X(61, shape_rank, ort_status *, (const ort_shape *, size_t *ret))                                                         \
    X(62, shape_dims, ort_status *, (const ort_shape *, int64_t *ret, size_t rank))                                           \
    X(65, tensor_shape, ort_status *, (const ort_value *, ort_shape **ret))                                                   \
    X(67, value_type, ort_status *, (const ort_value *, int *ret))                                                            \
    X(69, memory_cpu, ort_status *, (int arena, int kind, ort_memory **ret))                                                  \
    X(78, allocator_get, ort_status *, (ort_allocator * *ret))                                                                \
    X(80, value_item, ort_status *, (const ort_value *, int index, ort_allocator *, ort_value **ret))                         \
    X(81, value_items, ort_status *, (const ort_value *, size_t *ret))                                                        \
    X(82, value_new, ort_status *, (const ort_value *const *items, size_t n, int type, ort_value **ret))                      \
    X(92, env_free, void, (ort_env *))                                                                                        \
    X(93, status_free, void, (ort_status *))                                                                                  \
    X(94, memory_free, void, (ort_memory *))                                                                                  \
    X(95, session_free, void, (ort_session *))                                                                                \
    X(96, value_free, void, (ort_value *))                                                                                    \
    X(97, run_options_free, void, (void *run_options))                                                                        \
    X(99, shape_free, void, (ort_shape *))                                                                                    \
    X(100, options_free, void, (ort_options *))                                                                               \
    X(130, options_set, ort_status *, (ort_options *, const char *key, const char *value))                                    \
    X(144, env_allocator, ort_status *, (ort_env *, const ort_memory *, const ort_arena *))                                   \
    X(157, arena_free, void, (ort_arena *))                                                                                   \
    X(164, arena_new, ort_status *, (const char *const *keys, const size_t *values, size_t n, ort_arena **ret))               \
    X(192, value_is_set, ort_status *, (const ort_value *, int *ret))

typedef struct ort_api {
#define X(index, name, result, parameters) result(*name) parameters;
    ORT_ENTRIES(X)
#undef X
} ort_api;

/* What OrtGetApiBase returns. */
typedef struct ort_base {
    void *const *(*table)(uint32_t version); /* NULL: the library is older than that */
    const char *(*version)(void);
} ort_base;

#endif
