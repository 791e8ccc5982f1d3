/* wire_sasl.h - logins, as bytes: what is sent first, and what is answered to each token of the broker. Pure but for OAUTHBEARER, whose token may be read from a file.
 *
 *     s = wire_sasl_new(conf)
 *     wire_sasl_step(s, NULL, 0, &out, &err)          // the first token
 *     wire_sasl_step(s, token, len, &out, &err)       // 1: send out, and step again; 0: the broker is who it says, done
 *
 * PLAIN (RFC 4616), SCRAM-SHA-256 and -512 (RFC 5802, 7677), OAUTHBEARER (RFC 7628, KIP-255, KIP-342). No error quotes a password or a token.
 * @thread one at a time. */
#ifndef PST_WIRE_SASL_H
#define PST_WIRE_SASL_H

#include "common/bus/wire/wire_conf.h"

typedef struct wire_sasl wire_sasl;

int wire_sasl_open(const wire_conf *conf, pst_err *err); /* what it needs is there */
wire_sasl *wire_sasl_new(const wire_conf *conf);
const char *wire_sasl_name(const wire_conf *conf);
int wire_sasl_step(wire_sasl *s, const void *token, size_t len, pst_buf *out, pst_err *err);
void wire_sasl_free(wire_sasl *s); /* NULL-safe; wipes */

#endif
