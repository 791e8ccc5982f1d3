/* wire_partition.c - which partition a key belongs to: the same as Java's clients and librdkafka's choose, or records of a key that two programs write
 * would lie in two partitions. Pure. Sources: Kafka's Utils.murmur2; librdkafka's "consistent" partitioners (CRC-32). */
#include "common/bus/wire/wire_producer.h"

static uint32_t word_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t wire_murmur2(const void *key, size_t len)
{
    const uint32_t m = 0x5bd1e995;
    const uint8_t *at = len ? key : (const void *)"";
    uint32_t h = 0x9747b28cU ^ (uint32_t)len;
    size_t rest = len & 3;
    for (const uint8_t *end = at + (len - rest); at < end; at += 4) {
        uint32_t k = word_at(at) * m;
        h = h * m ^ (k ^ k >> 24) * m;
    }
    if (rest == 3)
        h ^= (uint32_t)at[2] << 16;
    if (rest >= 2)
        h ^= (uint32_t)at[1] << 8;
    if (rest)
        h = (h ^ at[0]) * m;
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

/* The common CRC-32, a nibble at a time: keys are short. */
static uint32_t crc32_of(const uint8_t *at, size_t len)
{
    static const uint32_t nibble[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t c = 0xffffffffU;
    for (size_t i = 0; i < len; i++) {
        c = nibble[(c ^ at[i]) & 15] ^ c >> 4;
        c = nibble[(c ^ at[i] >> 4) & 15] ^ c >> 4;
    }
    return ~c;
}

int32_t wire_partition_of(int partitioner, const void *key, size_t len, int32_t n)
{
    PST_ASSERT(n > 0);
    switch (partitioner) {
    case WIRE_MURMUR2: break; /* no key is hashed as an empty one */
    case WIRE_MURMUR2_RANDOM:
        if (!key)
            return -1;
        break;
    case WIRE_CONSISTENT_RANDOM:
        if (!len)
            return -1;
        return (int32_t)(crc32_of(key, len) % (uint32_t)n);
    default: return (int32_t)(crc32_of(key, len) % (uint32_t)n);
    }
    return (int32_t)((wire_murmur2(key, len) & 0x7fffffffU) % (uint32_t)n);
}
