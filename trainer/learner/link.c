/* link.c - frames in order, checked one by one; a message's length is held against a limit before memory is taken, and memory grows with what comes. */
#include "trainer/learner/link.h"

#include "common/base/clock.h"
#include "common/base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

learn_link *learn_link_new(const learn_met *met, uint32_t generation, size_t bytes_max)
{
    learn_link *l = pst_alloc(sizeof *l);
    l->fd = met->fd;
    l->session = met->session;
    l->generation = generation;
    l->bytes_max = bytes_max;
    l->moved_us = pst_mono_us();
    return l;
}

void learn_link_free(learn_link *l)
{
    if (!l)
        return;
    close(l->fd);
    pst_buf_done(&l->out);
    pst_buf_done(&l->message);
    free(l);
}

/* ---- out ----------------------------------------------------------------------------------------------------------------------- */

static void put_frame(learn_link *l, learn_frame_kind kind, const uint8_t *bytes, size_t len)
{
    uint8_t head[LEARN_FRAME_HEAD];
    learn_frame f = {kind, l->session, l->sent++, l->generation, (uint32_t)len, pst_crc32c(0, bytes, len)};
    learn_frame_put(&f, head);
    pst_buf_add(&l->out, head, sizeof head);
    pst_buf_add(&l->out, bytes, len);
}

static void put_piece(learn_link *l, learn_frame_kind kind, const uint8_t *bytes, size_t len)
{
    for (size_t at = 0; at < len; at += LEARN_FRAME_MAX)
        put_frame(l, kind, bytes + at, len - at < LEARN_FRAME_MAX ? len - at : LEARN_FRAME_MAX);
}

void learn_link_put(learn_link *l, learn_frame_kind kind, const void *a, size_t a_len, const void *b, size_t b_len)
{
    uint64_t length = a_len + b_len;
    if (l->out_at == l->out.len) {
        pst_buf_clear(&l->out);
        l->out_at = 0;
    }
    put_frame(l, kind, (const uint8_t *)&length, sizeof length);
    put_piece(l, kind, a, a_len);
    put_piece(l, kind, b, b_len);
}

bool learn_link_is_flushed(const learn_link *l)
{
    return l->out_at == l->out.len;
}

static int gone(pst_err *err, const char *what)
{
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "ring", 0, "is gone: %s", what);
}

int learn_link_flush(learn_link *l, pst_err *err)
{
    while (l->out_at < l->out.len) {
        ssize_t n = send(l->fd, l->out.data + l->out_at, l->out.len - l->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0)
            return gone(err, strerror(errno));
        l->out_at += (size_t)n;
        l->moved_us = pst_mono_us();
    }
    return 0;
}

/* ---- in ------------------------------------------------------------------------------------------------------------------------ */

/* A whole frame is there. */
static int take_frame(learn_link *l, const learn_frame *f, pst_err *err)
{
    const uint8_t *payload = l->frame + LEARN_FRAME_HEAD;
    l->heard++;
    l->head_at = 0;
    if (pst_crc32c(0, payload, f->length) != f->crc)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "sent a message that was damaged on its way");
    if (f->kind == LEARN_FRAME_ALIVE)
        return 0;
    if (!l->has_length) {
        if (f->length != sizeof l->due)
            return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "began a message without its length");
        memcpy(&l->due, payload, sizeof l->due);
        if (l->due > l->bytes_max)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_FATAL, "ring", 0, "announces a message of %llu bytes; at most %zu are allowed",
                               (unsigned long long)l->due, l->bytes_max);
        l->kind = f->kind;
        l->has_length = true;
        pst_buf_clear(&l->message);
    } else if (f->kind != l->kind || !f->length || f->length > l->due - l->message.len)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "sent more than it had announced, or something else");
    else
        pst_buf_add(&l->message, payload, f->length);
    if (l->message.len < l->due)
        return 0;
    l->has_length = false;
    return 1;
}

int learn_link_hear(learn_link *l, pst_err *err)
{
    for (;;) {
        learn_frame f = {0};
        size_t wanted = LEARN_FRAME_HEAD;
        int rc = 0;
        if (l->head_at >= LEARN_FRAME_HEAD) {
            if ((rc = learn_frame_get(l->frame, l->generation, l->session, l->heard, &f, err)) < 0)
                return rc;
            wanted += f.length;
        }
        if (l->head_at == wanted && l->head_at >= LEARN_FRAME_HEAD) {
            if ((rc = take_frame(l, &f, err)) != 0)
                return rc;
            continue;
        }
        ssize_t n = recv(l->fd, l->frame + l->head_at, wanted - l->head_at, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return gone(err, n ? strerror(errno) : "it closed the connection");
        l->head_at += (size_t)n;
        l->moved_us = pst_mono_us();
    }
}
