#!/usr/bin/env bash
# The C tests labelled live, on a real Kafka of their own. PENSTOCK_KAFKA_VERSION chooses it (deploy/kafka/kafka --help). Arguments go to ctest: -R and -E
# choose tests (test_ctest_newer.sh, test_older_kafka.sh).
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
dir=$(mktemp -d)
trap 'deploy/kafka/kafka stop --dir "$dir/kafka" >/dev/null 2>&1; rm -rf "$dir"' EXIT
ports=${PENSTOCK_TEST_PORTS:-20000-31000}
for try in 1 2 3; do # another program may have taken the ports
    PENSTOCK_TEST_BOOTSTRAP=$(deploy/kafka/kafka start --dir "$dir/kafka" --port $((${ports%-*} + RANDOM % (${ports#*-} - ${ports%-*} - 12)))) && break
    [ $try != 3 ] || exit 1
done
export PENSTOCK_TEST_BOOTSTRAP
# Two at a time: they wait for brokers and time-outs most of the time.
ctest --test-dir build/dev -L live --output-on-failure --timeout 900 -j 2 "$@"
