/* ring_wire.c - encoding, judging and refusing of what stands in ring_wire.h. Pure: no sockets, no clock, so that any bytes can be thrown at it. */
#include "trainer/learner/ring_wire.h"

#include "common/base/hash.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers stand in messages as they do in memory");

static const char hello_magic[8] = "PSTRING1", welcome_magic[8] = "PSTRINGA", frame_magic[4] = "PSTF";
enum { JOB_AT = 24, NONCE_AT = 56, HELLO_CRC_AT = 72, MAC_AT = 32, WELCOME_CRC_AT = 64, HEAD_CRC_AT = 36 };

static uint32_t u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void put32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static void put64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* ---- who is who ---------------------------------------------------------------------------------------------------------------- */

void learn_run_make(learn_run *r, const char *training_id, int generation, int world, const char *secret)
{
    *r = (learn_run){.generation = (uint32_t)generation, .world = (uint32_t)world};
    pst_sha256_sum(training_id, strlen(training_id), r->job);
    pst_sha256_sum(secret, strlen(secret), r->key);
}

void learn_hello_put(const learn_hello *h, uint8_t b[LEARN_HELLO_BYTES])
{
    memcpy(b, hello_magic, sizeof hello_magic);
    put32(b + 8, h->generation);
    put32(b + 12, h->world);
    put32(b + 16, h->from);
    put32(b + 20, h->to);
    memcpy(b + JOB_AT, h->job, sizeof h->job);
    memcpy(b + NONCE_AT, h->nonce, sizeof h->nonce);
    put32(b + HELLO_CRC_AT, pst_crc32c(0, b, HELLO_CRC_AT));
}

bool learn_hello_get(const uint8_t b[LEARN_HELLO_BYTES], learn_hello *ret)
{
    if (memcmp(b, hello_magic, sizeof hello_magic) != 0 || u32(b + HELLO_CRC_AT) != pst_crc32c(0, b, HELLO_CRC_AT))
        return false;
    *ret = (learn_hello){.generation = u32(b + 8), .world = u32(b + 12), .from = u32(b + 16), .to = u32(b + 20)};
    memcpy(ret->job, b + JOB_AT, sizeof ret->job);
    memcpy(ret->nonce, b + NONCE_AT, sizeof ret->nonce);
    return true;
}

learn_answer learn_hello_judge(const learn_run *r, const learn_hello *h, uint32_t from, uint32_t me)
{
    if (memcmp(h->job, r->job, sizeof r->job) != 0)
        return LEARN_REFUSED_JOB;
    if (h->generation != r->generation)
        return h->generation < r->generation ? LEARN_REFUSED_STALE : LEARN_REFUSED_NEWER;
    return h->world == r->world && h->from == from && h->to == me ? LEARN_WELCOME : LEARN_REFUSED_PLACE;
}

void learn_welcome_put(const learn_welcome *w, uint8_t b[LEARN_WELCOME_BYTES])
{
    memcpy(b, welcome_magic, sizeof welcome_magic);
    put32(b + 8, (uint32_t)w->answer);
    put32(b + 12, w->generation);
    memcpy(b + 16, w->nonce, sizeof w->nonce);
    memcpy(b + MAC_AT, w->mac, sizeof w->mac);
    put32(b + WELCOME_CRC_AT, pst_crc32c(0, b, WELCOME_CRC_AT));
}

bool learn_welcome_get(const uint8_t b[LEARN_WELCOME_BYTES], learn_welcome *ret)
{
    uint32_t answer = u32(b + 8);
    if (memcmp(b, welcome_magic, sizeof welcome_magic) != 0 || u32(b + WELCOME_CRC_AT) != pst_crc32c(0, b, WELCOME_CRC_AT) ||
        answer > LEARN_REFUSED_PLACE)
        return false;
    *ret = (learn_welcome){.answer = (learn_answer)answer, .generation = u32(b + 12)};
    memcpy(ret->nonce, b + 16, sizeof ret->nonce);
    memcpy(ret->mac, b + MAC_AT, sizeof ret->mac);
    return true;
}

