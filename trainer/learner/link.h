/* link.h - messages of any length over one connection, both ways, between a worker and a parameter server. A message is its length, then its bytes, in
 * frames of one kind (ring_wire.h). Nothing here waits: what is put is sent as the socket takes it, what comes is put together as it comes.
 * @thread any, one owner. */
#ifndef PST_LEARNER_LINK_H
#define PST_LEARNER_LINK_H

#include "common/base/buf.h"
#include "trainer/learner/door.h"

typedef struct learn_link {
    int fd;
    uint32_t generation;
    uint64_t session, sent, heard; /* frames */
    pst_buf out;                   /* frames to go; out_at are gone */
    size_t out_at;
    size_t bytes_max; /* of a message that comes */
    learn_frame_kind kind;
    uint64_t due; /* bytes of the message that is coming; known once has_length */
    bool has_length;
    pst_buf message;
    size_t head_at;
    int64_t moved_us; /* when bytes last came or went */
    uint8_t frame[LEARN_FRAME_HEAD + LEARN_FRAME_MAX];
} learn_link;

learn_link *learn_link_new(const learn_met *met, uint32_t generation, size_t bytes_max);
void learn_link_free(learn_link *l); /* NULL-safe; closes */
/* Appends one message made of two pieces; the second may be empty. */
void learn_link_put(learn_link *l, learn_frame_kind kind, const void *a, size_t a_len, const void *b, size_t b_len);
int learn_link_flush(learn_link *l, pst_err *err); /* as much as goes */
bool learn_link_is_flushed(const learn_link *l);
/* 1: a message is whole, in l->message and of l->kind, until the next call; 0: not yet; PST_EUNREACH/RETRY: closed; else: it is no message. */
int learn_link_hear(learn_link *l, pst_err *err);

#endif
