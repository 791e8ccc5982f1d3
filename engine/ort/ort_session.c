/* ort_session.c - one session of ONNX Runtime a model, made by the first plan that needs it (ort.h). One thread and no spinning: the scorer has
 * threads of its own, and what a plan costs is to be its caller's CPU time; the process's arena, so that all sessions together are bounded. */
#include "engine/ort/ort_lib.h"
#include "engine/ort/ort_model.h"
#include "engine/ort/ort_session.h"

#include "common/base/log.h"
#include "engine/ort/ort.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* sessions are opened one at a time: ort_model_bytes needs it */

static int options_new(const ort_lib *lib, ort_options **ret, pst_err *err)
{
    const ort_api *a = &lib->api;
    static const char *const entries[][2] = {
        {"session.use_env_allocators", "1"},      /* the process's arena */
        {"session.load_model_format", "ONNX"},    /* nothing in the bytes decides it */
        {"session.intra_op.allow_spinning", "0"}, /* no thread waits busily, should one be there */
        {"optimization.constant_folding_max_output_size_in_bytes", "67108864"},
    };
    int rc = ort_check(lib, a->options_new(ret), PST_EINVAL, "options", err);
    if (rc < 0)
        return rc;
    rc = ort_check(lib, a->options_threads_in(*ret, 1), PST_EINVAL, "options", err);
    if (rc == 0)
        rc = ort_check(lib, a->options_threads_between(*ret, 1), PST_EINVAL, "options", err);
    if (rc == 0)
        rc = ort_check(lib, a->options_order(*ret, 0), PST_EINVAL, "options", err);
    if (rc == 0)
        rc = ort_check(lib, a->options_no_patterns(*ret), PST_EINVAL, "options", err);
    if (rc == 0)
        rc = ort_check(lib, a->options_severity(*ret, 2), PST_EINVAL, "options", err);
    for (size_t i = 0; i < sizeof entries / sizeof *entries && rc == 0; i++)
        rc = ort_check(lib, a->options_set(*ret, entries[i][0], entries[i][1]), PST_EINVAL, entries[i][0], err);
    return rc;
}

static int session_open(pst_model *m, eng_ort *o, pst_err *err)
{
    const ort_lib *lib = o->lib;
    ort_options *options = NULL;
    void *bytes = NULL;
    size_t len = 0;
    int rc = ort_model_bytes(m, &bytes, &len, err);
    if (rc == 0)
        rc = options_new(lib, &options, err);
    if (rc == 0)
        rc =
            ort_check(lib, lib->api.session_new(lib->env, bytes, len, options, &o->session), PST_EUNSUPPORTED, "it refuses the model", err);
    if (options)
        lib->api.options_free(options);
    free(bytes);
    return rc;
}

static int open_locked(pst_model *m, const ort_lib *lib, const char *why, pst_err *err)
{
    eng_ort *o = eng_heap_raw(sizeof *o);
    if (!o)
        return eng_heap_none(sizeof *o, err);
    o->lib = lib;
    int rc = session_open(m, o, err);
    if (rc < 0) {
        eng_ort_close(o);
        return rc;
    }
    snprintf(o->text, sizeof o->text, "ONNX Runtime %s (%s): %s", lib->version, lib->path, why);
    pst_log(PST_LOG_INFO, "engine", "event=onnxruntime model=%.12s version=%s library=%s reason=\"%s\"", m->info.digest, lib->version,
            lib->path, why);
    __atomic_store_n(&m->ort, o, __ATOMIC_RELEASE);
    return 0;
}

int eng_ort_serve(pst_model *m, const char *why, pst_err *err)
{
    if (__atomic_load_n(&m->ort, __ATOMIC_ACQUIRE))
        return 0;
    if (m->limits.backends == PST_BACKENDS_OWN)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "%s, and no other backend is allowed here", why);
    if (!m->proto)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "%s, and ONNX Runtime reads ONNX files only", why);
    const ort_lib *lib = NULL;
    pst_err none = {0};
    if (ort_lib_get(&lib, &none) < 0)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "%s. %s", why, none.text);
    int rc = 0;
    pthread_mutex_lock(&lock);
    if (!m->ort)
        rc = open_locked(m, lib, why, err);
    pthread_mutex_unlock(&lock);
    return rc;
}

void eng_ort_close(eng_ort *o)
{
    if (!o)
        return;
    if (o->session)
        o->lib->api.session_free(o->session);
    free(o);
}

const char *eng_ort_describe(const pst_model *m)
{
    const eng_ort *o = __atomic_load_n(&m->ort, __ATOMIC_ACQUIRE);
    return o ? o->text : "";
}
