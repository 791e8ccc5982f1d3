#!/usr/bin/env bash
# deploy/kafka/kafka, for real: every verb on one and three brokers, faults, ports, security, both versions.
#
# Usage: test_kafka_script.sh [PART...]   parts: usage one ports robust fetch three secure old (all without arguments)
# TAP-like lines, then "N passed, N failed, N skipped"; exit status 1 when one failed. About two minutes; everything under one
# temporary directory, on ports of its own, ended on exit.
set -uo pipefail
export LC_ALL=C

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..
root=$(readlink -f "$root")
kafka=$root/deploy/kafka/kafka
T=$(mktemp -d "${TMPDIR:-/tmp}/penstock-kafka-test.XXXXXX")
passed=0 failed=0 skipped=0 number=0 dirs=() wanted=("$@")
ports=${PENSTOCK_TEST_PORTS:-20000-31000} # below the ephemeral ports; a range for each test that runs beside others (tests/run)
base=$((${ports%-*} + RANDOM % ((${ports#*-} - ${ports%-*}) / 24 - 40) * 24))

ok() { passed=$((passed + 1)) number=$((number + 1)) && echo "ok $number - $*"; }
not_ok() { failed=$((failed + 1)) number=$((number + 1)) && echo "not ok $number - $*"; }
skip() { skipped=$((skipped + 1)) number=$((number + 1)) && echo "ok $number - $1 # SKIP $2"; }
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$T/check.out" 2>&1; then ok "$what"; else
        not_ok "$what"
        tail -n 20 "$T/check.out" | sed 's/^/#   /'
    fi
}
exits() { # STATUS COMMAND...: with that status
    local want=$1 got
    shift
    "$@"
    got=$?
    ((got == want)) || { echo "exit status $got, expected $want" && return 1; }
}
says() { # TEXT COMMAND...: on either stream
    local text=$1
    shift
    "$@" >"$T/says.out" 2>&1
    grep -qF -- "$text" "$T/says.out" || { echo "no \"$text\" in:" && cat "$T/says.out" && return 1; }
}
same() { [[ $1 == "$2" ]] || { printf '%s\n' "got      $1" "expected $2" && return 1; }; }
at() { # DIR: remembered, so that its Kafka is wiped on exit
    D=$T/$1
    dirs+=("$D")
}
status_json() { "$kafka" status --json --dir "$1"; }
field() { sed -n "s/.*\"$2\":\"\{0,1\}\([^\",}]*\).*/\1/p" <<<"$1"; } # JSON NAME
pids() { status_json "$1" | sed -n 's/.*"pids":\[\([0-9,]*\)\].*/\1/p'; }
brokers_of() { grep -lzsxFf <(printf '%s\n' "-Dpenstock.kafka.node=$1/node-${2:-1}") /proc/[0-9]*/cmdline | wc -l; }
no_broker() { same "$(brokers_of "$1" 1)$(brokers_of "$1" 2)$(brokers_of "$1" 3)" 000; }
next_port() { P=$base base=$((base + 24)); }
interrupted() { # SECONDS COMMAND...: ended by SIGINT then, as by Ctrl-C, also where a caller of this test blocks or ignores that signal
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
os.execvp("timeout", ["timeout", "-s", "INT", *sys.argv[1:]])' "$@" >/dev/null 2>&1
}
interrupted_twice() { # DIR COMMAND...: by SIGINT once its broker has been launched, and again as the first thing that its exit trap does
    printf '%s\n' 'set -o functrace' "trap '[[ -n \${second:-} || \${FUNCNAME[0]:-} != on_exit ]] || { second=1; kill -INT \$\$; }' DEBUG" >"$T/second"
    BASH_ENV=$T/second python3 -c 'import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
p = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while p.poll() is None and not os.path.exists(sys.argv[1] + "/run/node-1.pid"):
    time.sleep(0.005)
p.send_signal(signal.SIGINT)
p.wait()' "$@"
}
run_part() { ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $1 "* ]]; }

finish() {
    trap '' INT TERM
    local d job
    for job in $(jobs -pr); do kill "$job" 2>/dev/null; done
    for d in "${dirs[@]}"; do [[ -d $d ]] && "$kafka" wipe --dir "$d" >/dev/null 2>&1; done
    rm -rf "$T"
    echo "$passed passed, $failed failed, $skipped skipped"
    ((failed == 0)) || exit 1
    exit 0
}
trap finish EXIT
trap 'failed=$((failed + 1)); exit 1' INT TERM

produce() { printf '%s\n' "${@:3}" | timeout 150 kcat -P -b "$1" -t "$2" -X acks=all 2>/dev/null; }       # BOOTSTRAP TOPIC TEXT...
consume() { timeout 150 kcat -C -b "$1" -t "$2" -o beginning -e -q 2>/dev/null | sort | paste -sd' '; } # BOOTSTRAP TOPIC
reads() { same "$(consume "$1" "$2")" "$3"; }
topic() { "$kafka" tool --dir "$1" topics --create --topic "$2" --partitions "${3:-1}"; } # DIR NAME [PARTITIONS]
in_time() { # COMMAND...: comes true; the deadline is a net, as all here
    local end=$((SECONDS + 150))
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.5
    done
}
isr_full() { # BOOTSTRAP TOPIC: all three replicas are in sync before long
    local i
    for ((i = 0; i < 200; i++)); do
        timeout 25 kcat -L -b "$1" -t "$2" 2>/dev/null | grep -Eq 'isrs: [123],[123],[123]$' && return 0
        sleep 0.5
    done
    return 1
}
lists() { says ' brokers:' timeout 100 kcat -L -m 8 -b "$@"; }      # BOOTSTRAP -X...
refuses() { says "$1" timeout 100 kcat -L -m 5 -b "${@:2}"; }       # TEXT BOOTSTRAP -X...

archive_is_there() { # FILE DIR: else with what start, stop and Java said
    [[ -s $1 ]] || { ls -l "$2" && cat "$T/archive.log" && tail -n 15 "$D"/logs/broker-1.log && ls "$D" && return 1; }
}

# --- parts ----------------------------------------------------------------------------------------------------------------

part_usage() {
    if command -v shellcheck >/dev/null; then
        check "the script is clean under shellcheck" shellcheck -P SCRIPTDIR -x -a "$kafka"
    else
        skip "the script is clean under shellcheck" "apt-get install shellcheck"
    fi
    check "--help shows examples" says 'Examples' "$kafka" --help
    check "an unknown verb is a usage error" exits 2 "$kafka" frobnicate
    check "an unknown option is a usage error" exits 2 "$kafka" start --frob --dir "$T/none"
    check "two brokers are refused" exits 2 "$kafka" start --brokers 2 --dir "$T/none"
    check "a port beyond the range is refused" exits 2 "$kafka" start --port 65530 --dir "$T/none"
    check "an unknown version is refused" exits 2 "$kafka" start --version 1.0 --dir "$T/none"
    check "... in the environment too" exits 2 env PENSTOCK_KAFKA_VERSION=1.0 "$kafka" start --dir "$T/none"
    check "a session that is no number" exits 2 env PENSTOCK_KAFKA_BROKER_SESSION_MS=9s "$kafka" start --dir "$T/none"
    check "status of nothing exits 4" exits 4 "$kafka" status --dir "$T/none"
    check "... and prints running:false" says '"running":false' "$kafka" status --json --dir "$T/none"
    check "stop of nothing exits 0" exits 0 "$kafka" stop --dir "$T/none"
    check "kill of nothing exits 4" exits 4 "$kafka" kill 1 --dir "$T/none"
    check "a missing Java is named with its cure (69)" exits 69 env PENSTOCK_JAVA=/no/java "$kafka" start --dir "$T/none"
    check "... in words" says 'apt-get install openjdk-17-jre-headless' env PENSTOCK_JAVA=/no/java "$kafka" start --dir "$T/none"
    check "none of this left a directory behind" test ! -e "$T/none"
}

part_one() {
    local out before json pid t0
    at one && next_port
    t0=${EPOCHREALTIME/./}
    exec 9>"$T/callers-file"
    out=$(timeout 200 "$kafka" start --dir "$D" --port "$P" 2>"$T/err") # hangs if a broker kept this pipe
    echo "# start took $(((${EPOCHREALTIME/./} - t0) / 1000)) ms, load $(cut -d' ' -f1 /proc/loadavg)"
    check "start prints the bootstrap address, and that alone" same "$out" "127.0.0.1:$P"
    json=$(status_json "$D")
    pid=$(pids "$D")
    check "status --json has the agreed fields" grep -qE \
        '^\{"running":true,"bootstrap":"127.0.0.1:'"$P"'","version":"4\.3\.1","dir":"'"$D"'","pids":\[[0-9]+\]' <<<"$json"
    if command -v python3 >/dev/null; then check "... and is JSON" python3 -m json.tool <<<"$json"; fi
    check "the broker holds no file of the caller" test -z "$(find "/proc/$pid/fd" -lname "$T/callers-file" -o -lname "$D/.lock")"
    exec 9>&-
    check "... nor its session" same "$(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f4)" "$pid"
    check "a second start changes nothing" same "$("$kafka" start --dir "$D" 2>/dev/null) $(pids "$D")" "127.0.0.1:$P $pid"
    check "another port while it runs is refused" exits 2 "$kafka" start --dir "$D" --port $((P + 12))
    check "another number of brokers is refused" exits 2 "$kafka" start --dir "$D" --brokers 3
    check "a topic can be made by Kafka's tool" topic "$D" words
    produce "127.0.0.1:$P" words one two
    check "records are kept" reads "127.0.0.1:$P" words "one two"
    check "kill ends the broker" exits 0 "$kafka" kill 1 --dir "$D"
    check "... status says so" exits 4 "$kafka" status --dir "$D"
    check "... and no process is left" no_broker "$D"
    check "kill of a dead broker exits 4" exits 4 "$kafka" kill 1 --dir "$D"
    check "start 1 brings it back" same "$("$kafka" start 1 --dir "$D" 2>/dev/null)" "127.0.0.1:$P"
    check "... with its records" reads "127.0.0.1:$P" words "one two"
    check "stop ends it" exits 0 "$kafka" stop --dir "$D"
    check "... and no process is left" no_broker "$D"
    t0=${EPOCHREALTIME/./}
    before=$("$kafka" start --dir "$D" 2>/dev/null)
    echo "# start of a stopped broker took $(((${EPOCHREALTIME/./} - t0) / 1000)) ms, load $(cut -d' ' -f1 /proc/loadavg)"
    check "start after stop keeps the port" same "$before" "127.0.0.1:$P"
    check "... and the records" reads "127.0.0.1:$P" words "one two"
    touch "$D/users-own-file"
    check "wipe ends it and exits 0" exits 0 "$kafka" wipe --dir "$D"
    check "... removes Kafka's things, not the user's" same "$(ls -A "$D")" users-own-file
    check "start refuses a directory with other things in it" exits 2 "$kafka" start --dir "$D"
    check "wipe refuses it" exits 2 "$kafka" wipe --dir "$D"
    check "... and touched nothing" test -e "$D/users-own-file"
}

part_ports() {
    local first second held=$T/port-holder a b
    next_port
    at holder && held=$D
    "$kafka" start --dir "$held" --port "$P" >/dev/null 2>&1
    at taken
    check "an explicit port in use is an error" exits 1 "$kafka" start --dir "$D" --port "$P"
    check "... that names the port" says "port $P" "$kafka" start --dir "$D" --port "$P"
    at default-a && a=$D
    at default-b && b=$D
    "$kafka" start --dir "$a" >"$T/a.out" 2>"$T/a.err" &
    "$kafka" start --dir "$b" >"$T/b.out" 2>"$T/b.err"
    wait $!
    first=$(cat "$T/a.out") second=$(cat "$T/b.out")
    check "two starts at once without --port take different ports" test -n "$first" -a -n "$second" -a "$first" != "$second"
    check "... and say so" grep -hE 'is in use: taking [0-9]+' "$T/a.err" "$T/b.err"
    check "... and both answer" lists "$first"
    check "... both" lists "$second"
    "$kafka" stop --dir "$a" 2>/dev/null
    check "the one that was stopped starts on its port again" same "$("$kafka" start --dir "$a" 2>/dev/null)" "$first"
    for D in "$held" "$a" "$b"; do "$kafka" wipe --dir "$D" 2>/dev/null; done
}

part_robust() {
    local victim pid t left='' cache starts
    at 'odd name, ü' && next_port
    for t in 0.1 0.3 0.5 0.8 1.2; do
        if interrupted "$t" "$kafka" start --dir "$D" --port "$P"; then
            "$kafka" stop --dir "$D" 2>/dev/null # a fast machine was through before
        fi
        left+=$(brokers_of "$D")
    done
    check "interrupted starts leave nothing running" same "$left" 00000
    interrupted_twice "$D" "$kafka" start --dir "$D" --port "$P"
    check "... nor does a second Ctrl-C while the first ends it" same "$(brokers_of "$D")" 0
    "$kafka" wipe --dir "$D" 2>/dev/null
    mkdir -p "$D" && : >"$D/.penstock-kafka.new.1" # killed while it wrote its marker
    check "the next start works" same "$("$kafka" start --dir "$D" --port "$P")" "127.0.0.1:$P" # a slow machine has not come to keep the port
    check "... answers" lists "127.0.0.1:$P"
    "$kafka" stop --dir "$D" 2>/dev/null

    for starts in 1 2 3; do "$kafka" start --dir "$D" >"$T/start.$starts" & done
    wait
    check "three starts at once make one broker" same "$(brokers_of "$D") $(cat "$T"/start.? | sort -u)" "1 127.0.0.1:$P"
    "$kafka" stop --dir "$D" 2>/dev/null

    for t in 0.4 0.7 1 1.5 2 3 5 8 12 18 27 40; do # until one was killed after it had launched its broker
        { timeout -s KILL "$t" "$kafka" start --dir "$D" >/dev/null 2>&1; } 2>/dev/null
        (($(brokers_of "$D"))) && break
    done
    check "a start that was killed leaves its broker to be found" same "$(brokers_of "$D")" 1
    "$kafka" start --dir "$D" >/dev/null 2>&1
    check "a start that was killed is taken up by the next" same "$(brokers_of "$D")" 1
    rm -f "$D/run/node-1.pid"
    check "stop finds a broker without its pid file" exits 0 "$kafka" stop --dir "$D"
    check "... and ended it" no_broker "$D"

    sleep 300 &
    victim=$!
    read -ra t <"/proc/$victim/stat"
    echo "$victim ${t[21]}" >"$D/run/node-1.pid"
    check "a reused pid is not taken for the broker" exits 4 "$kafka" status --dir "$D"
    "$kafka" stop --dir "$D" 2>/dev/null
    "$kafka" kill 1 --dir "$D" 2>/dev/null
    check "... nor signalled" kill -0 "$victim"
    kill "$victim"

    # A cache of its own with the same jars: an archive that is broken must not matter.
    cache=$T/cache/penstock/kafka-4.3.1
    mkdir -p "$cache"
    cp -r "$("$kafka" fetch 2>/dev/null)" "$cache/lib"
    export XDG_CACHE_HOME=$T/cache
    "$kafka" start --dir "$D" >"$T/archive.log" 2>&1
    "$kafka" stop --dir "$D" 2>>"$T/archive.log"
    pid=$(find "$cache/cds" -name '*.jsa' 2>/dev/null)
    check "the first stop leaves a class archive" archive_is_there "$pid" "$cache/cds"
    chmod u+w "$pid" && dd if=/dev/urandom of="$pid" bs=4096 seek=100 count=2000 conv=notrunc 2>/dev/null
    check "a start with a damaged archive works" same "$("$kafka" start --dir "$D" 2>/dev/null)" "127.0.0.1:$P"
    "$kafka" stop --dir "$D" 2>/dev/null
    pid=$(find "$cache/cds" -name '*.jsa') && [[ -n $pid ]] && chmod u+w "$pid" && truncate -s 5000 "$pid"
    check "... with a truncated one too" same "$("$kafka" start --dir "$D" 2>/dev/null)" "127.0.0.1:$P"
    "$kafka" wipe --dir "$D" 2>/dev/null
    unset XDG_CACHE_HOME
}

part_fetch() {
    local bin=$T/bin t
    mkdir -p "$bin"
    ln -s /usr/bin/* "$bin/" && rm -f "$bin/mvn"
    check "a missing Maven is named with its cure" says 'apt-get install maven' env XDG_CACHE_HOME="$T/c1" PATH="$bin" "$kafka" fetch
    check "... exit 69" exits 69 env XDG_CACHE_HOME="$T/c1" PATH="$bin" "$kafka" fetch
    printf '%s\n' '#!/bin/sh' 'echo "[ERROR] Could not transfer artifact x: Unknown host repo.example"' 'exit 1' >"$bin/mvn"
    chmod +x "$bin/mvn"
    check "a missing network is named with its cure" says 'settings.xml' env XDG_CACHE_HOME="$T/c1" PATH="$bin:$PATH" "$kafka" fetch
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/sh' 'for a; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done' 'mkdir -p "$d"' \
        'echo x >"$d/kafka_2.13-4.3.1.jar"' >"$bin/mvn"
    check "jars other than the pinned ones are refused" exits 1 env XDG_CACHE_HOME="$T/c1" PATH="$bin:$PATH" "$kafka" fetch
    check "... and not kept" test ! -e "$T/c1/penstock/kafka-4.3.1"
    for t in 0.5 1.5; do interrupted "$t" env XDG_CACHE_HOME="$T/c2" "$kafka" fetch; done
    check "an interrupted fetch leaves nothing but its lock" same "$(ls "$T/c2/penstock")" kafka-4.3.1.lock
    XDG_CACHE_HOME=$T/c2 "$kafka" fetch >"$T/f1" 2>&1 &
    XDG_CACHE_HOME=$T/c2 "$kafka" fetch >"$T/f2" 2>&1
    wait $!
    check "two fetches at once do it once" same "$(cat "$T/f1" "$T/f2" | grep -c 'fetching Apache')" 1
    check "... and both print the place" same "$(tail -qn 1 "$T/f1" "$T/f2" | sort -u)" "$T/c2/penstock/kafka-4.3.1/lib"
    check "... completely" same "$(find "$T/c2/penstock/kafka-4.3.1/lib" -name '*.jar' | wc -l)" "$(wc -l <"$root/deploy/kafka/jars-4.3.1.sha256")"
    rm -rf "$T/c1" "$T/c2"
}

part_three() {
    local boot json t0
    at three && next_port
    boot=127.0.0.1:$P,127.0.0.1:$((P + 2)),127.0.0.1:$((P + 4))
    t0=${EPOCHREALTIME/./}
    check "three brokers start" same "$("$kafka" start --brokers 3 --dir "$D" --port "$P" 2>/dev/null)" "$boot"
    echo "# start of three took $(((${EPOCHREALTIME/./} - t0) / 1000)) ms, load $(cut -d' ' -f1 /proc/loadavg)"
    json=$(status_json "$D")
    check "status lists three pids" grep -qE '"pids":\[[0-9]+,[0-9]+,[0-9]+\]' <<<"$json"
    check "a topic gets three replicas by default" topic "$D" words 3
    check "... all in sync" isr_full "$boot" words
    check "... and needs two of them" says 'min.insync.replicas=2' "$kafka" tool --dir "$D" topics --describe --topic words
    check "kill 2" exits 0 "$kafka" kill 2 --dir "$D"
    check "status still says running (0)" exits 0 "$kafka" status --dir "$D"
    check "... with two pids" same "$(pids "$D" | tr -cd ,)" ,
    produce "$boot" words a b c
    check "records are taken and read with one broker away" reads "$boot" words "a b c"
    check "start 2 brings it back" same "$("$kafka" start 2 --dir "$D" 2>/dev/null)" "$boot"
    check "... in sync" isr_full "$boot" words
    "$kafka" kill 1 --dir "$D" && "$kafka" kill 3 --dir "$D"
    check "start without an id starts the missing ones" same "$("$kafka" start --dir "$D" 2>/dev/null)" "$boot"
    check "... and nothing is lost" reads "$boot" words "a b c"
    check "there is no broker 4" exits 2 "$kafka" kill 4 --dir "$D"
    check "stop ends all three" exits 0 "$kafka" stop --dir "$D"
    check "... and no process is left" no_broker "$D"
    check "--sasl with --tls on three brokers is refused" exits 2 "$kafka" start --brokers 3 --sasl --tls --dir "$T/refused"
    "$kafka" wipe --dir "$D" 2>/dev/null
    at three-sasl && next_port
    check "three brokers with --sasl start" exits 0 "$kafka" start --brokers 3 --sasl --dir "$D" --port "$P"
    check "... and take a PLAIN login" lists "$(field "$(status_json "$D")" sasl)" -X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=PLAIN \
        -X sasl.username=alice -X sasl.password=alice-secret
    "$kafka" wipe --dir "$D" 2>/dev/null
}

part_secure() {
    local json sasl tls mtls both plain=(-X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=PLAIN)
    at secure && next_port
    check "start --sasl --tls" same "$("$kafka" start --sasl --tls --dir "$D" --port "$P" 2>/dev/null)" "127.0.0.1:$P"
    json=$(status_json "$D")
    sasl=$(field "$json" sasl) tls=$(field "$json" tls) mtls=$(field "$json" mtls) both=$(field "$json" sasl_tls)
    check "PLAIN login" lists "$sasl" "${plain[@]}" -X sasl.username=admin -X sasl.password=admin-secret
    check "a wrong password is refused" refuses 'Invalid username or password' "$sasl" "${plain[@]}" -X sasl.username=admin -X sasl.password=no
    check "TLS with the CA" lists "$tls" -X security.protocol=SSL -X ssl.ca.location="$D/tls/ca.pem"
    check "TLS without it is refused" refuses 'certificate verify failed' "$tls" -X security.protocol=SSL
    check "mutual TLS with a certificate" lists "$mtls" -X security.protocol=SSL -X ssl.ca.location="$D/tls/ca.pem" \
        -X ssl.certificate.location="$D/tls/client.pem" -X ssl.key.location="$D/tls/client.key"
    check "mutual TLS without one is refused" refuses 'SSL alert' "$mtls" -X security.protocol=SSL -X ssl.ca.location="$D/tls/ca.pem"
    check "PLAIN over TLS" lists "$both" -X security.protocol=SASL_SSL -X ssl.ca.location="$D/tls/ca.pem" -X sasl.mechanisms=PLAIN \
        -X sasl.username=alice -X sasl.password=alice-secret
    topic "$D" secret >/dev/null 2>&1
    produce "127.0.0.1:$P" secret hidden
    bob=("${plain[@]}" -X sasl.username=bob -X sasl.password=bob-secret)
    check "bob may not read" refuses 'authorization failed' "$sasl" "${bob[@]}" -t secret
    check "acl gives bob a right" exits 0 "$kafka" acl --dir "$D" --add --allow-principal User:bob --operation Read --operation Describe --topic secret
    # shellcheck disable=SC2317 # in_time calls it
    bob_reads() { same "$(timeout 100 kcat -C -b "$sasl" "${bob[@]}" -t secret -o beginning -e -q 2>/dev/null)" hidden; }
    check "... and now he may" in_time bob_reads
    check "user add" exits 0 "$kafka" user add carol carol-secret --dir "$D"
    check "... logs in by PLAIN" lists "$sasl" "${plain[@]}" -X sasl.username=carol -X sasl.password=carol-secret
    check "user names that would break the configuration are refused" exits 2 "$kafka" user add 'a b' x --dir "$D"
    check "kill and start keep it secure" exits 0 bash -c "'$kafka' kill 1 --dir '$D' && '$kafka' start 1 --dir '$D'"
    check "... carol logs in" lists "$sasl" "${plain[@]}" -X sasl.username=carol -X sasl.password=carol-secret
    check "keys and passwords are readable by their owner alone" same "$(stat -c %a "$D")" 700
    "$kafka" wipe --dir "$D" 2>/dev/null
}

part_old() {
    local sasl scram=(-X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=SCRAM-SHA-256 -X sasl.username=alice -X sasl.password=alice-secret)
    at old && next_port
    check "Kafka 3.9.2 starts" same "$(PENSTOCK_KAFKA_VERSION=3.9.2 "$kafka" start --sasl --dir "$D" --port "$P" 2>/dev/null)" "127.0.0.1:$P"
    check "status names the version" same "$(field "$(status_json "$D")" version)" 3.9.2
    sasl=$(field "$(status_json "$D")" sasl)
    topic "$D" words >/dev/null 2>&1
    produce "127.0.0.1:$P" words x
    check "records are kept" reads "127.0.0.1:$P" words x
    check "SCRAM login with the librdkafka at hand" lists "$sasl" "${scram[@]}"
    check "kill and start" exits 0 bash -c "'$kafka' kill 1 --dir '$D' && '$kafka' start 1 --version 3.9.2 --dir '$D'"
    check "... keeps the records" reads "127.0.0.1:$P" words x
    "$kafka" wipe --dir "$D" 2>/dev/null
}

# --- run ------------------------------------------------------------------------------------------------------------------

run_part usage && part_usage
cure=''
command -v "${PENSTOCK_JAVA:-java}" >/dev/null || cure='apt-get install openjdk-17-jre-headless'
command -v kcat >/dev/null || cure+="${cure:+; }apt-get install kcat"
[[ -n $cure ]] || "$kafka" fetch >/dev/null 2>"$T/fetch.err" || cure="kafka fetch failed: $(tail -n 1 "$T/fetch.err")"
for part in one ports robust fetch three secure old; do
    run_part "$part" || continue
    if [[ -n $cure ]]; then
        skip "part $part" "$cure"
    elif [[ $part == fetch ]] && ! command -v mvn >/dev/null; then
        skip "part $part" "apt-get install maven"
    else
        "part_$part"
    fi
done
