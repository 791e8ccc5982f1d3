/* dnnl_conv.c - oneDNN opened by name at first use, so that the library is no dependency and costs nobody who has no large convolution.
 * Every function is looked up before the first is called: a library that lacks one counts as not there. */
#include "engine/dnnl/dnnl_conv.h"

#include "engine/ops/conv_fast.h"
#include "engine/plan.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

#define CALLS(X)                             \
    X(engine_create)                         \
    X(stream_create)                         \
    X(stream_destroy)                        \
    X(stream_wait)                           \
    X(memory_desc_init_by_tag)               \
    X(memory_desc_equal)                     \
    X(memory_desc_get_size)                  \
    X(memory_create)                         \
    X(memory_set_data_handle)                \
    X(memory_destroy)                        \
    X(dilated_convolution_forward_desc_init) \
    X(primitive_attr_create)                 \
    X(primitive_attr_destroy)                \
    X(primitive_attr_set_post_ops)           \
    X(post_ops_create)                       \
    X(post_ops_append_eltwise)               \
    X(post_ops_destroy)                      \
    X(primitive_desc_create)                 \
    X(primitive_desc_destroy)                \
    X(primitive_desc_query_md)               \
    X(reorder_primitive_desc_create)         \
    X(primitive_create)                      \
    X(primitive_execute)                     \
    X(primitive_destroy)

/* The library, opened once per process and never closed: its threads and caches outlive any plan. */
static struct {
    bool there;
#define X(NAME) __typeof__(&dnnl_##NAME) NAME;
    CALLS(X)
#undef X
    int (*omp_max)(void);
    void (*omp_set)(int);
    dnnl_engine_t engine;
} lib;
static pthread_once_t lib_once = PTHREAD_ONCE_INIT;

static void open_lib(void)
{
    void *h = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    bool all = h != NULL;
#define X(NAME) all = all && (lib.NAME = (__typeof__(lib.NAME))dlsym(h, "dnnl_" #NAME));
    CALLS(X)
#undef X
    if (!all)
        return;
    lib.omp_max = (int (*)(void))dlsym(h, "omp_get_max_threads");
    lib.omp_set = (void (*)(int))dlsym(h, "omp_set_num_threads");
    lib.there = lib.engine_create(&lib.engine, dnnl_cpu, 0) == dnnl_success;
}

/* One image, one group. */
typedef struct conv_shape {
    int64_t c, h, w, m, kh, kw, oh, ow, sh, sw, dh, dw, pad_top, pad_left, pad_bottom, pad_right;
    int64_t bias, relu; /* whether */
} conv_shape;

enum { TRIES_MAX = 4 };

typedef struct dnnl_conv {
    const void *of;   /* the weights it is for */
    conv_shape shape; /* what the primitives are for */
    int tries;        /* sizes seen: a model whose images change all the time is left to our own kernel */
    bool ready;
    dnnl_stream_t stream;
    dnnl_primitive_t conv, in, out; /* in, out: copies to and from its own layouts; NULL = none needed */
    dnnl_memory_t x, w, b, y, own_x, own_y;
    size_t x_bytes, y_bytes;
} dnnl_conv;

static void drop(dnnl_conv *d)
{
    dnnl_primitive_t *p[] = {&d->conv, &d->in, &d->out};
    dnnl_memory_t *m[] = {&d->x, &d->w, &d->b, &d->y, &d->own_x, &d->own_y};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        if (*p[i])
            lib.primitive_destroy(*p[i]);
        *p[i] = NULL;
    }
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        if (*m[i])
            lib.memory_destroy(*m[i]);
        *m[i] = NULL;
    }
    d->ready = false;
}

static void drop_all(void *arg)
{
    dnnl_conv *d = arg;
    drop(d);
    if (d->stream)
        lib.stream_destroy(d->stream);
    d->stream = NULL;
}

#define OK(CALL) ((CALL) == dnnl_success)

/* One OpenMP thread for the calling thread, whose setting it is; the result is for many_threads(). oneDNN fixes the number of threads when a
 * primitive is made, so making needs this as much as running. Nothing between the two may unwind. */
static int one_thread(void)
{
    int threads = lib.omp_max && lib.omp_set ? lib.omp_max() : 1;
    if (threads > 1)
        lib.omp_set(1);
    return threads;
}

