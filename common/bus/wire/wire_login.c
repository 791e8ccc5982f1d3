/* wire_login.c - what a connection says before it may be used: which versions the broker has, then who we are. Versions are asked for with the newest ApiVersions that we
 * have; a broker that does not know it answers as version 0 with the ones it has (KIP-511), and is asked once more. SASL tokens travel in
 * SaslAuthenticate (KIP-152). Where the broker says how long the session lasts, we log in again on the same connection when 85 % of it are
 * over (KIP-368); nothing else is written in between, and what was under way is answered before.
 *
 *     SaslHandshake     1      KIP-43, KIP-152
 *     SaslAuthenticate  0–2    lifetime since 1 (KIP-368), flexible since 2
 *
 * A refusal is for good, if nobody of this net has ever been let in; afterwards it may be passing (a broker that has not read its users yet). */
#include "common/bus/wire/wire_conn.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <string.h>

static const wire_api sasl_handshake = {.key = 17, .min = 1, .max = 1, .flexible = 99, .name = "SaslHandshake"};
static const wire_api sasl_authenticate = {.key = 36, .min = 0, .max = 2, .flexible = 2, .name = "SaslAuthenticate"};

static void refuse(wire_conn *c, const char *why)
{
    wire_net *net = c->net;
    if (!net->worked && !net->fatal) {
        net->fatal = BUS_ERR__AUTHENTICATION;
        snprintf(net->fatal_text, sizeof net->fatal_text, "%s:%d: %.200s", c->node->host, c->node->port, why);
    }
    wire_conn_fail(c, BUS_ERR__AUTHENTICATION, "%s", why);
}

static void broken(wire_conn *c, const char *name)
{
    wire_conn_fail(c, BUS_ERR__TRANSPORT, "the answer to %s cannot be read", name);
}

/* ---- versions -------------------------------------------------------------------------------------------------------------------------- */

static void put_versions(wire_conn *c, int16_t version, wire_out *out)
{
    wire_versions_put(version, out);
}

static void ask_versions(wire_conn *c, int16_t version)
{
    c->versions_asked = version;
    c->login_id = wire_calls_put_login(c, &wire_api_versions, version, put_versions);
    wire_conn_flush(c);
}

static void name_mechanism(wire_conn *c);

static void on_versions(wire_conn *c, wire_in *in)
{
    wire_versions v;
    if (wire_versions_get(in, c->versions_asked, &v) < 0) {
        broken(c, wire_api_versions.name);
        return;
    }
    if (v.code == BUS_ERR_UNSUPPORTED_VERSION && c->versions_asked) {
        int16_t best = wire_versions_best(&v, &wire_api_versions);
        ask_versions(c, best >= 0 && best < c->versions_asked ? best : 0);
        return;
    }
    if (v.code) {
        wire_conn_fail(c, v.code, "ApiVersions was refused");
        return;
    }
    c->node->versions = v;
    c->node->versions_known = true;
    wire_where_learn_features(c->net, &v);
    if (c->net->conf->security >= WIRE_SASL_PLAINTEXT)
        name_mechanism(c);
    else
        wire_conn_up(c);
}

void wire_login_begin(wire_conn *c)
{
    c->state = WIRE_ASKING;
    ask_versions(c, wire_api_versions.max);
}

/* ---- SASL -------------------------------------------------------------------------------------------------------------------------------- */

static void put_mechanism(wire_conn *c, int16_t version, wire_out *out)
{
    wire_put_str(out, wire_sasl_name(c->net->conf));
}

static void name_mechanism(wire_conn *c)
{
    if (wire_versions_best(&c->node->versions, &sasl_handshake) < 0 || wire_versions_best(&c->node->versions, &sasl_authenticate) < 0) {
        refuse(c, "the broker has no SaslHandshake and SaslAuthenticate: is this listener one with SASL?");
        return;
    }
    c->state = WIRE_NAMING;
    c->login_id = wire_calls_put_login(c, &sasl_handshake, 1, put_mechanism);
    wire_conn_flush(c);
}

void wire_login_again(wire_conn *c)
{
    c->deadline_us = pst_mono_us() + c->net->conf->setup_timeout_ms * 1000LL;
    name_mechanism(c);
}

