#!/usr/bin/env bash
# The bus's live C tests with the newer librdkafka that PyPI's confluent-kafka brings along; the other live C tests use Kafka through the bus alone.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
python=$(tests/live/venv 2>/dev/null) || { echo "skipped: newer librdkafka: PyPI does not give confluent-kafka"; exit 77; }
newer=$(find "$(dirname "$python")/../lib" -path '*confluent_kafka.libs/librdkafka*.so*' | head -1)
[ -n "$newer" ] || { echo "skipped: newer librdkafka: the wheel has none"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ln -s "$newer" "$dir/librdkafka.so.1"
LD_LIBRARY_PATH=$dir:$(dirname "$newer") tests/live/test_ctest_live.sh -R '^bus_'
