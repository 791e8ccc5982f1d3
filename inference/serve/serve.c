/* serve.c - the parts wired to what serving.h promises: the topic and the object store as the source of models, the pool in front of them. */
#include "inference/serve/serve.h"

#include <stdlib.h>

struct pst_serving {
    serve_follow *follow;
    serve_pool *pool;
};

static void close_serving(pst_serving *s)
{
    if (!s)
        return;
    serve_pool_free(s->pool);
    serve_follow_free(s->follow);
    free(s);
}

static int open_serving(const pst_serving_conf *conf, pst_serving **ret_serving, pst_err *err)
{
    pst_serving *s = pst_alloc(sizeof *s);
    int rc = serve_follow_new(conf->settings, &s->follow, err);
    if (rc == 0) {
        const serve_source source = serve_follow_source(s->follow);
        rc = serve_pool_new(conf, &source, &s->pool, err);
    }
    if (rc < 0) {
        close_serving(s);
        return rc;
    }
    *ret_serving = s;
    return 0;
}

static bool ask_serving(pst_serving *s, const pst_serving_ask *ask, pst_serving_answered fn, void *arg, pst_serving_answer *ret_now)
{
    return serve_pool_ask(s->pool, ask, fn, arg, ret_now);
}

static bool serving_ready(pst_serving *s, char *ret_why, size_t size)
{
    return serve_follow_ready(s->follow, ret_why, size);
}

static void dump_serving(pst_serving *s, json_t *to)
{
    serve_pool_dump(s->pool, to);
}

const pst_serving_ops pst_serve_ops = {open_serving, ask_serving, serving_ready, dump_serving, close_serving};
