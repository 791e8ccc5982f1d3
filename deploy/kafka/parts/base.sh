# shellcheck shell=bash
# What every part uses: messages, exit statuses, the state file, locks, small file helpers.
#
# Talk goes to stderr, results to stdout. State is a list of key=value lines that is parsed, never sourced.

readonly EX_FAILED=1 EX_USAGE=2 EX_NOT_RUNNING=4 EX_MISSING=69

say() { printf 'kafka: %s\n' "$*" >&2; }

die() { # STATUS MESSAGE...
    local status=$1
    shift
    say "$@"
    exit "$status"
}

json_string() { # TEXT -> REPLY, quoted. Paths with control characters are refused long before.
    REPLY=${1//\\/\\\\}
    REPLY=\"${REPLY//\"/\\\"}\"
}

write_file() { # PATH, content on stdin: the whole file or none of it
    local tmp
    tmp=$1.new.$BASHPID
    cat >"$tmp" && mv -f "$tmp" "$1" || die "$EX_FAILED" "cannot write $1"
}

# --- the state file -----------------------------------------------------------------------------------------------------

readonly MARKER=.penstock-kafka # in every directory that this script filled; wipe touches no other
S_BROKERS='' S_PORT='' S_PORT_SET='' S_VERSION='' S_SASL='' S_TLS='' S_CLUSTER='' S_MADE_DIR=''

state_load() { # fails when DIR holds no Kafka of ours
    local key value
    [[ -f $DIR/$MARKER && -r $DIR/$MARKER ]] || return 1
    while IFS='=' read -r key value; do
        case $key in
            brokers) S_BROKERS=$value ;;
            port) S_PORT=$value ;;
            port_set) S_PORT_SET=$value ;;
            version) S_VERSION=$value ;;
            sasl) S_SASL=$value ;;
            tls) S_TLS=$value ;;
            cluster) S_CLUSTER=$value ;;
            made_dir) S_MADE_DIR=$value ;;
        esac
    done <"$DIR/$MARKER"
    [[ $S_BROKERS == [13] && $S_PORT =~ ^[0-9]+$ && -n $S_VERSION && -n $S_CLUSTER ]]
}

state_save() {
    write_file "$DIR/$MARKER" <<STATE
# Written by deploy/kafka/kafka. As long as this file is here, "kafka wipe" may delete what Kafka keeps beside it.
brokers=$S_BROKERS
port=$S_PORT
port_set=$S_PORT_SET
version=$S_VERSION
sasl=$S_SASL
tls=$S_TLS
cluster=$S_CLUSTER
made_dir=$S_MADE_DIR
STATE
}

# --- locks --------------------------------------------------------------------------------------------------------------

readonly LOCK_WAIT_S=300

lock_file() { # FD PATH WHAT: waits for the lock; says so when that is not at once
    local fd=$1 path=$2 what=$3
    while :; do
        eval "exec $fd>>\"\$path\"" || die "$EX_FAILED" "cannot write $path"
        if ! flock -n "$fd"; then
            say "waiting for another \"kafka\" command that $what"
            flock -w "$LOCK_WAIT_S" "$fd" || die "$EX_FAILED" "gave up after $LOCK_WAIT_S s: $path is still held (fuser -v $path shows by whom)"
        fi
        # wipe removes the directory while others wait: what they then hold is a lock on a deleted file.
        [[ $path -ef /proc/self/fd/$fd ]] && return 0
        mkdir -p "${path%/*}" || die "$EX_FAILED" "cannot make ${path%/*}"
    done
}

lock_dir() { lock_file 8 "$DIR/.lock" "works on $DIR"; }
