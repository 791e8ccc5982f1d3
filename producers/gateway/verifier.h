/* verifier.h - passwords held against their hashes on a thread of its own: crypt(3) takes tens of milliseconds, in which the loop would serve nobody. What
 * was right is remembered for some minutes as a keyed digest of hash and password, since basic authentication sends both with every request; a hash
 * that changes is another digest, so a changed users file is obeyed at once. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_VERIFIER_H
#define PST_PRODUCERS_GATEWAY_VERIFIER_H

#include "common/loop/loop.h"

typedef struct gw_verifier gw_verifier;
typedef void (*gw_verified)(void *arg, bool right);

int gw_verifier_new(pst_loop *loop, gw_verifier **ret_verifier, pst_err *err);
/* Ends the thread. Every question that is open is answered: false, if it was not looked at yet. Nothing can be asked after it. May run the loop, so whatever
 * fn leads to must still be there. NULL-safe, and so is what follows. */
void gw_verifier_stop(gw_verifier *v);
/* Stops it, if that was not done. Before the loop ends. */
void gw_verifier_free(gw_verifier *v);
/* Is it remembered that this password is the hash's? */
bool gw_verifier_knows(gw_verifier *v, const char *hash, const char *password);
/* fn is called on the loop's thread, never before this returns. false: too many wait, at all or of this address; fn is not called. Texts are copied. */
bool gw_verifier_ask(gw_verifier *v, const char *peer, const char *hash, const char *password, gw_verified fn, void *arg);

#endif
