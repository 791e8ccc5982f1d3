#!/usr/bin/env bash
# test_bench_gpu.sh BUILD - the benchmark of GPUs, packed, on the simulated driver: it says what there is not, finds kernels that compute something else, and
# tells the rest in lines that can be read. Its figures here are those of the emulation and mean nothing. Exit status decides.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
failed=0
not_ok() { failed=$((failed + 1)) && echo "not ok $*"; }
ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
if "$ldconfig" -p 2>/dev/null | grep -q libcuda.so.1; then echo "skipped: this computer has a driver of its own (the cases are simulated)"; exit 77; fi
case $(ldd "$1/bench_gpu") in *libasan* | *libtsan*) echo "skipped: sanitizers"; exit 77 ;; esac
plugin=$1/tests/cuda_plugins/cuda_plugin_ours.so
nm -D --defined-only "$plugin" | grep -q eng_cuda_trees_run || { echo "skipped: no emulated kernels, a C++ compiler is missing"; exit 77; }
PENSTOCK_CUDA_PLUGIN=$plugin "$here/../bench/gpu/pack" "$1" "$T/all" >/dev/null || not_ok "pack"
[[ -f $T/all/bench_gpu && -f $T/all/libpenstock-cuda.so && -n $(ls "$T/all/lib") ]] || not_ok "what is packed: $(ls -R "$T/all")"
said=$("$T/all/run" --quick 2>&1) && status=0 || status=$?
[[ $status == 77 && $said == *"there is no NVIDIA driver"* ]] || not_ok "no device: $status: $said"
on_sim() { LD_LIBRARY_PATH=$1/tests/cuda_sim PENSTOCK_SIM_CUDA="13000 9.0" timeout 100 "$2/run" --quick; }
on_sim "$1" "$T/all" >"$T/out" 2>"$T/table" || not_ok "on the simulated device: $(cat "$T/table")"
[[ $(grep -c '"right": true' "$T/out") == 12 ]] || not_ok "every kernel is checked: $(cat "$T/out")"
[[ $(grep -c '"device_records_s": [1-9]' "$T/out") == 4 && $(grep -c '"cpu_us": [0-9]' "$T/out") == 4 ]] || not_ok "figures: $(cat "$T/out")"
grep -q '"device": "cuda:0 (NVIDIA Simulated)"' "$T/out" || not_ok "the device has its name: $(cat "$T/out")"
grep -q '^gbdt-20x4 .*%' "$T/table" || not_ok "the table: $(cat "$T/table")"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' <"$T/out" || not_ok "lines that can be read: $(cat "$T/out")"
fi
cp "$1/tests/cuda_plugins/cuda_plugin_wrong.so" "$T/all/libpenstock-cuda.so"
said=$(on_sim "$1" "$T/all" 2>&1) && status=0 || status=$?
[[ $status == 1 && $said != *records_s* ]] || not_ok "a kernel that is wrong beyond the rows of the proof: $status: $said"
[ $failed = 0 ] && echo "ok"
