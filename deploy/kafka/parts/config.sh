# shellcheck shell=bash
# Ports, the brokers' properties, storage, certificates and users.
#
# Ports from P: broker i answers clients on P+2(i-1), its controller listens on the next one. Security listeners follow:
#   1 broker   P+2 SASL_PLAINTEXT, P+3 TLS, P+4 mutual TLS, P+5 SASL over TLS (with both options)
#   3 brokers  P+6.. SASL_PLAINTEXT (with --sasl), P+6.. TLS and P+9.. mutual TLS (with --tls)

readonly PORT_DEFAULT=19092 PORT_SPAN=12

port_of() { # LISTENER NODE -> REPLY
    local i=$(($2 - 1))
    if ((S_BROKERS == 1)); then
        case $1 in
            plain) REPLY=$S_PORT ;;
            controller) REPLY=$((S_PORT + 1)) ;;
            sasl) REPLY=$((S_PORT + 2)) ;;
            tls) REPLY=$((S_PORT + 3)) ;;
            mtls) REPLY=$((S_PORT + 4)) ;;
            sasl_tls) REPLY=$((S_PORT + 5)) ;;
        esac
    else
        case $1 in
            plain) REPLY=$((S_PORT + 2 * i)) ;;
            controller) REPLY=$((S_PORT + 2 * i + 1)) ;;
            sasl | tls) REPLY=$((S_PORT + 6 + i)) ;;
            mtls) REPLY=$((S_PORT + 9 + i)) ;;
        esac
    fi
}

listeners() { # -> LISTENERS: the kinds that this cluster has, controller left out
    LISTENERS=(plain)
    ((S_SASL)) && LISTENERS+=(sasl)
    ((S_TLS)) && LISTENERS+=(tls mtls)
    ((S_SASL && S_TLS)) && LISTENERS+=(sasl_tls)
    return 0
}

addresses() { # LISTENER -> REPLY: 127.0.0.1:p[,127.0.0.1:p...]
    local node out=''
    for ((node = 1; node <= S_BROKERS; node++)); do
        port_of "$1" "$node"
        out+=${out:+,}127.0.0.1:$REPLY
    done
    REPLY=$out
}

# --- free ports -----------------------------------------------------------------------------------------------------------

ports_taken() { # NODE... -> REPLY: those of their ports that somebody uses now
    local node kind used taken=''
    # Listening, connected or connecting on loopback or on any address. Closing connections do not hinder (SO_REUSEADDR), so a broker
    # can come back while its clients still hold their ends.
    used=$(awk '$4 == "0A" || $4 == "01" || $4 == "02" { n = split($2, a, ":")
        if (a[1] ~ /^(00000000|0100007F|0+|0+FFFF00000100007F|0+01000000)$/) print a[n] }' /proc/net/tcp /proc/net/tcp6 2>/dev/null | sort -u)
    for node; do
        for kind in "${LISTENERS[@]}" controller; do
            port_of "$kind" "$node"
            printf -v kind '%04X' "$REPLY"
            [[ $'\n'$used$'\n' == *$'\n'$kind$'\n'* ]] && taken+="${taken:+, }$REPLY"
        done
    done
    REPLY=$taken
}

ports_stay_taken() { # NODE...: as ports_taken, but what is just closing gets a moment
    local try
    for ((try = 0; try < 20; try++)); do
        ports_taken "$@"
        [[ -n $REPLY ]] || return 0
        sleep 0.1
    done
}

reserve_port() { # so that two starts at the same moment do not choose the same; held until this script ends
    mkdir -p "$CACHE/ports" 2>/dev/null
    { exec 6>>"$CACHE/ports/$S_PORT"; } 2>/dev/null || return 0
    flock -n 6
}

choose_ports() { # AFTER: sets S_PORT; after a failed bind, AFTER is the port that failed
    local wanted=$S_PORT node nodes=()
    for ((node = 1; node <= S_BROKERS; node++)); do nodes+=("$node"); done
    if ((S_PORT_SET)); then
        ports_stay_taken "${nodes[@]}"
        [[ -z $REPLY ]] || die "$EX_FAILED" "port $REPLY is in use (needed: $S_PORT to $((S_PORT + PORT_SPAN - 1)));" \
            "give another --port, or none to have free ones chosen"
        reserve_port
        return 0
    fi
    if [[ -n $S_PORT ]]; then ports_stay_taken "${nodes[@]}"; else wanted=$PORT_DEFAULT; fi
    for ((S_PORT = wanted, node = 0; node < 400; node++)); do
        if [[ $S_PORT != "${1:-}" ]] && reserve_port; then
            ports_taken "${nodes[@]}"
            if [[ -z $REPLY ]]; then
                [[ $S_PORT == "$wanted" ]] || say "port $wanted is in use: taking $S_PORT"
                return 0
            fi
        fi
        S_PORT=$((PORT_DEFAULT + 20 * (node + 1)))
    done
    die "$EX_FAILED" "no free ports found from $PORT_DEFAULT to $S_PORT; give one with --port"
}

