/* wire_share.h - the classic protocol's leader shares partitions out: range and cooperative-sticky, and the bytes in which members speak of it. Pure.
 *
 * range (the project's default): of each topic its subscribers, in order of their ids, get neighbouring partitions; topics with as many partitions go the
 * same way, so that what is keyed alike stays together. cooperative-sticky (KIP-429): everybody keeps what he has as far as that is even, and what goes
 * from one to another is given to nobody in the first of two rebalances. Sources: KIP-429, KIP-54; Kafka's ConsumerProtocol schemas. */
#ifndef PST_WIRE_SHARE_H
#define PST_WIRE_SHARE_H

#include "common/bus/wire/wire_bytes.h"

typedef struct wire_tp { /* topic: as the member gives it, borrowed */
    wire_str topic;
    int32_t partition;
} wire_tp;

typedef struct wire_member {
    wire_str id, instance; /* borrowed, as everything here */
    wire_str *topics;
    size_t n_topics;
    wire_tp *owned; /* cooperative-sticky: what it says it has */
    size_t n_owned;
    int32_t generation; /* in which it was given that; -1 = it does not say */
    wire_tp *share;     /* the result */
    size_t n_share, share_cap;
} wire_member;

typedef struct wire_counted { /* how many partitions a topic has; 0 = it is not there */
    wire_str topic;
    int32_t n;
} wire_counted;

/* A member's subscription, as it stands in JoinGroup's answer. PST_EINVAL: broken; the member is left without topics. */
int wire_member_read(wire_member *m, const uint8_t *bytes, size_t len);
void wire_member_done(wire_member *m);
void wire_share_range(wire_member *members, size_t n, const wire_counted *topics, size_t n_topics);
void wire_share_sticky(wire_member *members, size_t n, const wire_counted *topics, size_t n_topics);
/* Subscription: topics, and what this member has (may be none). */
void wire_subscription_put(pst_buf *to, const char *const *topics, size_t n, const wire_tp *owned, size_t n_owned, int32_t generation);
void wire_assignment_put(pst_buf *to, const wire_tp *share, size_t n);
/* Calls fn for each partition. PST_EINVAL: broken, then fn may have been called for some. */
int wire_assignment_read(const uint8_t *bytes, size_t len, void (*fn)(void *arg, wire_str topic, int32_t partition), void *arg);

#endif