static void many_threads(int threads)
{
    if (threads > 1)
        lib.omp_set(threads);
}

static bool execute(const dnnl_conv *d, dnnl_primitive_t p, int n, const dnnl_exec_arg_t *args)
{
    PST_ASSERT(p && d->stream);
    return OK(lib.primitive_execute(p, d->stream, n, args)) && OK(lib.stream_wait(d->stream));
}

static bool make_copy(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, dnnl_primitive_t *ret)
{
    dnnl_primitive_desc_t pd = NULL;
    bool ok = OK(lib.reorder_primitive_desc_create(&pd, from, lib.engine, to, lib.engine, NULL)) && OK(lib.primitive_create(ret, pd));
    if (pd)
        lib.primitive_desc_destroy(pd);
    return ok;
}

/* The convolution with layouts of its choice. */
static dnnl_primitive_desc_t choose(const conv_shape *s)
{
    dnnl_dims_t xd = {1, s->c, s->h, s->w}, wd = {s->m, s->c, s->kh, s->kw}, bd = {s->m}, yd = {1, s->m, s->oh, s->ow},
                stride = {s->sh, s->sw}, dil = {s->dh - 1, s->dw - 1}, before = {s->pad_top, s->pad_left},
                after = {s->pad_bottom, s->pad_right};
    dnnl_memory_desc_t x, w, b, y;
    dnnl_convolution_desc_t cd;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool ok = OK(lib.memory_desc_init_by_tag(&x, 4, xd, dnnl_f32, dnnl_format_tag_any)) &&
              OK(lib.memory_desc_init_by_tag(&w, 4, wd, dnnl_f32, dnnl_format_tag_any)) &&
              OK(lib.memory_desc_init_by_tag(&b, 1, bd, dnnl_f32, dnnl_x)) &&
              OK(lib.memory_desc_init_by_tag(&y, 4, yd, dnnl_f32, dnnl_format_tag_any)) &&
              OK(lib.dilated_convolution_forward_desc_init(&cd, dnnl_forward_inference, dnnl_convolution_direct, &x, &w,
                                                           s->bias ? &b : NULL, &y, stride, dil, before, after)) &&
              OK(lib.primitive_attr_create(&attr)) && OK(lib.post_ops_create(&ops)) &&
              (!s->relu || OK(lib.post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0))) &&
              OK(lib.primitive_attr_set_post_ops(attr, ops));
    if (ok && !OK(lib.primitive_desc_create(&pd, &cd, attr, lib.engine, NULL)))
        pd = NULL;
    if (ops)
        lib.post_ops_destroy(ops);
    if (attr)
        lib.primitive_attr_destroy(attr);
    return pd;
}

/* Primitives and handles for one shape; *ret_w: the layout it wants the weights in. */
static bool make_primitives(dnnl_conv *d, dnnl_memory_desc_t *ret_w)
{
    const conv_shape *s = &d->shape;
    dnnl_dims_t xd = {1, s->c, s->h, s->w}, bd = {s->m}, yd = {1, s->m, s->oh, s->ow};
    dnnl_memory_desc_t x, b, y, qx, qy;
    dnnl_primitive_desc_t pd = choose(s);
    if (!pd)
        return false;
    bool ok = OK(lib.primitive_create(&d->conv, pd));
    qx = *lib.primitive_desc_query_md(pd, dnnl_query_src_md, 0);
    *ret_w = *lib.primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    qy = *lib.primitive_desc_query_md(pd, dnnl_query_dst_md, 0);
    lib.primitive_desc_destroy(pd);
    ok = ok && OK(lib.memory_desc_init_by_tag(&x, 4, xd, dnnl_f32, dnnl_nchw)) &&
         OK(lib.memory_desc_init_by_tag(&b, 1, bd, dnnl_f32, dnnl_x)) && OK(lib.memory_desc_init_by_tag(&y, 4, yd, dnnl_f32, dnnl_nchw)) &&
         OK(lib.memory_create(&d->x, &x, lib.engine, DNNL_MEMORY_NONE)) && OK(lib.memory_create(&d->y, &y, lib.engine, DNNL_MEMORY_NONE)) &&
         OK(lib.memory_create(&d->w, ret_w, lib.engine, DNNL_MEMORY_NONE)) &&
         (!s->bias || OK(lib.memory_create(&d->b, &b, lib.engine, DNNL_MEMORY_NONE)));
    if (ok && !lib.memory_desc_equal(&x, &qx)) {
        d->x_bytes = lib.memory_desc_get_size(&qx);
        ok = make_copy(&x, &qx, &d->in) && OK(lib.memory_create(&d->own_x, &qx, lib.engine, DNNL_MEMORY_NONE));
    }
    if (ok && !lib.memory_desc_equal(&y, &qy)) {
        d->y_bytes = lib.memory_desc_get_size(&qy);
        ok = make_copy(&qy, &y, &d->out) && OK(lib.memory_create(&d->own_y, &qy, lib.engine, DNNL_MEMORY_NONE));
    }
    return ok;
}

