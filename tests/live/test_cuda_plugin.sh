#!/usr/bin/env bash
# libpenstock-cuda.so: the kernels compile, each is in the plug-in for each target, nothing else is shown, and it can be opened where there is no
# driver. No kernel runs here: that takes a device (or the emulation: test_cuda_trees).
#
# The toolkit is kept in the user's cache (deploy/cuda/toolkit), the build in build/cuda. TAP-like lines, then "N passed, N failed"; 77 = skipped.
set -uo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." || exit 1
passed=0 failed=0
T=$(mktemp -d "${TMPDIR:-/tmp}/penstock-plugin-test.XXXXXX")
trap 'rm -rf "$T"' EXIT
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$T/out" 2>&1; then passed=$((passed + 1)) && echo "ok $what"; else
        failed=$((failed + 1)) && echo "not ok $what" && tail -n 20 "$T/out" | sed 's/^/#   /'
    fi
}
same() { [[ $1 == "$2" ]] || { printf '%s\n' "got      $1" "expected $2" && return 1; }; }

toolkit=$(deploy/cuda/toolkit fetch 2>"$T/fetch")
status=$?
if [ $status = 69 ]; then
    echo "skipped: no CUDA toolkit: $(tail -n 1 "$T/fetch" | sed 's/^toolkit: //')"
    exit 77
fi
[ $status = 0 ] || { cat "$T/fetch" && echo "0 passed, 1 failed" && exit 1; }
cuobjdump=$toolkit/bin/cuobjdump plugin=build/cuda/libpenstock-cuda.so

# CMake keeps the compiler that it has seen; with another one it would go on with half of its settings forgotten.
grep -qs "^CMAKE_CUDA_COMPILER:[^=]*=$toolkit/bin/nvcc\$" build/cuda/CMakeCache.txt || rm -rf build/cuda
check "the kernels compile without a warning" bash -c "cmake -S . -B build/cuda -G Ninja -DPENSTOCK_ENGINE_ONLY=ON -DPST_TESTS=OFF -DPST_WERROR=ON \
    -DPST_WITH_CUDA=ON -DCMAKE_CUDA_COMPILER='$toolkit/bin/nvcc' && ninja -C build/cuda penstock_cuda"
[ -f $plugin ] || { echo "$passed passed, $failed failed" && exit 1; }

# --- every kernel, as the sources have them, for every target ---
functions() { # ARCH: the kernels that its code has
    "$cuobjdump" -res-usage "$plugin" 2>/dev/null | awk -v want="$1" '/^arch = /{on = $3 == want} /^Fatbin ptx/{on = 0} on && /Function /{sub(":.*", "", $2); print $2}' | c++filt
}
# A template's instances are those that trees.cu launches: float and double.
kernels=$(sed -nE '/^__global__/{N;s/\n/ /;s/.*void ([a-z_0-9]+)\(.*/\1/p}' engine/cuda/*.cu | sort -u)
check "the sources have kernels" same "$(paste -sd' ' <<<"$kernels")" "far_kernel near_kernel product_kernel trees_kernel"
forms=$(sed -E 's/^trees_kernel$/trees_kernel<float>\ntrees_kernel<double>/' <<<"$kernels")
for arch in sm_80 sm_90; do
    functions $arch >"$T/$arch"
    for form in $forms; do
        check "$form is in the code for $arch" grep -qE "\b$form\(" "$T/$arch"
    done
done
"$cuobjdump" -ptx "$plugin" >"$T/ptx" 2>/dev/null
check "PTX is for compute 9.0" same "$(sed -n 's/^\.target //p' "$T/ptx" | sort -u)" sm_90
sed -nE 's/^\.visible \.entry ([A-Za-z_0-9]+)\($/\1/p' "$T/ptx" | c++filt >"$T/entries"
for form in $forms; do
    check "$form is in the PTX" grep -qE "\b$form\(" "$T/entries"
done
check "no other target is in it" same "$("$cuobjdump" -lelf -lptx "$plugin" 2>/dev/null | sed -E 's/.*\.(sm_[0-9a-z]+)\.(cubin|ptx)$/\1 \2/' | sort -u | paste -sd,)" \
    "sm_80 cubin,sm_90 cubin,sm_90 ptx"

# --- as a library ---
check "one name is exported" same "$(nm -D --defined-only $plugin | awk '{print $3}')" penstock_cuda_plugin
check "neither the driver nor NVML nor the runtime is linked" same "$(readelf -d $plugin | grep NEEDED | grep -ciE 'cuda|nvidia|cudart')" 0
cat >"$T/open.py" <<'PYTHON'
import ctypes, sys
class Table(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_int32), ("cuda", ctypes.c_int32), ("version", ctypes.c_char_p), ("targets", ctypes.c_char_p), ("trees", ctypes.c_void_p)]
plugin = ctypes.CDLL(sys.argv[1])
plugin.penstock_cuda_plugin.restype = ctypes.POINTER(Table)
t = plugin.penstock_cuda_plugin().contents
assert t.cuda // 1000 in (12, 13), t.cuda
assert t.targets == b"sm_80 sm_90 compute_90", t.targets
trees = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(t.trees)
head = (ctypes.c_int32 * 64)(1, 1, 1, 32) # one tree, one target, one column, 32 rows a block
print(trees(head, None, None, 0, 1, None, None), trees(head, None, None, 5, 1, None, None))
PYTHON
if ldconfig -p 2>/dev/null | grep -q libcuda.so.1 || /sbin/ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
    echo "ok without a driver a launch is an error # SKIP there is a driver here"
else
    check "without a driver a launch is an error (35), and no rows are none" same "$(python3 "$T/open.py" "$PWD/$plugin")" "0 35"
fi
if [ -x build/dev/penstock ] && [ -d build/dev/tests/cuda_sim ]; then
    cp build/dev/penstock $plugin "$T/"
    check "the program takes it: a device that is there can be used" grep -qE " usable$" \
        <(LD_LIBRARY_PATH=build/dev/tests/cuda_sim PENSTOCK_SIM_CUDA="13000 9.0" "$T/penstock" devices)
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
