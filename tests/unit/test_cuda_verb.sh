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
case_is "all is there: no silent fall to the CPU" "13000 9.0" ours "this version of penstock computes on the CPU only"
mkdir "$T/planted" && cp "$tests/cuda_plugins/cuda_plugin_ours.so" "$T/planted/libpenstock-cuda.so"
run_case "$T/planted/bin" "no plug-in from the folder above" "13000 9.0" - "the plug-in libpenstock-cuda.so is not beside the program" &
pids+=($!)
for pid in "${pids[@]}"; do wait "$pid" || failed=$((failed + 1)); done
json=$(LD_LIBRARY_PATH=$tests/cuda_sim PENSTOCK_SIM_CUDA="13000 9.0 7.5" "$program" devices --json | head -1)
for text in '"device":"cuda:0"' '"name":"NVIDIA Simulated"' '"compute":"9.0"' '"memory_bytes":85899345920' '"free_bytes":84825604096' '"driver":"580.65.06"' '"usable":false'; do
    [[ ${json//\": /\":} == *"$text"* ]] || { failed=$((failed + 1)) && echo "not ok devices --json lacks $text: $json"; }
done
[ $failed = 0 ]