static bool fill_weights(dnnl_conv *d, const dnnl_memory_desc_t *own, const float *w)
{
    const conv_shape *s = &d->shape;
    dnnl_dims_t wd = {s->m, s->c, s->kh, s->kw};
    dnnl_memory_desc_t plain_desc;
    dnnl_primitive_t copy = NULL;
    dnnl_memory_t plain = NULL;
    bool ok = OK(lib.memory_desc_init_by_tag(&plain_desc, 4, wd, dnnl_f32, dnnl_oihw)) &&
              OK(lib.memory_create(&plain, &plain_desc, lib.engine, (void *)w)) && make_copy(&plain_desc, own, &copy);
    if (ok) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, d->w}};
        ok = execute(d, copy, 2, args);
    }
    if (copy)
        lib.primitive_destroy(copy);
    if (plain)
        lib.memory_destroy(plain);
    return ok;
}

/* Everything for one shape. Room for the weights may unwind: it is asked for between the parts that hold one thread, and all handles
 * are in d by then, which the plan frees. */
static bool make(eng_op_ctx *c, dnnl_conv *d, const float *w)
{
    PST_ASSERT(lib.there && !d->ready && !d->conv); /* drop() came before: nothing of another shape is left */
    dnnl_memory_desc_t own;
    int threads = one_thread();
    bool ok = make_primitives(d, &own);
    many_threads(threads);
    float *room = ok ? eng_plan_room(c->plan, lib.memory_desc_get_size(&own)) : NULL;
    if (!room || !OK(lib.memory_set_data_handle(d->w, room)))
        return false;
    threads = one_thread();
    ok = fill_weights(d, &own, w);
    many_threads(threads);
    return ok;
}

static bool run_image(const dnnl_conv *d, const float *x, float *y)
{
    dnnl_memory_t src = d->in ? d->own_x : d->x, dst = d->out ? d->own_y : d->y;
    dnnl_exec_arg_t in[] = {{DNNL_ARG_FROM, d->x}, {DNNL_ARG_TO, d->own_x}}, out[] = {{DNNL_ARG_FROM, d->own_y}, {DNNL_ARG_TO, d->y}},
                    args[] = {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, d->w}, {DNNL_ARG_DST, dst}, {DNNL_ARG_BIAS, d->b}};
    return OK(lib.memory_set_data_handle(d->x, (void *)x)) && OK(lib.memory_set_data_handle(d->y, y)) &&
           (!d->in || execute(d, d->in, 2, in)) && execute(d, d->conv, d->b ? 4 : 3, args) && (!d->out || execute(d, d->out, 2, out));
}

/* Shapes of which any is measured to be faster here (tests/bench/RESULTS.md). Its kernels are made for this CPU: a plan of narrower ones asks
 * for their results. */
static bool supports(const eng_op_ctx *c)
{
    enum { FILTERS_MIN = 64 };
    const pst_tensor *w = eng_in(c, 1);
    return !c->plan->opts.no_fusion && w && w->dtype == PST_F32 && w->rank == 4 && eng_attr_int(c->node, "group", 1) == 1 &&
           w->dims[1] >= FILTERS_MIN && w->dims[0] >= FILTERS_MIN && eng_count(w) > 0 && eng_isa_is_best(c->plan->isa);
}

/* A twelfth less a product than our tiles, but both copies into its own layouts: worth it from 5 million products an image on. */
static eng_node_cost cost(const eng_op_ctx *c)
{
    const double gain = 0.08, products = 5e6;
    double tiles = eng_conv_fast_place_ns(c);
    return (eng_node_cost){.item_ns = gain * tiles * products / (double)eng_count(eng_in(c, 1)), .place_ns = (1 - gain) * tiles};
}

