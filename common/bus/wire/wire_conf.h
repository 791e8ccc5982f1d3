/* wire_conf.h - properties of our own client: librdkafka's names where they mean the same, read and checked once, then plain numbers and texts.
 *
 * One table (wire_conf.c) has each property's name, kind of client, range, default and place in the struct; it is what wire_conf_ops lists and checks. A
 * property of librdkafka's that we do not have is refused with the cure: another client ("bus: rdkafka"); so is a value, as GSSAPI. Nothing that a user
 * set is left aside in silence.
 * @thread any; a wire_conf is not changed once it was read, so any number of nets may share one. */
#ifndef PST_WIRE_CONF_H
#define PST_WIRE_CONF_H

#include "common/bus/bus_client.h"

enum { WIRE_PLAINTEXT, WIRE_TLS, WIRE_SASL_PLAINTEXT, WIRE_SASL_TLS };               /* security.protocol */
enum { WIRE_PLAIN, WIRE_SCRAM_256, WIRE_SCRAM_512, WIRE_OAUTHBEARER };               /* sasl.mechanism */
enum { WIRE_ANY, WIRE_V4, WIRE_V6 };                                                 /* broker.address.family */
enum { WIRE_RANGE, WIRE_COOPERATIVE };                                               /* partition.assignment.strategy */
enum { WIRE_CLASSIC, WIRE_CONSUMER };                                                /* group.protocol */
enum { WIRE_READ_UNCOMMITTED, WIRE_READ_COMMITTED };                                 /* isolation.level: as the protocol has them */
enum { WIRE_EARLIEST, WIRE_LATEST, WIRE_RESET_ERROR };                               /* auto.offset.reset */
enum { WIRE_MURMUR2, WIRE_MURMUR2_RANDOM, WIRE_CONSISTENT, WIRE_CONSISTENT_RANDOM }; /* partitioner; the last two by CRC-32, librdkafka's */

struct wire_conf {
    /* every client */
    char *bootstrap; /* bootstrap.servers: host[:port],… */
    char *client_id, *rack;
    int security;
    int message_max_bytes; /* of a request, message.max.bytes */
    int receive_max_bytes; /* of an answer */
    int inflight_max;      /* requests a connection; net.c keeps to it */
    int socket_timeout_ms, setup_timeout_ms, idle_max_ms;
    int send_buffer_bytes, receive_buffer_bytes; /* of the socket, 0 = the system's */
    bool keepalive, no_nagle;
    int family;
    int reconnect_backoff_ms, reconnect_backoff_max_ms;
    int retry_backoff_ms, retry_backoff_max_ms;
    int metadata_refresh_ms;  /* topic.metadata.refresh.interval.ms; -1 = only where something proved wrong */
    int metadata_max_age_ms;  /* a topic that was not asked for since is forgotten */
    int metadata_propagation; /* topic.metadata.propagation.max.ms: so long a topic may be unknown before that is an error */
    bool auto_create;         /* allow.auto.create.topics */

    /* TLS */
    char *ca_location, *ca_pem, *crl_location;
    char *certificate_location, *certificate_pem, *key_location, *key_pem, *key_password;
    char *keystore_location, *keystore_password; /* PKCS#12 */
    char *cipher_suites, *curves, *sigalgs;
    bool verify_peer;
    int verify_host; /* 0 = not */

    /* SASL */
    int mechanism; /* -1 = none was named */
    char *username, *password;
    bool oauth_unsecured;               /* a token without a signature is made here, of oauth_config */
    int oauth_method;                   /* 1 = oidc: the token is read from the file at oauth_url */
    char *oauth_config;                 /* principal=… lifeSeconds=… scope=… */
    char *oauth_url, *oauth_extensions; /* file:///…; k=v,k=v */

    /* consumer */
    char *group, *instance_id;
    int group_protocol;
    char *remote_assignor; /* KIP-848; NULL = the broker's */
    int assignor;
    int session_timeout_ms, heartbeat_ms, poll_interval_ms;
    int isolation, offset_reset;
    int fetch_wait_ms, fetch_min_bytes, fetch_max_bytes, partition_fetch_bytes, fetch_error_backoff_ms;
    int queued_max_kbytes;
    bool check_crcs;

    /* producer */
    char *transactional_id;
    int transaction_timeout_ms;
    bool idempotent;
    int acks; /* -1 = all */
    int linger_ms;
    int batch_bytes, batch_records;
    int queue_max_records, queue_max_kbytes;
    int codec; /* a wire_codec */
    int level; /* of compression; -1 = the codec's */
    int partitioner;
    int request_timeout_ms; /* for acks at the broker */
    int message_timeout_ms; /* 0 = as long as it takes */
};
typedef struct wire_conf wire_conf;

extern const bus_conf_ops wire_conf_ops;

/* What a client is made of: `defaults` stand below what the user set, `forced` above (value NULL: a user's is put aside); both end with a NULL key and may be NULL. A
 * user's value that differs from a forced one is told in the log, as what was set for the other kind of client is left aside. What does not go together is
 * refused here, and so is what we do not have. */
int wire_conf_read(const pst_bus_conf *conf, bus_prop_scope kind, const bus_kv *defaults, const bus_kv *forced, wire_conf **ret,
                   pst_err *err);
void wire_conf_free(wire_conf *c); /* NULL-safe; wipes secrets */

#endif
