#!/usr/bin/env bash
# The documents say what the program says: the table of states, every verb of the help has a --help with examples, what `init` makes runs, every
# command in a page has a verb and options that exist, and the tutorial runs from the first command to the last, and operations after it.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
failed=0
penstock=${PENSTOCK_BUILD:-build}/penstock
for service in trainer lcm; do "$penstock" $service --print-fsm; done | sed '/^$/d' >/tmp/fsm.$$
while IFS= read -r line; do
    grep -qxF -- "$line" ARCHITECTURE.md || { echo "FAILED: ARCHITECTURE.md lacks the line: $line (penstock trainer --print-fsm, penstock lcm --print-fsm)"; failed=1; }
done </tmp/fsm.$$
rm -f /tmp/fsm.$$
for verb in $("$penstock" --help | sed -nE 's/^  ([a-z]+) +[A-Za-z].*/\1/p' | grep -v '^penstock$' | sort -u); do
    text=$("$penstock" "$verb" --help) || { echo "FAILED: penstock $verb --help exits $?"; failed=1; }
    grep -q '^Examples:' <<<"$text" || { echo "FAILED: penstock $verb --help has no examples"; failed=1; }
done
# A first job that fails teaches the wrong thing: the learner of `init` leaves what its manifest asks for.
work=$(mktemp -d)
trap 'PENSTOCK_STATE_DIR=$work/state "$penstock" down >/dev/null 2>&1; rm -rf "$work"' EXIT
mkdir "$work/checkpoints" "$work/results"
"$penstock" init "$work/first" >/dev/null || { echo "FAILED: penstock init exits $?"; failed=1; }
"$penstock" submit "$work/first/manifest.yml" "$work/first" --dry-run >/dev/null || { echo "FAILED: what init makes is refused: $?"; failed=1; }
(cd "$work/first" && CHECKPOINT_DIR=$work/checkpoints RESULT_DIR=$work/results LEARNER_ID=1 sh train.sh >/dev/null) ||
    { echo "FAILED: the learner of init exits $?"; failed=1; }
if grep -q '^ *model:' "$work/first/manifest.yml" && ! ls "$work"/results/model/model.* >/dev/null 2>&1; then
    echo "FAILED: the manifest of init asks for a model, and its learner leaves none"
    failed=1
fi
# Lines of fenced blocks that begin with `penstock VERB`: the verb has a --help, and it knows every option of the line.
pages=(README.md examples/README.md docs/*.md)
while IFS= read -r line; do
    read -r -a words <<<"${line%%#*}"
    verb=${words[1]} sub=${words[2]:-}
    [[ $verb == --* || $verb == help ]] && continue
    text=$("$penstock" "$verb" --help 2>&1) || { echo "FAILED: a page says: $line (no such verb)"; failed=1; continue; }
    case $verb in score | dlq | models | pipelines | source) text+=$("$penstock" "$verb" "$sub" --help 2>&1) || { echo "FAILED: a page says: $line"; failed=1; } ;; esac
    for word in "${words[@]}"; do
        [[ $word =~ ^--[a-z-]+ ]] || continue
        grep -qE -- "${BASH_REMATCH[0]}( |$)" <<<"$text" || { echo "FAILED: a page says: $line (${BASH_REMATCH[0]} is unknown)"; failed=1; }
    done
done < <(awk '/^```/ { inside = !inside; next } inside && /^penstock /' "${pages[@]}" | sed 's/ [|&>].*//')
# The pages themselves, in an empty folder with a platform and a Kafka of their own.
mkdir "$work/bin" "$work/page"
ln -s "$(readlink -f "$penstock")" "$work/bin/penstock"
for page in tutorial operations; do
    script=$(tests/tools/page_script docs/$page.md)
    (cd "$work/page" && PATH=$work/bin:$PATH PENSTOCK_STATE_DIR=$work/state NO_COLOR=1 timeout 1500 bash -euo pipefail -c "$script") \
        </dev/null >"$work/$page.out" 2>"$work/$page.err" || { echo "FAILED: docs/$page.md, exit status $?"; tail -n 20 "$work/$page.out" "$work/$page.err"; failed=1; }
done
PENSTOCK_STATE_DIR=$work/state "$penstock" down >/dev/null 2>&1
grep -q '"missing":\["temperature"\]' "$work/tutorial.out" || { echo "FAILED: the tutorial shows no record with a missing field"; failed=1; }
[ "$(wc -l <"$work/page/again.jsonl")" = 300 ] || { echo "FAILED: the tutorial's replay has other than 300 lines"; failed=1; }
exit $failed
