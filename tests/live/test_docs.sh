#!/usr/bin/env bash
# The documents say what the program says: the table of states, every verb of the help has a --help with examples, and what `init` makes runs.
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
# A first job that fails teaches the wrong thing: the learner of `init` leaves what its manifest asks for.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/checkpoints" "$work/results"
"$penstock" init "$work/first" >/dev/null || { echo "FAILED: penstock init exits $?"; failed=1; }
"$penstock" submit "$work/first/manifest.yml" "$work/first" --dry-run >/dev/null || { echo "FAILED: what init makes is refused: $?"; failed=1; }
(cd "$work/first" && CHECKPOINT_DIR=$work/checkpoints RESULT_DIR=$work/results LEARNER_ID=1 sh train.sh >/dev/null) ||
    { echo "FAILED: the learner of init exits $?"; failed=1; }
if grep -q '^ *model:' "$work/first/manifest.yml" && ! ls "$work"/results/model/model.* >/dev/null 2>&1; then
    echo "FAILED: the manifest of init asks for a model, and its learner leaves none"
    failed=1
fi
exit $failed