static int prepare(eng_op_ctx *c, void **ret_state)
{
    dnnl_conv *d = eng_op_keep(c, sizeof *d);
    d->of = eng_in(c, 1)->data;
    *ret_state = d;
    return 0;
}

static conv_shape shape_of(const eng_op_ctx *c, const eng_node_call *call)
{
    const eng_window *w = call->window;
    return (conv_shape){.c = call->w->dims[1],
                        .h = w->in[0],
                        .w = w->in[1],
                        .m = call->w->dims[0],
                        .kh = w->k[0],
                        .kw = w->k[1],
                        .oh = w->out[0],
                        .ow = w->out[1],
                        .sh = w->stride[0],
                        .sw = w->stride[1],
                        .dh = w->dil[0],
                        .dw = w->dil[1],
                        .pad_top = w->pad[0],
                        .pad_left = w->pad[1],
                        .pad_bottom = w->pad_end[0],
                        .pad_right = w->pad_end[1],
                        .bias = call->bias != NULL,
                        .relu = c->epilogue && c->epilogue->act == ENG_ACT_RELU};
}

/* Primitives are made for one shape and kept for the next run; a shape that changes all the time is not worth making them for, so after some tries
 * other shapes are left to our own kernels. False: they are, now. */
static bool ready_for(eng_op_ctx *c, dnnl_conv *d, const conv_shape *s, const float *w)
{
    if (d->ready && memcmp(&d->shape, s, sizeof *s) == 0)
        return true;
    if (d->tries >= TRIES_MAX)
        return false;
    drop(d);
    d->tries++;
    memcpy(&d->shape, s, sizeof *s);
    if (!d->stream && !OK(lib.stream_create(&d->stream, lib.engine, dnnl_stream_default_flags)))
        return false;
    d->ready = make(c, d, w);
    return d->ready;
}

/* All images. Their layouts' room is asked for before: nothing may unwind while the thread is set to one of OpenMP's. */
static int run_images(eng_op_ctx *c, dnnl_conv *d, const eng_node_call *call)
{
    const conv_shape *s = &d->shape;
    PST_ASSERT(d->ready && call->x->rank == 4 && call->x->dims[1] == s->c); /* no groups, or supports() had said no */
    PST_ASSERT(!d->in == !d->own_x && !d->out == !d->own_y);
    float *own_x = d->in ? eng_op_scratch(c, d->x_bytes) : NULL, *own_y = d->out ? eng_op_scratch(c, d->y_bytes) : NULL;
    if ((d->in && !own_x) || (d->out && !own_y))
        return PST_ELIMIT;
    if ((d->in && !OK(lib.memory_set_data_handle(d->own_x, own_x))) || (d->out && !OK(lib.memory_set_data_handle(d->own_y, own_y))) ||
        (d->b && !OK(lib.memory_set_data_handle(d->b, (void *)call->bias))))
        return 1;
    const float *x = call->x->data;
    int64_t n = call->x->dims[0];
    bool ok = true;
    int threads = one_thread();
    for (int64_t i = 0; i < n && ok; i++)
        ok = run_image(d, x + i * s->c * s->h * s->w, call->y + i * s->m * s->oh * s->ow);
    many_threads(threads);
    return ok ? 0 : 1;
}

/* A residual is left to our own kernels, an activation other than Relu to whoever asked for it. */
static int submit(eng_op_ctx *c, void *state, const eng_node_call *call)
{
    dnnl_conv *d = state;
    eng_epilogue *e = c->epilogue;
    const eng_window *w = call->window;
    if (!d || d->of != call->w->data || call->pool || (e && e->add) || w->n != 2 || w->out[0] <= 1 || w->out[1] <= 1)
        return 1;
    pthread_once(&lib_once, open_lib);
    conv_shape s = shape_of(c, call);
    if (!lib.there || !ready_for(c, d, &s, call->w->data))
        return 1;
    int rc = run_images(c, d, call);
    if (rc != 0)
        return rc;
    c->kernel = eng_dnnl_conv_backend.name;
    if (e)
        e->done = s.relu || e->act == ENG_ACT_NONE;
    return 0;
}

const eng_node_backend eng_dnnl_conv_backend = {
    .name = "oneDNN", .op = "Conv", .supports = supports, .cost = cost, .prepare = prepare, .submit = submit, .free = drop_all};
