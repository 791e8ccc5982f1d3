# shellcheck shell=bash
# Kafka's own command-line tools against the running cluster. Each is a JVM start (1.5 to 6 s): an oracle and a way to set users and
# ACLs, not the way to create topics in a test.

parse_tool() { # like parse, but everything except --dir is the tool's
    while (($#)); do
        case $1 in
            --dir)
                (($# >= 2)) || usage_error "--dir needs a value"
                DIR=$2
                shift 2
                continue
                ;;
            --dir=*) DIR=${1#*=} ;;
            *) ARGS+=("$1") ;;
        esac
        shift
    done
    DIR=$(realpath -m -- "$DIR") || die "$EX_FAILED" "cannot resolve --dir"
}

tool_class() { # NAME -> REPLY
    local package=org.apache.kafka.tools
    case $S_VERSION:$1 in
        *:topics) REPLY=$package.TopicCommand ;;
        *:groups) REPLY=$package.consumer.group.ConsumerGroupCommand ;;
        *:configs) REPLY=kafka.admin.ConfigCommand ;;
        *:offsets) REPLY=$package.GetOffsetShell ;;
        *:transactions) REPLY=$package.TransactionsCommand ;;
        3.*:acls) REPLY=kafka.admin.AclCommand ;;
        3.*:versions) REPLY=kafka.admin.BrokerApiVersionsCommand ;;
        3.*:dump) REPLY=kafka.tools.DumpLogSegments ;;
        *:acls) REPLY=$package.AclCommand ;;
        *:versions) REPLY=$package.BrokerApiVersionsCommand ;;
        *:dump) REPLY=$package.DumpLogSegments ;;
        *:*.*) REPLY=$1 ;;
        *) usage_error "there is no tool \"$1\": topics groups configs offsets transactions acls versions dump, or the name of a Java class" ;;
    esac
}

run_tool() { # NAME ARGS...
    local tool=$1 class bootstrap=()
    shift
    tool_class "$tool"
    class=$REPLY
    if [[ $tool != dump ]]; then
        addresses plain
        bootstrap=(--bootstrap-server "$REPLY")
    fi
    class_path
    CLASSPATH=$REPLY "$JAVA" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xmx256m \
        -Dlog4j2.configurationFile="$DIR/conf/log4j2.properties" -Dlog4j.configuration="file:$DIR/conf/log4j.properties" \
        "$class" "${bootstrap[@]}" "$@"
}

need_cluster() {
    state_load || die "$EX_NOT_RUNNING" "there is no Kafka in $DIR (start it first)"
    listeners
    find_java
    fetch_jars
}

verb_tool() {
    ((${#ARGS[@]})) || usage_error "tool needs a name: topics groups configs offsets transactions acls versions dump, or a Java class"
    need_cluster
    run_tool "${ARGS[@]}"
}

verb_acl() {
    need_cluster
    ((S_SASL || S_TLS)) || die "$EX_USAGE" "the Kafka in $DIR has no authorizer: ACLs need one that was started with --sasl or --tls"
    run_tool acls "${ARGS[@]}"
}

verb_user() { # add NAME PASSWORD: SCRAM at once; PLAIN users stand in the brokers' configuration, so those restart one by one
    local name password mechanism node
    ((${#ARGS[@]} == 3)) && [[ ${ARGS[0]} == add ]] || usage_error "user takes: add NAME PASSWORD"
    name=${ARGS[1]} password=${ARGS[2]}
    [[ $name =~ ^[A-Za-z0-9._-]+$ ]] || usage_error "a user's name has letters, digits, '.', '_' and '-' only"
    [[ $password =~ ^[A-Za-z0-9._~!@#%^*+/:=?-]+$ ]] || usage_error "the password holds a character that Kafka's configuration would misread"
    need_cluster
    ((S_SASL)) || die "$EX_USAGE" "the Kafka in $DIR was not started with --sasl"
    lock_dir
    for mechanism in 256 512; do # both in one call is refused by Kafka
        run_tool configs --alter --entity-type users --entity-name "$name" --add-config "SCRAM-SHA-$mechanism=[password=$password]" >&2 ||
            die "$EX_FAILED" "Kafka did not take the user"
    done
    { sed "/^$name /d" "$DIR/conf/users" && echo "$name $password"; } | write_file "$DIR/conf/users" || exit "$EX_FAILED"
    write_config
    for ((node = 1; node <= S_BROKERS; node++)); do
        node_pid "$node" || continue
        kill -TERM "$REPLY"
        wait_gone "$STOP_LIMIT_S" "$REPLY" || die "$EX_FAILED" "broker $node does not stop"
        cds_adopt "$node" yes
        ONLY_NODE=$node
        start_nodes "$node"
    done
    say "user $name added (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)"
}