static _Thread_local const pst_buf *to_put; /* between send_token() and put_token() */

static void put_token(wire_conn *c, int16_t version, wire_out *out)
{
    wire_put_blob(out, to_put->data ? to_put->data : "", to_put->len);
    wire_put_tags(out);
}

/* The next token of ours; 0 of the mechanism: it is content, and so the connection is up. */
static void step(wire_conn *c, const void *theirs, size_t len)
{
    pst_buf ours = {0};
    pst_err err = {0};
    int rc = wire_sasl_step(c->sasl, theirs, len, &ours, &err);
    if (rc < 0) {
        refuse(c, err.text);
    } else if (rc > 0) {
        to_put = &ours;
        c->login_id = wire_calls_put_login(c, &sasl_authenticate, wire_versions_best(&c->node->versions, &sasl_authenticate), put_token);
        to_put = NULL;
        wire_conn_flush(c);
    } else {
        wire_sasl_free(c->sasl);
        c->sasl = NULL;
        wire_conn_up(c);
    }
    if (ours.data)
        explicit_bzero(ours.data, ours.len);
    pst_buf_done(&ours);
}

static void on_mechanism(wire_conn *c, wire_in *in)
{
    char text[300];
    int code = wire_get_i16(in);
    size_t n = wire_get_count(in, 2, NULL), len = 0;
    snprintf(text, sizeof text, "the broker does not take sasl.mechanism=%s; it has:", wire_sasl_name(c->net->conf));
    for (size_t i = 0; i < n && !in->bad; i++) {
        wire_str s = wire_get_str(in);
        len = strlen(text);
        if (s.at)
            snprintf(text + len, sizeof text - len, " %.*s", (int)(s.len < 40 ? s.len : 40), s.at);
    }
    if (!wire_in_done(in))
        broken(c, sasl_handshake.name);
    else if (code)
        refuse(c, code == BUS_ERR_UNSUPPORTED_SASL_MECHANISM ? text : "the broker refuses a login here: is this listener one with SASL?");
    else {
        c->state = WIRE_LOGIN;
        wire_sasl_free(c->sasl);
        c->sasl = wire_sasl_new(c->net->conf);
        step(c, NULL, 0);
    }
}

/* Again when 85 % of the session are over; a session that is shorter than two seconds is renewed at once when it is used up to there, too. */
static void plan_again(wire_conn *c, int64_t lifetime_ms)
{
    c->relogin_us = lifetime_ms > 0 && lifetime_ms < INT64_MAX / 2000 ? pst_mono_us() + lifetime_ms * 850 : 0;
}

static void on_token(wire_conn *c, wire_in *in, int16_t version)
{
    char why[200] = "the broker refuses the login";
    int code = wire_get_i16(in);
    wire_str text = wire_get_str(in), theirs = wire_get_blob(in);
    int64_t lifetime_ms = version >= 1 ? wire_get_i64(in) : 0;
    wire_get_tags(in);
    if (!wire_in_done(in)) {
        broken(c, sasl_authenticate.name);
        return;
    }
    if (code) {
        if (text.at && text.len)
            snprintf(why, sizeof why, "%.*s", (int)(text.len < 190 ? text.len : 190), text.at);
        refuse(c, why);
        return;
    }
    plan_again(c, lifetime_ms);
    step(c, theirs.at ? theirs.at : "", theirs.len);
}

void wire_login_answer(wire_conn *c, wire_block *block)
{
    wire_in in = wire_in_of(block->data, block->len, false);
    wire_get_i32(&in); /* the id, which was looked at */
    c->login_id = -1;
    if (c->state == WIRE_ASKING) {
        on_versions(c, &in); /* its header is the plain one in all versions (KIP-511) */
    } else if (c->state == WIRE_NAMING) {
        on_mechanism(c, &in);
    } else if (c->state == WIRE_LOGIN) {
        int16_t version = wire_versions_best(&c->node->versions, &sasl_authenticate);
        in.flexible = version >= sasl_authenticate.flexible;
        wire_get_tags(&in);
        on_token(c, &in, version);
    }
}