# --- properties -----------------------------------------------------------------------------------------------------------

node_properties() { # NODE, on stdout. Paths are relative to DIR, the brokers' working directory.
    local node=$1 i kind voters='' list='' offered='' replicas=1 isr=1 partitions=1 session=$BROKER_SESSION_MS
    local -A name=([plain]=PLAINTEXT [sasl]=SASL [tls]=TLS [mtls]=MTLS [sasl_tls]=SASLTLS)
    if ((S_BROKERS == 3)); then
        replicas=3 isr=2 partitions=3
    fi
    for ((i = 1; i <= S_BROKERS; i++)); do
        port_of controller "$i"
        voters+=${voters:+,}$i@127.0.0.1:$REPLY
    done
    for kind in "${LISTENERS[@]}"; do
        port_of "$kind" "$node"
        offered+=${offered:+,}${name[$kind]}://127.0.0.1:$REPLY
    done
    port_of controller "$node"
    list=$offered,CONTROLLER://127.0.0.1:$REPLY
    cat <<PROPERTIES
# Written by deploy/kafka/kafka at each start; changes here are lost.
process.roles=broker,controller
node.id=$node
controller.quorum.voters=$voters
listeners=$list
advertised.listeners=$offered
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,MTLS:SSL,SASLTLS:SASL_SSL
log.dirs=data/$node
auto.create.topics.enable=false
default.replication.factor=$replicas
min.insync.replicas=$isr
offsets.topic.replication.factor=$replicas
offsets.topic.num.partitions=$partitions
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=$isr
transaction.state.log.num.partitions=$partitions
share.coordinator.state.topic.replication.factor=$replicas
share.coordinator.state.topic.min.isr=$isr
share.coordinator.state.topic.num.partitions=1
# A group's first member waits for no others, a test's session may be short, a transaction as long as Kafka's own limit.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
transaction.max.timeout.ms=900000
# A killed broker may come back only after its old session has ended, so a short one would be pleasant. But a broker that is held up for longer
# (a busy machine, a suspended laptop) is fenced, and on a single broker all partitions are without a leader then: Kafka 4.1 to 4.3 leaves out the
# markers of transactions that end in that moment (KAFKA-20734), and records of aborted ones come back to life.
broker.session.timeout.ms=$session
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=5000
# Small: few threads, and a cleaner buffer that fits the heap (its default of 128 MiB alone needs twice the heap given here).
num.network.threads=1
num.io.threads=2
background.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
metric.reporters=
PROPERTIES
    ((S_SASL || S_TLS)) && security_properties
    return 0
}

security_properties() {
    local user password users='' listener mechanism
    cat <<PROPERTIES
# ANONYMOUS is everybody on the plaintext listener, the brokers among them: this cluster is for tests, on loopback.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin
PROPERTIES
    if ((S_SASL)); then
        while read -r user password; do
            users+=" user_$user=\"$password\""
        done <"$DIR/conf/users"
        echo "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        for listener in sasl sasltls; do
            [[ $listener == sasltls ]] && ((!S_TLS)) && continue
            echo "listener.name.$listener.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required$users;"
            for mechanism in scram-sha-256 scram-sha-512; do
                echo "listener.name.$listener.$mechanism.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;"
            done
        done
    fi
    if ((S_TLS)); then
        cat <<PROPERTIES
ssl.keystore.type=PEM
ssl.keystore.location=tls/server.keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=tls/ca.pem
listener.name.mtls.ssl.client.auth=required
PROPERTIES
    fi
}

write_config() {
    local node
    mkdir -p "$DIR/conf" "$DIR/data" "$DIR/logs" "$DIR/run" || die "$EX_FAILED" "cannot make directories in $DIR"
    ((S_SASL)) && [[ ! -e $DIR/conf/users ]] && write_file "$DIR/conf/users" <<<$'admin admin-secret\nalice alice-secret\nbob bob-secret'
    ((S_TLS)) && make_certificates
    for ((node = 1; node <= S_BROKERS; node++)); do
        node_properties "$node" | write_file "$DIR/conf/node-$node.properties" || exit "$EX_FAILED"
    done
    write_file "$DIR/conf/log4j2.properties" <<'PROPERTIES'
status=error
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.c.ref=C
PROPERTIES
    write_file "$DIR/conf/log4j.properties" <<'PROPERTIES'
log4j.rootLogger=WARN, C
log4j.appender.C=org.apache.log4j.ConsoleAppender
log4j.appender.C.layout=org.apache.log4j.PatternLayout
log4j.appender.C.layout.ConversionPattern=%d %p %c{1}: %m%n
PROPERTIES
    # Brokers: the same lines in files that are put aside at 8 MiB, four kept. Tools keep the console.
    write_file "$DIR/conf/broker-log4j2.properties" <<'PROPERTIES'
status=error
appender.f.type=RollingFile
appender.f.name=F
appender.f.fileName=${sys:penstock.log}
appender.f.filePattern=${sys:penstock.log}.%i
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=%d %p %c{1}: %m%n
appender.f.policies.type=Policies
appender.f.policies.size.type=SizeBasedTriggeringPolicy
appender.f.policies.size.size=8MB
appender.f.strategy.type=DefaultRolloverStrategy
appender.f.strategy.fileIndex=min
appender.f.strategy.max=4
rootLogger.level=warn
rootLogger.appenderRef.f.ref=F
PROPERTIES
    write_file "$DIR/conf/broker-log4j.properties" <<'PROPERTIES'
log4j.rootLogger=WARN, F
log4j.appender.F=org.apache.log4j.RollingFileAppender
log4j.appender.F.File=${penstock.log}
log4j.appender.F.MaxFileSize=8MB
log4j.appender.F.MaxBackupIndex=4
log4j.appender.F.layout=org.apache.log4j.PatternLayout
log4j.appender.F.layout.ConversionPattern=%d %p %c{1}: %m%n
PROPERTIES
}

