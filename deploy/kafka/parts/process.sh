# shellcheck shell=bash
# Broker processes: finding, starting, ending them, and asking them over Kafka's protocol whether they are ready.
#
# A broker is known by a file run/node-<id>.pid (pid, start time) and by an argument in its command line that names directory and
# node; both must fit before it is signalled, so a reused pid is never hit. Without a fitting file the process table is searched
# for that argument, so a broker outlives a start that was killed without being forgotten.

node_mark() { REPLY=-Dpenstock.kafka.node=$DIR/node-$1; }

start_time() { # PID -> REPLY, clock ticks since boot
    local stat
    REPLY=''
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    # The name in parentheses may hold anything: what counts follows the last one. Field 22 of the line is the 20th after it.
    read -ra stat <<<"${stat##*) }"
    REPLY=${stat[19]}
}

is_node() { # PID NODE: is that process this node of this directory?
    local argv arg mark
    node_mark "$2"
    mark=$REPLY
    { mapfile -d '' -t argv <"/proc/$1/cmdline"; } 2>/dev/null || return 1
    for arg in "${argv[@]}"; do
        [[ $arg == "$mark" ]] && return 0
    done
    return 1
}

node_pid() { # NODE -> REPLY (pid); fails when it does not run
    local pid='' started='' file
    { read -r pid started <"$DIR/run/node-$1.pid"; } 2>/dev/null
    if [[ $pid =~ ^[0-9]+$ ]] && start_time "$pid" && [[ $REPLY == "$started" ]] && is_node "$pid" "$1"; then
        REPLY=$pid
        return 0
    fi
    node_mark "$1"
    # -x: the whole argument; -f: so that grep's own command line does not match.
    while read -r file; do
        pid=${file#/proc/}
        pid=${pid%/cmdline}
        if is_node "$pid" "$1" && start_time "$pid"; then
            echo "$pid $REPLY" 2>/dev/null >"$DIR/run/node-$1.pid"
            REPLY=$pid
            return 0
        fi
    done < <(grep -lzsxFf <(printf '%s\n' "$REPLY") /proc/[0-9]*/cmdline)
    REPLY=''
    return 1
}

node_log() { REPLY=$DIR/logs/broker-$1.log; }

launch_node() { # NODE: returns at once
    local node=$1 log mark options class_path
    node_log "$node"
    log=$REPLY
    node_mark "$node"
    mark=$REPLY
    cds_options "$node"
    case $S_VERSION in
        3.*) options=(-Dlog4j.configuration=file:conf/broker-log4j.properties) ;;
        *) options=(-Dlog4j2.configurationFile=conf/broker-log4j2.properties) ;;
    esac
    options+=("-Dpenstock.log=$log")
    # Without C2 and with the serial collector the start is half as long and memory a third; no hsperfdata file in /tmp.
    options+=(-Xmx"${PENSTOCK_KAFKA_HEAP:-128m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.net.preferIPv4Stack=true
        -Djava.awt.headless=true "${CDS_OPTIONS[@]}" "$mark")
    class_path
    class_path=$REPLY
    printf -- '--- %(%F %T)T start of broker %s, Kafka %s\n' -1 "$node" "$S_VERSION" >>"$log"
    (
        cd "$DIR" || exit 1
        # Nothing of the caller stays open in a daemon: neither its pipes nor its locks.
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            ((fd > 2 && fd != 255)) && eval "exec $fd>&-"
        done
        start_time "$BASHPID"
        echo "$BASHPID $REPLY" >"run/node-$node.pid"
        # UTF-8 in case the directory's name is not ASCII; the class path goes by the environment to keep the command line readable.
        export CLASSPATH=$class_path LC_ALL=C.UTF-8
        exec setsid "$JAVA" "${options[@]}" kafka.Kafka "conf/node-$node.properties"
    ) </dev/null >>"$log" 2>&1 &
}

last_run() { # NODE, on stdout: what its log holds since its last start
    node_log "$1"
    tac "$REPLY" 2>/dev/null | sed '/^--- .* start of broker/q' | tac
}

