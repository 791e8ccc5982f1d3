/* ring_wire.h - what ranks of a gang say to each other on a connection of the ring: its bytes, and nothing else. Little-endian.
 *
 *     dialler                                   acceptor
 *     hello   job, generation, who, nonce  ──▶  refuses a stale or foreign one by its reason, else:
 *             checks the code              ◀──  welcome  nonce, HMAC over hello and both nonces
 *     proof   HMAC the other way           ──▶  only now is the dialler believed
 *     frames  session, generation, sequence, length, two checksums, payload ──▶ …
 *
 * The key is a secret of the generation: who does not have it gets no further than the proof. The session is made of key and nonces, so that a
 * frame of another connection, run or generation is refused whatever else it says. Nothing is allocated here, and no length is believed before the
 * checksum over it was right. Sources: RFC 2104 (HMAC). @thread any */
#ifndef PST_LEARNER_RING_WIRE_H
#define PST_LEARNER_RING_WIRE_H

#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LEARN_HELLO_BYTES = 76,
    LEARN_WELCOME_BYTES = 68,
    LEARN_PROOF_BYTES = 32,
    LEARN_FRAME_HEAD = 40,
    LEARN_FRAME_MAX = 256 << 10, /* bytes of payload */
    LEARN_WORLD_MAX = 4096
};

typedef struct learn_run { /* what both ends must agree on */
    uint8_t job[32];       /* SHA-256 of the training id */
    uint32_t generation, world;
    uint8_t key[32];
} learn_run;
void learn_run_make(learn_run *r, const char *training_id, int generation, int world, const char *secret);

typedef struct learn_hello {
    uint32_t generation, world, from, to;
    uint8_t job[32], nonce[16];
} learn_hello;

typedef enum { LEARN_WELCOME = 0, LEARN_REFUSED_JOB, LEARN_REFUSED_STALE, LEARN_REFUSED_NEWER, LEARN_REFUSED_PLACE } learn_answer;
typedef struct learn_welcome {
    learn_answer answer;
    uint32_t generation; /* the acceptor's */
    uint8_t nonce[16], mac[32];
} learn_welcome;

void learn_hello_put(const learn_hello *h, uint8_t ret_bytes[LEARN_HELLO_BYTES]);
bool learn_hello_get(const uint8_t bytes[LEARN_HELLO_BYTES], learn_hello *ret_hello); /* false: no hello */
/* What rank `me` answers to it. It expects `from` as its dialler. */
learn_answer learn_hello_judge(const learn_run *r, const learn_hello *h, uint32_t from, uint32_t me);
void learn_welcome_put(const learn_welcome *w, uint8_t ret_bytes[LEARN_WELCOME_BYTES]);
bool learn_welcome_get(const uint8_t bytes[LEARN_WELCOME_BYTES], learn_welcome *ret_welcome);
/* part: "welcome", "proof", "session". hello as its bytes; nonce: the acceptor's. */
void learn_ring_mac(const learn_run *r, const char *part, const uint8_t hello[LEARN_HELLO_BYTES], const uint8_t nonce[16],
                    uint8_t ret_mac[32]);
bool learn_ring_mac_same(const uint8_t a[32], const uint8_t b[32]); /* takes as long whatever differs */
uint64_t learn_ring_session(const learn_run *r, const uint8_t hello[LEARN_HELLO_BYTES], const uint8_t nonce[16]);

typedef enum {
    LEARN_FRAME_SUM = 1, /* of the ring */
    LEARN_FRAME_BLOB,
    LEARN_FRAME_ALIVE,
    LEARN_FRAME_BEGIN, /* of parameter servers (servers.h) */
    LEARN_FRAME_READY,
    LEARN_FRAME_PUSH,
    LEARN_FRAME_VALUES,
    LEARN_FRAME_PULL,
    LEARN_FRAME_STATE,
    LEARN_FRAME_END
} learn_frame_kind;
typedef struct learn_frame {
    learn_frame_kind kind;
    uint64_t session, sequence;
    uint32_t generation, length, crc; /* of the payload */
} learn_frame;

void learn_frame_put(const learn_frame *f, uint8_t ret_head[LEARN_FRAME_HEAD]);
/* PST_EPARSE: no frame; PST_EFENCED: of another generation or session; PST_ELIMIT: too long. On failure nothing is in ret_frame. */
int learn_frame_get(const uint8_t head[LEARN_FRAME_HEAD], uint32_t generation, uint64_t session, uint64_t sequence, learn_frame *ret_frame,
                    pst_err *err);

#endif