# --- storage --------------------------------------------------------------------------------------------------------------

random_uuid() { # -> REPLY: 16 random bytes in Kafka's base64; a leading '-' would look like an option
    while :; do
        REPLY=$(head -c 16 /dev/urandom | base64)
        REPLY=${REPLY//+/-}
        REPLY=${REPLY//\//_}
        REPLY=${REPLY%==}
        [[ $REPLY == -* ]] || return 0
    done
}

format_node() { # NODE: by Kafka's own tool (a JVM, 2 to 3 s) the first time, afterwards by what that wrote
    local node=$1 template=$CACHE/kafka-$S_VERSION/bootstrap.checkpoint new=$DIR/data/$1.new log user password scram=()
    [[ -f $DIR/data/$node/meta.properties ]] && return 0
    ((S_SASL)) && template=$DIR/conf/bootstrap.checkpoint # holds the users' SCRAM credentials
    rm -rf "$new" "$DIR/data/$node"
    if [[ -s $template ]]; then
        mkdir -p "$new" || die "$EX_FAILED" "cannot make $new"
        cp "$template" "$new/bootstrap.checkpoint" || die "$EX_FAILED" "cannot copy $template"
        random_uuid
        printf '%s\n' version=1 "cluster.id=$S_CLUSTER" "node.id=$node" "directory.id=$REPLY" >"$new/meta.properties"
    else
        if ((S_SASL)); then
            while read -r user password; do
                scram+=(--add-scram "SCRAM-SHA-256=[name=$user,password=$password]" --add-scram "SCRAM-SHA-512=[name=$user,password=$password]")
            done <"$DIR/conf/users"
        fi
        log=$DIR/logs/format-$node.log
        sed "s,^log.dirs=.*,log.dirs=data/$node.new," "$DIR/conf/node-$node.properties" >"$DIR/conf/format-$node.properties"
        cds_options -
        class_path
        (cd "$DIR" && CLASSPATH=$REPLY LC_ALL=C.UTF-8 exec "$JAVA" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xmx128m \
            kafka.tools.StorageTool format -t "$S_CLUSTER" -g -c "conf/format-$node.properties" "${scram[@]}") >"$log" 2>&1 </dev/null || {
            tail -n 5 "$log" >&2
            die "$EX_FAILED" "formatting the storage of broker $node failed; all of it is in $log"
        }
        rm -f "$DIR/conf/format-$node.properties"
        if [[ -s $new/bootstrap.checkpoint ]]; then
            cp "$new/bootstrap.checkpoint" "$template.new.$$" 2>/dev/null && mv -f "$template.new.$$" "$template"
        fi
    fi
    mv "$new" "$DIR/data/$node" || die "$EX_FAILED" "cannot rename $new"
}

# --- certificates ---------------------------------------------------------------------------------------------------------

make_certificates() { # once per directory: a CA, the brokers' certificate, a client's (CN=client)
    local new=$DIR/tls.new who subject
    [[ -f $DIR/tls/client.pem ]] && return 0
    command -v openssl >/dev/null || die "$EX_MISSING" "--tls makes certificates with openssl, which was not found (Debian: apt-get install openssl)"
    rm -rf "$new" "$DIR/tls"
    (
        umask 077
        mkdir -p "$new" && cd "$new" || exit 1
        openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=penstock test CA" -keyout ca.key -out ca.pem &&
            for who in server client; do
                subject=/CN=$who
                # "req -nodes" writes the key as PKCS#8, the only form that Kafka takes; clients check the address in subjectAltName.
                openssl req -newkey rsa:2048 -nodes -subj "$subject" -keyout "$who.key" -out "$who.csr" &&
                    openssl x509 -req -in "$who.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -out "$who.pem" \
                        -extfile <(echo "subjectAltName=IP:127.0.0.1,DNS:localhost") || exit 1
            done && cat server.key server.pem >server.keystore.pem && rm -f ./*.csr ./*.srl
    ) >"$DIR/logs/openssl.log" 2>&1 </dev/null || die "$EX_FAILED" "openssl failed; see $DIR/logs/openssl.log"
    mv "$new" "$DIR/tls" || die "$EX_FAILED" "cannot rename $new"
}
