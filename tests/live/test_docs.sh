#!/usr/bin/env bash
# The documents say what the program says: the table of states, and every verb of the help has a --help with examples.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
failed=0
penstock=${PENSTOCK_BUILD:-build}/penstock
"$penstock" trainer --print-fsm | sed '/^$/d' >/tmp/fsm.$$
while IFS= read -r line; do
    grep -qxF -- "$line" ARCHITECTURE.md || { echo "FAILED: ARCHITECTURE.md lacks the line: $line (penstock trainer --print-fsm)"; failed=1; }
done </tmp/fsm.$$
rm -f /tmp/fsm.$$
for verb in $("$penstock" --help | sed -nE 's/^  ([a-z]+) +[A-Za-z].*/\1/p' | grep -v '^penstock$' | sort -u); do
    text=$("$penstock" "$verb" --help) || { echo "FAILED: penstock $verb --help exits $?"; failed=1; }
    grep -q '^Examples:' <<<"$text" || { echo "FAILED: penstock $verb --help has no examples"; failed=1; }
done
exit $failed