wait_gone() { # SECONDS PID...: fails when one is still there
    local limit=$((SECONDS + $1)) pid left
    shift
    while :; do
        left=0
        for pid; do
            # One that ended stays a zombie until its parent has waited for it: gone, but only once its last thread is, which
            # closes the sockets.
            if [[ -d /proc/$pid ]] && ! awk '/^State:/ && /[ZX]/ { z = 1 } /^Threads:/ && $2 <= 1 { t = 1 } END { exit !(z && t) }' \
                "/proc/$pid/status" 2>/dev/null; then
                left=1
            fi
        done
        ((left)) || return 0
        ((SECONDS < limit)) || return 1
        sleep 0.05
    done
}

end_nodes() { # SIGTERM to all, wait, SIGKILL; the archive that one of them wrote is taken over
    local node pids=() nodes=() by_term=yes limit=$STOP_LIMIT_S
    for ((node = 1; node <= S_BROKERS; node++)); do
        if node_pid "$node"; then
            pids+=("$REPLY")
            nodes+=("$node")
            # One that writes its class archive takes some seconds more, and on a busy computer as many times that as all else.
            [[ ! -f $DIR/run/node-$node.cds ]] || limit=$((4 * STOP_LIMIT_S))
        fi
    done
    if ((${#pids[@]})); then
        kill -TERM "${pids[@]}" 2>/dev/null
        if ! wait_gone "$limit" "${pids[@]}"; then
            by_term=no
            say "not gone $limit s after SIGTERM: killing"
            for node in "${nodes[@]}"; do
                node_pid "$node" && kill -KILL "$REPLY"
            done
            wait_gone 10 "${pids[@]}" || die "$EX_FAILED" "process ${pids[*]} does not end after SIGKILL"
        fi
    fi
    for node in "${nodes[@]}"; do
        cds_adopt "$node" "$by_term"
        rm -f "$DIR/run/node-$node.pid"
    done
    STOPPED=${#pids[@]}
}

# --- is it ready? -----------------------------------------------------------------------------------------------------------

metadata_brokers() { # PORT -> REPLY: the ids that this broker lists, "1 2 3"; fails when it does not answer
    local hex n pos count
    REPLY=''
    # Metadata, version 1, no topics: size 22, api key 3, version 1, correlation id 1, client id "penstock", empty array.
    # shellcheck disable=SC2016
    hex=$(timeout "${2:-3}" bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
        printf "\0\0\0\x16\0\3\0\1\0\0\0\1\0\x08penstock\0\0\0\0" >&3
        n=$(head -c 4 <&3 | od -An -v -tx1 | tr -d " \n"); ((${#n} == 8 && 16#$n < 65536)) || exit 1
        head -c "$((16#$n))" <&3 | od -An -v -tx1 | tr -d " \n"' probe "$1" 2>/dev/null) || return 1
    ((${#hex} >= 16)) && [[ ${hex:0:8} == 00000001 ]] || return 1
    count=$((16#${hex:8:8}))
    pos=16
    while ((count-- > 0 && pos + 12 <= ${#hex})); do
        REPLY+=${REPLY:+ }$((16#${hex:pos:8}))
        n=$((16#${hex:pos+8:4}))
        pos=$((pos + 12 + 2 * n + 8)) # id, host, port
        n=${hex:pos:4}
        [[ $n == ffff ]] && n=0 # no rack
        pos=$((pos + 4 + 2 * 16#$n))
    done
    return 0
}

wait_ready() { # NODE...: until each of them answers and lists all of them; 0 ready, 1 one has ended, 2 too late
    local limit=$((SECONDS + START_LIMIT_S)) node other missing told=$SECONDS
    while :; do
        missing=''
        for node; do
            metadata_brokers "$((S_PORT + 2 * (node - 1)))" || missing+=" $node"
            for other; do
                [[ -n $missing || " $REPLY " == *" $other "* ]] || missing+=" $node"
            done
            [[ -z $missing ]] || break
        done
        [[ -z $missing ]] && return 0
        for node; do
            node_pid "$node" || return 1
        done
        ((SECONDS < limit)) || return 2
        if ((SECONDS - told >= 5)); then
            say "waiting for broker$missing"
            told=$SECONDS
        fi
        sleep 0.05
    done
}
