#!/usr/bin/env bash
# What rests on the broker's own behaviour, on the oldest Kafka that we support (3.9.2): groups and their members, transactions and their
# coordinators, fencing, time-outs, logins, restarts: the C tests, the life of jobs, and the scorer's guarantees. What only passes records
# through Kafka (formats, models, pages, examples) runs on the newer one alone.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
export PENSTOCK_KAFKA_VERSION=3.9.2
tests/live/test_ctest_live.sh -E '^store_' || exit # no broker takes part in those
python=$(tests/live/venv 2>/dev/null) || { echo "skipped: services on Kafka 3.9.2: no Python clients (apt install python3-venv)"; exit 0; }
"$python" tests/live/test_lifecycle.py || exit
exec "$python" tests/live/test_score_live.py all_kinds too_large two_workers killed_in_a_loop
