#!/usr/bin/env bash
# The C tests labelled live, on a real Kafka of their own; once with the system's librdkafka, once with a newer one where PyPI gives it.
# PENSTOCK_KAFKA_VERSION chooses the Kafka (deploy/kafka/kafka --help); OLDER=1: with the system's librdkafka only, and without what no broker
# takes part in.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
dir=$(mktemp -d)
trap 'deploy/kafka/kafka stop --dir "$dir/kafka" >/dev/null 2>&1; rm -rf "$dir"' EXIT
PENSTOCK_TEST_BOOTSTRAP=$(deploy/kafka/kafka start --dir "$dir/kafka" --port $((20000 + RANDOM % 10000))) || exit 1
export PENSTOCK_TEST_BOOTSTRAP
# Two at a time: they wait for brokers and time-outs most of the time.
tests=(ctest --test-dir build/dev -L live --output-on-failure --timeout 300 -j 2)
[ -z "${OLDER:-}" ] || { "${tests[@]}" -E '^store_'; exit; }
"${tests[@]}" || exit 1
python=$(tests/live/venv 2>/dev/null) || { echo "skipped: newer librdkafka: PyPI does not give confluent-kafka"; exit 0; }
newer=$(find "$(dirname "$python")/../lib" -path '*confluent_kafka.libs/librdkafka*.so*' | head -1)
[ -n "$newer" ] || { echo "skipped: newer librdkafka: the wheel has none"; exit 0; }
ln -s "$newer" "$dir/librdkafka.so.1"
LD_LIBRARY_PATH=$dir:$(dirname "$newer") "${tests[@]}"
