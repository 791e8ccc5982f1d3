# shellcheck shell=bash

help() {
    cat <<'HELP'
kafka: a real Apache Kafka (KRaft) on this computer, for development and tests

Usage
  kafka start  [options]             start it (again: prints the same); prints its bootstrap address
  kafka stop | wipe [--dir DIR]      stop it | stop it and remove its data
  kafka status [--dir DIR] [--json]  what runs; exit status 4 when nothing does
  kafka kill ID [--dir DIR]          SIGKILL one broker, for fault tests
  kafka start ID [--dir DIR]         start that broker again from its data
  kafka fetch [--version V]          only get the jars (once per user); prints their directory
  kafka user add NAME PASSWORD       a user for SASL (PLAIN, SCRAM); restarts the brokers one by one
  kafka acl ARGS...                  Kafka's ACL tool, e.g. --add --allow-principal User:alice --operation All --topic '*'
  kafka tool NAME ARGS...            Kafka's own tools: topics groups configs offsets transactions acls versions dump, or a Java class

Options
  --brokers 1|3     brokers, each also a controller; with 3, topics have replication 3 and min.insync.replicas 2   [1]
  --dir DIR         data, logs and state                          [$XDG_STATE_HOME/penstock/kafka or ~/.local/state/penstock/kafka]
  --port P          first of up to 12 ports from P to P+11; an error if one is in use                 [19092, or the next free ones]
  --sasl            a further listener with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; ACLs on
  --tls             further listeners with TLS and with mutual TLS; ACLs on; certificates in DIR/tls (with --sasl, one broker: SASL over TLS too)
  --version V       4.3.1 or 3.9.2                                                                                           [4.3.1]
  --json            results as one JSON object

For tests
  users       admin/admin-secret (may do everything), alice/alice-secret, bob/bob-secret (may do nothing until an ACL says so)
  TLS         ssl.ca.location=DIR/tls/ca.pem; mutual: also DIR/tls/client.pem and DIR/tls/client.key, principal User:CN=client
  plaintext   stays open for everybody with all rights (User:ANONYMOUS): set up through it, test through the others
  addresses   kafka status --json: "listeners":{"sasl":…,"tls":…,"mtls":…,"sasl_tls":…}
  SCRAM       clients with librdkafka older than 2.6.1 (Debian 12: 2.0.2) cannot log in by SCRAM to Kafka 4; PLAIN and TLS work, and 3.9.2 does

Environment
  PENSTOCK_JAVA (or JAVA_HOME)     the Java to use, 17 or newer
  PENSTOCK_KAFKA_VERSION           --version where none is given and the directory holds none [4.3.1]
  PENSTOCK_KAFKA_HEAP              heap of a broker [128m]
  PENSTOCK_KAFKA_START_TIMEOUT     seconds to wait for an answer [120]
  PENSTOCK_KAFKA_BROKER_SESSION_MS how long a broker may be held up before it is fenced, and waits when it comes back from a kill [9000]
  PENSTOCK_KAFKA_CDS=0             no class archive
  XDG_CACHE_HOME                   where the jars go: $XDG_CACHE_HOME/penstock or ~/.cache/penstock

Exit status
  0 ok · 1 failed · 2 usage · 4 not running · 69 Java, Maven or the network is missing (the message says what to install) · 130 Ctrl-C

Examples
  kafka start                                      # 127.0.0.1:19092
  kafka start --brokers 3 --dir /tmp/k3 --port 29092
  kafka kill 2 --dir /tmp/k3; kafka start 2 --dir /tmp/k3
  kafka start --sasl --tls --dir /tmp/ks
  kcat -L -b 127.0.0.1:19094 -X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=PLAIN -X sasl.username=admin -X sasl.password=admin-secret
  kafka acl --dir /tmp/ks --add --allow-principal User:bob --operation Read --topic scores
  kafka wipe --dir /tmp/k3
HELP
}
