/* training_id.c - a digest of (user, request id), cut to 120 bits: the same submission published twice, by whatever client, is the same job,
 * and nobody can choose an id. Base32 because ids are typed, spoken and used as names of folders and pods. */
#include "schemas/training_id.h"

#include "common/base/buf.h"
#include "common/base/hash.h"
#include "schemas/avro_node.h"

#include <stdio.h>
#include <string.h>

void pst_training_id(const char *user, const char *request_id, char *ret_id)
{
    uint8_t digest[32];
    pst_sha256 *h = pst_sha256_new();
    pst_sha256_add(h, user, strlen(user) + 1); /* with its NUL: ("ab", "c") is not ("a", "bc") */
    pst_sha256_add(h, request_id, strlen(request_id));
    pst_sha256_end(h, digest);
    memcpy(ret_id, "training-", 9);
    pst_base32(digest, 15, ret_id + 9); /* 120 bits: 24 letters, no partial one */
}

void pst_submission_digest(const char *manifest, const char *code, char *ret)
{
    pst_buf b = {0};
    manifest = manifest ? manifest : "";
    pst_buf_add(&b, manifest, strlen(manifest) + 1);
    for (; code && *code; code++) /* digests in either case are the same */
        pst_buf_printf(&b, "%c", *code >= 'A' && *code <= 'F' ? *code + ('a' - 'A') : *code);
    pst_sha256_hex(b.data, b.len, ret);
    pst_buf_done(&b);
}

const char *pst_request_text_wrong(const char *text)
{
    size_t len = strlen(text);
    if (len > PST_REQUEST_TEXT_MAX)
        return "is longer than the 256 bytes that are allowed";
    if (!av_utf8_valid(text, len))
        return "is not UTF-8";
    for (const char *s = text; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return "must not contain control characters";
    return NULL;
}