/* HMAC-SHA-256 (RFC 2104) with a key of 32 bytes over the part's name, the hello and the acceptor's nonce. */
void learn_ring_mac(const learn_run *r, const char *part, const uint8_t hello[LEARN_HELLO_BYTES], const uint8_t nonce[16], uint8_t ret[32])
{
    uint8_t pad[2][64], inner[32];
    for (size_t i = 0; i < 64; i++) {
        uint8_t k = i < sizeof r->key ? r->key[i] : 0;
        pad[0][i] = k ^ 0x36;
        pad[1][i] = k ^ 0x5c;
    }
    pst_sha256 *h = pst_sha256_new();
    pst_sha256_add(h, pad[0], sizeof pad[0]);
    pst_sha256_add(h, part, strlen(part) + 1);
    pst_sha256_add(h, hello, LEARN_HELLO_BYTES);
    pst_sha256_add(h, nonce, 16);
    pst_sha256_end(h, inner);
    h = pst_sha256_new();
    pst_sha256_add(h, pad[1], sizeof pad[1]);
    pst_sha256_add(h, inner, sizeof inner);
    pst_sha256_end(h, ret);
}

bool learn_ring_mac_same(const uint8_t a[32], const uint8_t b[32])
{
    unsigned differs = 0;
    for (size_t i = 0; i < 32; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return !differs;
}

uint64_t learn_ring_session(const learn_run *r, const uint8_t hello[LEARN_HELLO_BYTES], const uint8_t nonce[16])
{
    uint8_t mac[32];
    learn_ring_mac(r, "session", hello, nonce, mac);
    return u64(mac);
}

/* ---- frames -------------------------------------------------------------------------------------------------------------------- */

void learn_frame_put(const learn_frame *f, uint8_t b[LEARN_FRAME_HEAD])
{
    memcpy(b, frame_magic, sizeof frame_magic);
    put32(b + 4, (uint32_t)f->kind);
    put64(b + 8, f->session);
    put32(b + 16, f->generation);
    put32(b + 20, f->length);
    put64(b + 24, f->sequence);
    put32(b + 32, f->crc);
    put32(b + HEAD_CRC_AT, pst_crc32c(0, b, HEAD_CRC_AT));
}

int learn_frame_get(const uint8_t b[LEARN_FRAME_HEAD], uint32_t generation, uint64_t session, uint64_t sequence, learn_frame *ret,
                    pst_err *err)
{
    uint32_t kind = u32(b + 4), length = u32(b + 20);
    if (memcmp(b, frame_magic, sizeof frame_magic) != 0 || u32(b + HEAD_CRC_AT) != pst_crc32c(0, b, HEAD_CRC_AT))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "it sent bytes that are no message of this ring");
    if (u32(b + 16) != generation)
        return pst_err_set(err, PST_EFENCED, PST_CLASS_FATAL, "ring", 0, "it sent a message of generation %u, and this is generation %u",
                           u32(b + 16), generation);
    if (u64(b + 8) != session || u64(b + 24) != sequence)
        return pst_err_set(err, PST_EFENCED, PST_CLASS_FATAL, "ring", 0,
                           "it sent message %llu of %s session, and message %llu of this one was due", (unsigned long long)u64(b + 24),
                           u64(b + 8) == session ? "this" : "another", (unsigned long long)sequence);
    if (kind < LEARN_FRAME_SUM || kind > LEARN_FRAME_END)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "it sent a message of the unknown kind %u", kind);
    if (length > LEARN_FRAME_MAX || (kind == LEARN_FRAME_ALIVE && length))
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_RETRY, "ring", 0, "it sent a message of %u bytes; at most %d are allowed", length,
                           kind == LEARN_FRAME_ALIVE ? 0 : LEARN_FRAME_MAX);
    *ret = (learn_frame){(learn_frame_kind)kind, session, sequence, generation, length, u32(b + 32)};
    return 0;
}
