/* training_id.h - the one derivation of a job's id from its submission, pure, so that the Trainer's core and every client agree on it.
 * @thread any. */
#ifndef PST_SCHEMAS_TRAINING_ID_H
#define PST_SCHEMAS_TRAINING_ID_H

/* "training-" + lower-case base32 of the first 15 bytes of sha256(user NUL request_id): 33 characters. ret ≥ 64 bytes. */
void pst_training_id(const char *user, const char *request_id, char *ret_id);
/* What tells two submissions of one request id apart: hex SHA-256 of manifest NUL code; code is its own digest, or its uri. Either may be
 * NULL. ret: 65 bytes. */
void pst_submission_digest(const char *manifest, const char *code, char *ret);

enum { PST_REQUEST_TEXT_MAX = 256 };
/* A request id or a user is UTF-8 of 256 bytes at most without control characters. NULL, or what is wrong: "is longer …". */
const char *pst_request_text_wrong(const char *text);

#endif
