#!/usr/bin/env bash
# The engine as others get it: installed into a prefix of its own, found by pkg-config and by CMake, used from C and C++, by gcc and
# clang, shared and static; what it exports is what engine/penstock-engine.map lists, which is what its header declares.
#
#   tests/live/test_engine_library.sh [BUILD]      BUILD: a build with -DPENSTOCK_ENGINE_ONLY=ON (default: it makes one)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
root=$PWD build=${1:-} passed=0 failed=0 skipped=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ok() { passed=$((passed + 1)); echo "ok $1"; }
no() { failed=$((failed + 1)); echo "not ok $1"; [ -z "${2:-}" ] || printf '%s\n' "$2" | head -20 | sed 's/^/    /'; }
skip() { skipped=$((skipped + 1)); echo "skipped: $1"; }
check() { # name, command…
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then ok "$name"; else no "$name" "$out"; fi
}
same() { # name, want, got
    if [ "$2" = "$3" ]; then ok "$1"; else no "$1" "$(diff <(printf '%s\n' "$2") <(printf '%s\n' "$3"))"; fi
}

if [ -z "$build" ]; then
    build=$dir/build
    cmake -S . -B "$build" -G Ninja -DPENSTOCK_ENGINE_ONLY=ON -DPST_TESTS=OFF >/dev/null
    ninja -C "$build" >/dev/null
fi
cmake --install "$build" --prefix "$dir/staged" >/dev/null
mv "$dir/staged" "$dir/moved" # an installed tree may be moved
prefix=$dir/moved
pc=$(find "$prefix" -name penstock-engine.pc)
lib=$(dirname "$(dirname "$pc")")
so=$lib/libpenstock-engine.so
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib

same "one header is installed" penstock_engine.h "$(cd "$prefix/include" && find . -type f | sed 's|^\./||')"
same "the soname" libpenstock-engine.so.0 "$(readelf -d "$so" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')"
listed=$(sed -nE 's/^ +(pst_[a-z0-9_]+);$/\1/p' engine/penstock-engine.map | sort)
same "exported is what the map lists" "$listed" "$(nm -D --defined-only "$so" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort)"
same "the map lists what the header declares" "$listed" \
    "$(gcc -fsyntax-only -x c -include "$prefix/include/penstock_engine.h" -aux-info "$dir/decl" /dev/null && sed -nE 's|^/\* .*penstock_engine.h:.* \*?(pst_[a-z0-9_]+) \(.*|\1|p' "$dir/decl" | sort)"
same "needed: nothing of ours" "" "$(readelf -d "$so" | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | grep -E 'penstock|rdkafka|avro|jansson|event|cmocka' || true)"

check "the library is built with what makes bugs harder to use" tests/tools/hardened "$so"

# The sizes that callers compile in.
cat >"$dir/abi.c" <<'C'
#include <penstock_engine.h>
#include <stdio.h>
int main(void)
{
    printf("%zu %zu %zu %zu %zu %zu %d\n", sizeof(pst_err), sizeof(pst_tensor), sizeof(pst_value_info), sizeof(pst_model_limits),
           sizeof(pst_plan_opts), sizeof(pst_run_limits), PST_MAX_RANK);
    return 0;
}
C
read -r -a cflags <<<"$(pkg-config --cflags penstock-engine)"
read -r -a libs <<<"$(pkg-config --libs penstock-engine)"
read -r -a static_libs <<<"$(pkg-config --static --libs penstock-engine | sed "s|-lpenstock-engine|$lib/libpenstock-engine.a|")"
model=$root/tests/fuzz/corpus/onnx/mlp_gemm.onnx
want=
for cc in gcc clang; do
    command -v $cc >/dev/null || { skip "$cc is missing (apt install $cc)"; continue; }
    check "the header stands alone in C17, $cc" $cc -std=c17 -pedantic -Wall -Wextra -Werror "${cflags[@]}" "$dir/abi.c" -o "$dir/abi"
    same "sizes are the ABI's, $cc" "504 80 96 96 64 64 8" "$("$dir/abi")"
    cp "$dir/abi.c" "$dir/abi.cpp"
    if [ $cc = gcc ] && ! command -v g++ >/dev/null; then
        skip "g++ is missing (apt install g++)"
    else
        check "the header stands alone in C++, $cc" $cc -x c++ -std=c++17 -pedantic -Wall -Wextra -Werror "${cflags[@]}" -c "$dir/abi.cpp" -o "$dir/abi.o"
    fi
    check "the example builds, $cc" $cc -std=c17 -pedantic -Wall -Wextra -Werror "${cflags[@]}" examples/engine/score.c "${libs[@]}" -o "$dir/score"
    check "the example builds with the archive, $cc" $cc -std=c17 "${cflags[@]}" examples/engine/score.c "${static_libs[@]}" -o "$dir/score-static"
    for program in score score-static; do
        got=$("$dir/$program" "$model" </dev/null 2>"$dir/said") || no "$program runs, $cc" "$(cat "$dir/said")"
        want=${want:-$got}
        same "$program scores the same, $cc" "$want" "$got"
    done
done
same "four rows of made-up numbers" 4 "$(printf '%s\n' "$want" | wc -l)"
same "the rows that are given" 2 "$(seq 1 60 | paste -sd, | "$dir/score" "$model" 2>/dev/null | wc -l)"
same "a file that is no model is refused with a sentence" "score: $dir/abi.c: this is no model that can be read, but a text; a model is wanted" "$("$dir/score" "$dir/abi.c" 2>&1 | grep -oE '^score: .*: .*a text; a model is wanted' || true)"

mkdir "$dir/user"
cat >"$dir/user/CMakeLists.txt" <<C
cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(penstock-engine 0.1 REQUIRED)
add_executable(score $root/examples/engine/score.c)
target_link_libraries(score penstock::engine)
C
by_cmake() { cmake -G Ninja -S "$dir/user" -B "$dir/user/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null && cmake --build "$dir/user/build" >/dev/null; }
check "find_package(penstock-engine)" by_cmake
same "and it scores the same" "$want" "$("$dir/user/build/score" "$model" </dev/null 2>/dev/null)"

echo "library: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
