#!/usr/bin/env bash
# ./quickstart's demonstration on a real Kafka and embedded: exit status, the summary's facts, nothing left behind; Ctrl-C in the middle too.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
unset PENSTOCK_STATE_DIR PENSTOCK_BUILD
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
say() { echo "$*"; }
fail() { say "FAILED: $*"; failed=1; }
left() { # processes of a demonstration that still live: the state folder is in their environment, not in ours
    local environ pid
    for environ in /proc/[0-9]*/environ; do
        pid=${environ//[^0-9]/}
        { tr '\0' '\n' <"$environ"; } 2>/dev/null | grep -qxF "PENSTOCK_STATE_DIR=$1" || continue
        [ "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)" = Z ] || echo "$pid $({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | cut -c1-80)"
    done
}
check_summary() {
    for want in 'training-[a-z2-7]+ +COMPLETED' '[0-9]+ epochs, loss [0-9.]+ → [0-9.]+' 'sha256:[0-9a-f]{64}' 'scored +[0-9]+ records' 'p50 [0-9]+ ms' 'p99 [0-9]+ ms' 'quiet [0-9.]+, spiked [0-9.]+'; do
        grep -qE "$want" "$1" || fail "$2: the summary has no $want"
    done
}
run() { # name, what must be named as broker, arguments…
    local name=$1 broker=$2 started=$SECONDS
    shift 2
    PENSTOCK_STATE_DIR=$out/$name ./quickstart --no-install "$@" >"$out/$name.log" 2>&1 </dev/null || { fail "$name exited $?"; tail -30 "$out/$name.log"; }
    say "$name took $((SECONDS - started)) s"
    grep -q "$broker" "$out/$name.log" || fail "$name does not name $broker"
    check_summary "$out/$name.log" "$name"
    [ -z "$(left "$out/$name")" ] || fail "$name left: $(left "$out/$name")"
}
if command -v java >/dev/null && command -v mvn >/dev/null; then
    run kafka 'Apache Kafka 4\.'
    run again 'Apache Kafka 4\.' # the same state folder would do too; a second run works
    PENSTOCK_STATE_DIR=$out/broken ./quickstart --no-install >"$out/broken.log" 2>&1 </dev/null &
    pid=$!
    sleep 12
    kill -INT -- "$pid" 2>/dev/null; kill -TERM "$pid" 2>/dev/null
    wait "$pid"
    rc=$?
    [ $rc != 0 ] || fail "an interrupted demonstration exits 0"
    for _ in $(seq 60); do [ -z "$(left "$out/broken")" ] && break; sleep 1; done
    [ -z "$(left "$out/broken")" ] || fail "Ctrl-C left: $(left "$out/broken")"
else
    say "skipped: the demonstration on a real Kafka: no Java or Maven (apt install openjdk-17-jre-headless maven)"
fi
run embedded 'in memory' --embedded
exit $failed
