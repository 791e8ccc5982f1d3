#!/usr/bin/env bash
# test_cuda_verb.sh PENSTOCK TESTS - `penstock devices`, `doctor`, `score check` and `score replay` with a simulated driver that they open by
# themselves: each thing that can be missing, in every place where it is told. Exit status decides.
set -uo pipefail
failed=0
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
export PENSTOCK_STATE_DIR=$T/state NO_COLOR=1
ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
if "$ldconfig" -p 2>/dev/null | grep -q libcuda.so.1; then echo "skipped: this computer has a driver of its own (the cases are simulated)"; exit 77; fi
case $(ldd "$1") in *libasan* | *libtsan*) echo "skipped: sanitizers"; exit 77 ;; esac
cat >"$T/pipeline.yml" <<'YAML'
name: p
input: {topics: [a], format: json}
model: {file: m.onnx}
output: {topic: b}
device: cuda:0
YAML
golden=$(cd "$(dirname "$0")/../golden/native" && pwd)
cat >"$T/xgb.yml" <<YAML
name: p
input: {topics: [a], format: json}
model: {file: $golden/xgb-3.2.0-binary.json}
features: [{field: a, missing: nan}, {field: b, missing: nan}, {field: c, missing: nan}, {field: d, missing: nan}]
output: {topic: b}
device: cuda
YAML
tests=$2 pids=()
# The program looks for the plug-in beside itself: each case has a folder with a copy of the one and, when wanted, of the other.
run_case() { # FOLDER WHAT DRIVER|- PLUGIN|- TEXT...: each TEXT is in what each verb says
    local bin=$1 what=$2 driver=$3 plugin=$4 said text path='' bad=0
    shift 4
    mkdir "$bin" && cp "$program" "$bin/penstock"
    [[ $plugin == - ]] || cp "$tests/cuda_plugins/cuda_plugin_$plugin.so" "$bin/libpenstock-cuda.so"
    [[ $driver == - ]] || path=$tests/cuda_sim
    for verb in "devices" "devices --json" "score check -c $T/pipeline.yml" "score replay -c $T/pipeline.yml --from 0 --to 1 -b 127.0.0.1:1" "doctor -b 127.0.0.1:1"; do
        # shellcheck disable=SC2086
        said=$(LD_LIBRARY_PATH=$path PENSTOCK_SIM_CUDA=$driver timeout 30 "$bin/penstock" $verb 2>&1)
        for text; do
            [[ $said == *"$text"* ]] || { bad=1 && echo "not ok $what: $verb does not say \"$text\": $said"; }
        done
    done
    ((bad)) || echo "ok $what"
    return $bad
}
case_is() { # side by side: each waits for a broker that is not there
    cases=$((cases + 1))
    run_case "$T/bin$cases" "$@" &
    pids+=($!)
}
program=$1 cases=0
case_is "no driver" - - "there is no NVIDIA driver"
case_is "driver too old" "12020 9.0" - "the NVIDIA driver (580.65.06, CUDA 12.2) is too old"
case_is "no device" "13000" - "the NVIDIA driver (580.65.06) is there, but no device"
case_is "device too old" "13000 7.5" - "cuda:0, NVIDIA Simulated, has compute capability 7.5"
case_is "plug-in missing" "13000 9.0" - "the plug-in libpenstock-cuda.so is not beside the program"
case_is "plug-in of another version" "13000 9.0" older "belongs to penstock 0.0.9"
mkdir "$T/planted" && cp "$tests/cuda_plugins/cuda_plugin_ours.so" "$T/planted/libpenstock-cuda.so"
run_case "$T/planted/bin" "no plug-in from the folder above" "13000 9.0" - "the plug-in libpenstock-cuda.so is not beside the program" &
pids+=($!)
for pid in "${pids[@]}"; do wait "$pid" || failed=$((failed + 1)); done
# What cannot be had is a configuration error, in every verb that would use it.
printf '{"a": 1}\n' >"$T/rows.jsonl"
sed 's/file: m.onnx/name: m/' "$T/pipeline.yml" >"$T/named.yml"
for verb in "score run -c $T/pipeline.yml" "score check -c $T/pipeline.yml" "score dry-run -c $T/xgb.yml --in $T/rows.jsonl" "pipelines apply $T/named.yml"; do
    # shellcheck disable=SC2086
    said=$(timeout 30 "$program" $verb -b 127.0.0.1:1 2>&1) && status=0 || status=$?
    [[ $status == 2 && $said == *"there is no NVIDIA driver"* ]] || { failed=$((failed + 1)) && echo "not ok $verb without a driver: $status: $said"; }
