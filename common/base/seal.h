/* seal.h - short secrets that must travel where many can read: AES-256-GCM under a key that stays in one folder.
 *
 *     pst_seal_key key;
 *     pst_seal_key_make(state_dir, &key, &err);                          // <state-dir>/seal.key, 0600
 *     char *text = pst_seal(&key, training_id, "geheim", 6);             // "sealed:…", printable
 *     char *back = pst_unseal(&key, training_id, text, &len);            // NULL: another key, another context, or not sealed
 *
 * The nonce is a digest of key, context and secret: the same secret in the same context gives the same text (states that did not change stay
 * equal), and a nonce never serves two different secrets. @thread any. */
#ifndef PST_BASE_SEAL_H
#define PST_BASE_SEAL_H

#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define PST_SEALED "sealed:"

typedef struct pst_seal_key {
    uint8_t bytes[32];
} pst_seal_key;

#define PST_SEAL_ID_MAX 17
#define PST_SEAL_DETAIL "seal_key" /* in the details of an LCM's heartbeat: the id of its key */

/* The key of the folder; drawn where there is none, once, whoever asks first. PST_EAUTH: others could have read it. */
int pst_seal_key_make(const char *state_dir, pst_seal_key *ret_key, pst_err *err);
/* Tells whether two have the same key, and nothing else of it. */
void pst_seal_key_id(const pst_seal_key *key, char ret_id[PST_SEAL_ID_MAX]);
char *pst_seal(const pst_seal_key *key, const char *context, const char *secret, size_t len); /* free() */
char *pst_unseal(const pst_seal_key *key, const char *context, const char *sealed, size_t *ret_len);
bool pst_is_sealed(const char *text);
/* Turns every sealed text in it into "***", in place: for people. NULL-safe. */
void pst_sealed_mask(char *text);

#endif
