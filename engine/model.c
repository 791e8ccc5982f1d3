/* model.c - the public side of models: where a load begins and ends, whatever the format. Reading a format is onnx_load.c's matter.
 * A load has one way out when memory runs out: everything belongs to the model's heap, and goes with it (heap.h). */
#include "engine/abi.h"
#include "common/base/hash.h"
#include "common/base/fs.h"
#include "engine/foreign.h"
#include "engine/native/native.h"
#include "engine/onnx_read.h"
#include "engine/ort/ort.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct loading {
    pst_model *m;
    const void *data;
    size_t len;
    int base_dirfd;
} loading;

static int load_body(void *arg, pst_err *err)
{
    loading *l = arg;
    const char *foreign = eng_foreign_kind(l->data, l->len);
    eng_native_kind native = foreign ? ENG_NATIVE_NONE : eng_native_recognise(l->data, l->len); /* XGBoost's and LightGBM's own files */
    if (!foreign && !native)
        foreign = eng_foreign_text(l->data, l->len);
    if (foreign)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "model", 0, "this is no model that can be read, but %s", foreign);
    if (native)
        return eng_native_load(native, l->data, l->len, l->m, err);
    return eng_onnx_load(l->m, l->data, l->len, l->base_dirfd, err);
}

/* The model owns its heap from the start: whatever fails on the way, one unref gives all of it back. */
int pst_model_load(const void *data, size_t len, const char *base_dir, const pst_model_limits *limits, pst_model **ret_model, pst_err *err)
{
    pst_err own = {0};
    pst_model_limits lim = limits ? *limits : (pst_model_limits){0};
    if (!err)
        err = &own;
    int rc = eng_reserved_check(lim.reserved, sizeof lim.reserved / sizeof *lim.reserved, "pst_model_limits", err);
    if (rc < 0)
        return rc;
    eng_limits_default(&lim);
    if (len > lim.file_bytes_max)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model is %zu bytes; at most %zu are allowed (file_bytes_max)",
                           len, lim.file_bytes_max);
    loading l = {.m = eng_heap_raw(sizeof(pst_model)), .data = data, .len = len, .base_dirfd = -1};
    if (!l.m)
        return eng_heap_none(sizeof(pst_model), err);
    l.m->refs = 1;
    pthread_mutex_init(&l.m->share_lock, NULL);
    l.m->limits = lim;
    l.m->info.file_bytes = len;
    l.m->info.format = "onnx";
    pst_sha256_hex(data, len, l.m->info.digest);
    if (base_dir)
        l.base_dirfd = open(base_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = eng_heap_run(&l.m->heap, load_body, &l, err);
    if (l.base_dirfd >= 0)
        close(l.base_dirfd);
    if (rc < 0) {
        pst_model_unref(l.m);
        return rc;
    }
    *ret_model = l.m;
    return 0;
}

typedef struct file {
    eng_heap heap;
    int fd;
    const char *path;
    size_t bytes_max;
    char *data;
    size_t len, cap;
    char *dir;
} file;

/* A file's size is a hint only: pipes have none, and it may change while it is read. */
static int read_body(void *arg, pst_err *err)
{
    file *f = arg;
    struct stat st;
    off_t size = fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode) ? st.st_size : 0;
    if (size > 0 && (uint64_t)size > f->bytes_max)
        goto large;
    f->cap = size > 0 ? (size_t)size + 1 : 65536;
    f->data = eng_heap_bytes(f->cap);
    for (;;) {
        f->data = eng_heap_room(f->data, f->len, 1, &f->cap, 1);
        ssize_t n = read(f->fd, f->data + f->len, f->cap - f->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pst_err_sys(err, errno, "cannot read %s", f->path);
        if (!n)
            break;
        f->len += (size_t)n;
        if (f->len > f->bytes_max)
            goto large;
    }
    const char *slash = strrchr(f->path, '/');
    f->dir = slash ? eng_heap_strndup(f->path, (size_t)(slash - f->path) + 1) : eng_heap_strndup(".", 1);
    return 0;
large:
    return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "%s is larger than the limit of %zu bytes (file_bytes_max)", f->path,
                       f->bytes_max);
}

int pst_model_load_file(const char *path, const pst_model_limits *limits, pst_model **ret_model, pst_err *err)
{
    pst_err own = {0};
    pst_model_limits lim = limits ? *limits : (pst_model_limits){0};
    if (!err)
        err = &own;
    eng_limits_default(&lim);
    file f = {.path = path, .bytes_max = lim.file_bytes_max, .fd = pst_fs_open_input(path, err)};
    if (f.fd < 0)
        return f.fd;
    int rc = eng_heap_run(&f.heap, read_body, &f, err);
    close(f.fd);
    if (rc == 0) {
        rc = pst_model_load(f.data, f.len, f.dir, limits, ret_model, err);
        if (rc < 0)
            pst_err_prefix(err, "%s", path);
    }
    eng_heap_release(&f.heap);
    return rc;
}