done
# All is there: the simulated device and the emulated kernel score what the CPU scores, and what no device computes is refused by name.
mkdir "$T/all" && cp "$program" "$T/all/penstock" && cp "$tests/cuda_plugins/cuda_plugin_ours.so" "$T/all/libpenstock-cuda.so"
on_sim() { LD_LIBRARY_PATH=$tests/cuda_sim PENSTOCK_SIM_CUDA="13000 9.0" timeout 60 "$T/all/penstock" "$@" 2>&1; }
expect() { # WHAT TEXT SAID
    [[ $3 == *"$2"* ]] || { failed=$((failed + 1)) && echo "not ok $1: no \"$2\" in: $3"; }
}
if nm -D --defined-only "$T/all/libpenstock-cuda.so" | grep -q eng_cuda_trees_run; then
    for i in $(seq 1 600); do printf '{"a": %d.5, "b": %d, "c": %d, "d": -0.%d}\n' $((i % 3)) $((i % 7)) $((i % 17)) "$i"; done >"$T/rows.jsonl"
    expect "devices" '"usable":true' "$(on_sim devices --json | tr -d ' ')"
    expect "doctor" "usable for models of one tree ensemble or of dense layers" "$(on_sim doctor -b 127.0.0.1:1)"
    expect "explain" "trees on cuda:0 (NVIDIA Simulated)" "$(on_sim models explain "$golden/xgb-3.2.0-binary.json" --device cuda)"
    expect "explain of what is not covered" "node" "$(on_sim models explain "$golden/xgb-3.2.0-linear.json" --device cuda)"
    for device in cuda cuda:0 auto cpu; do
        sed "s/^device: .*/device: $device/" "$T/xgb.yml" >"$T/$device.yml"
        on_sim score dry-run -c "$T/$device.yml" --in "$T/rows.jsonl" --out "$T/$device.out" -b 127.0.0.1:1 >"$T/said" || cat "$T/said"
        [[ -s $T/$device.out ]] || { failed=$((failed + 1)) && echo "not ok dry-run on $device"; }
        cmp "$T/$device.out" "$T/cuda.out" || failed=$((failed + 1))
    done
    [[ $(wc -l <"$T/cuda.out") == 600 && $(sort -u "$T/cuda.out" | wc -l) -gt 5 ]] || { failed=$((failed + 1)) && echo "not ok: scores all alike"; }
    # An autoencoder of the built-in learner: its numbers are within a ten-thousandth of the CPU's, and are not the CPU's very own.
    mkdir "$T/data" && awk 'BEGIN {srand(1); print "a,b,c,d"; for (i = 0; i < 300; i++) {x = rand(); print 100 + 5 * x "," 3 * rand() "," x "," 1000 - x}}' >"$T/data/t.csv"
    cat >"$T/ae.yml" <<YAML
name: ae
framework: {name: native}
penstock:
  learner: {model: autoencoder, features: [a, b, c, d], hidden: [40, 3, 40], epochs: 3, seed: 1}
YAML
    on_sim learn -m "$T/ae.yml" --data-dir "$T/data" --result-dir "$T/learnt" -q >"$T/said" || cat "$T/said"
    expect "explain of a network" "4 dense layers on cuda:0 (NVIDIA Simulated)" "$(on_sim models explain "$T/learnt/model/model.onnx" --device cuda)"
    for device in cuda cpu; do
        sed "s/^device: .*/device: $device/; s|file: m.onnx|file: $T/learnt/model/model.onnx|" "$T/pipeline.yml" >"$T/ae-$device.yml"
        on_sim score dry-run -c "$T/ae-$device.yml" --in "$T/rows.jsonl" --out "$T/ae-$device.out" -b 127.0.0.1:1 >"$T/said" || cat "$T/said"
    done
    scores_in() { grep -oE '"score": ?\[[-+.0-9e]+' "$1" | grep -oE '[-+.0-9e]+$'; }
    expect "scores of a network" "600 near, of 600" "$(paste <(scores_in "$T/ae-cuda.out") <(scores_in "$T/ae-cpu.out") |
        awk '{d = $1 - $2; near += (d < 0 ? -d : d) <= 1e-4 * $2} END {print near " near, of " NR}')"
    sed "s/binary.json/linear.json/" "$T/xgb.yml" >"$T/linear.yml"
    said=$(on_sim score dry-run -c "$T/linear.yml" -b 127.0.0.1:1 --in "$T/rows.jsonl") && status=0 || status=$?
    [[ $status == 2 ]] || { failed=$((failed + 1)) && echo "not ok: a model that no device computes ends with $status"; }
    expect "a model that no device computes" "device: cuda cannot be had for model" "$said"
fi
json=$(LD_LIBRARY_PATH=$tests/cuda_sim PENSTOCK_SIM_CUDA="13000 9.0 7.5" "$program" devices --json | head -1)
for text in '"device":"cuda:0"' '"name":"NVIDIA Simulated"' '"compute":"9.0"' '"memory_bytes":85899345920' '"free_bytes":84825604096' '"ecc_errors":0' '"driver":"580.65.06"' '"usable":false'; do
    [[ ${json//\": /\":} == *"$text"* ]] || { failed=$((failed + 1)) && echo "not ok devices --json lacks $text: $json"; }
done
[ $failed = 0 ]
