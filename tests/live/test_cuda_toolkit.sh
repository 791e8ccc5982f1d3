#!/usr/bin/env bash
# deploy/cuda/toolkit: which toolkit it takes, what it refuses, what a killed run leaves. No network, no CUDA: the installed ones are folders
# made up here, and what pip does is done by a python3 of ours, but where pip's own check of digests is what is asked for.
#
# TAP-like lines, then "N passed, N failed, N skipped"; exit status 1 when one failed.
set -uo pipefail
export LC_ALL=C
root=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..")
toolkit=$root/deploy/cuda/toolkit
T=$(mktemp -d "${TMPDIR:-/tmp}/penstock-toolkit-test.XXXXXX")
trap 'rm -rf "$T"' EXIT
passed=0 failed=0 skipped=0
export XDG_CACHE_HOME=$T/cache PENSTOCK_CUDA_PREFIX=$T/none
unset CUDA_HOME CUDA_PATH PENSTOCK_CUDA_TOOLKIT
own=$XDG_CACHE_HOME/penstock/cuda-13.0
real_python=$(command -v python3)
# An installed CUDA is none of what is tried here. A folder on the PATH with an nvcc may be /usr/bin: links to all else in it take its place.
path=
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
    if [[ -e $folder/nvcc ]]; then
        without=$(mktemp -d "$T/path.XXXXXX")
        ln -s "$folder"/* "$without/" && rm "$without/nvcc"
        folder=$without
    fi
    path+=${path:+:}$folder
done
export PATH=$path

check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$T/out" 2>&1; then passed=$((passed + 1)) && echo "ok $what"; else
        failed=$((failed + 1)) && echo "not ok $what" && tail -n 20 "$T/out" | sed 's/^/#   /'
    fi
}
exits() { # STATUS TEXT COMMAND...: with that status, and TEXT is in what it says
    local want=$1 text=$2 got
    shift 2
    "$@" >"$T/says" 2>&1
    got=$?
    cat "$T/says"
    [[ $got == "$want" ]] || { echo "exit status $got, expected $want" && return 1; }
    grep -qF -- "$text" "$T/says" || { echo "\"$text\" is not in it" && return 1; }
}
prints() { # TEXT COMMAND...: on standard output, all of it
    local got want=$1
    shift
    got=$("$@" 2>"$T/err") && [[ $got == "$want" ]] || { echo "got \"$got\", expected \"$want\"" && cat "$T/err" && return 1; }
}
is_empty() { # no toolkit, and nothing that looks like one
    [[ ! -e $own && -z $(compgen -G "$own.tmp.*") ]] || { ls -d "$own"* && return 1; }
}
installed() { # FOLDER RELEASE: a toolkit made up
    mkdir -p "$1/bin" "$1/lib64"
    printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' "$2" "$2" >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
    : >"$1/lib64/libcudart_static.a"
}
python_that() { # COMMANDS: $T/bin/python3, whose "pip install --target DIR" runs them with DIR as $target, and $uncached
    mkdir -p "$T/bin"
    cat >"$T/bin/python3" <<PYTHON
#!/usr/bin/env bash
[[ \$3 != --version ]] || exit 0
while ((\$#)); do [[ \$1 == --target ]] && target=\$2; [[ \$1 == --no-cache-dir ]] && uncached=1; shift; done
$1
PYTHON
    chmod +x "$T/bin/python3"
}
wheels_unpacked='mkdir -p "$target"/nvidia/cu13/{bin,lib} "$target/nvidia_x-1.dist-info/licenses"
echo text >"$target/nvidia_x-1.dist-info/licenses/License.txt"
printf "#!/bin/sh\necho \"Cuda compilation tools, release 13.0, V13.0.88\"\n" >"$target/nvidia/cu13/bin/nvcc"
chmod +x "$target/nvidia/cu13/bin/nvcc"
: >"$target/nvidia/cu13/lib/libcudart_static.a"; : >"$target/nvidia/cu13/lib/libcudart.so.13"'
with_python() { PATH=$T/bin:$PATH "$@"; }

# --- words ---
check "help" exits 0 "toolkit fetch" "$toolkit" --help
check "no verb" exits 2 "what to do" "$toolkit"
check "an unknown verb" exits 2 'no verb "get"' "$toolkit" get
check "an unknown option" exits 2 "no option --all" "$toolkit" fetch --all

# --- installed ones ---
check "there is none" exits 4 "there is none" "$toolkit" find
installed "$T/named" 12.4
check "the named one" env PENSTOCK_CUDA_TOOLKIT="$T/named" bash -c "[[ \$('$toolkit' fetch) == '$T/named' ]]"
check "a named one that is none is an error" exits 2 "is no CUDA toolkit" env PENSTOCK_CUDA_TOOLKIT="$T/nothing" "$toolkit" find
mkdir "$T/local"
installed "$T/local/cuda-12.9" 12.9
installed "$T/local/cuda-13.0" 13.0
installed "$T/local/cuda-11.8" 11.8
check "the newest of several" prints "$T/local/cuda-13.0" env PENSTOCK_CUDA_PREFIX="$T/local" "$toolkit" find
check "CUDA_HOME before it" prints "$T/named" env CUDA_HOME="$T/named" PENSTOCK_CUDA_PREFIX="$T/local" "$toolkit" find
check "nvcc on the PATH" prints "$T/named" env PATH="$T/named/bin:$PATH" "$toolkit" find
check "CUDA 11 is left out, and said to be" exits 4 "is CUDA 11.8 and is left out" env CUDA_HOME="$T/local/cuda-11.8" "$toolkit" find
rm "$T/named/lib64/libcudart_static.a"
check "one without the static runtime is left out" exits 4 "no libcudart_static.a" env CUDA_HOME="$T/named" "$toolkit" find
check "--own leaves out all" exits 4 "there is none" env PENSTOCK_CUDA_PREFIX="$T/local" "$toolkit" find --own

# --- made of wheels ---
python_that 'echo "ERROR: Could not find a version" ; echo "ERROR: No matching distribution found for nvidia-nvvm"; exit 1'
check "no network" with_python exits 69 "does not get NVIDIA's wheels" "$toolkit" fetch
check "nothing is left of it" is_empty
python_that 'echo "ERROR: HTTP error 503 while getting https://index/nvidia_nvvm.whl"; exit 1'
check "an index that does not work" with_python exits 69 "does not get NVIDIA's wheels" "$toolkit" fetch
python_that 'printf "%s\n" "ERROR: Exception:" Traceback "pip._vendor.urllib3.exceptions.ReadTimeoutError: Read timed out."; exit 2'
check "a network that goes away" with_python exits 69 "does not get NVIDIA's wheels" "$toolkit" fetch
python_that 'printf "%s\n" "WARNING: Retrying after connection broken" "ERROR: No space left on device"; exit 1'
check "what a warning has is not the reason" with_python exits 1 "pip failed" "$toolkit" fetch
python_that 'exit 1'
printf '#!/bin/sh\n[ "$1" != 900 ] || exit 124\n' >"$T/bin/timeout"
printf '#!/bin/sh\nexit 1\n' >"$T/bin/flock"
chmod +x "$T/bin/timeout"
check "a pip that does not end is ended" with_python exits 69 "does not get NVIDIA's wheels" "$toolkit" fetch
chmod +x "$T/bin/flock"
check "another run that does not end is waited for, not forever" with_python exits 69 "gave up after" "$toolkit" fetch
rm "$T/bin/timeout" "$T/bin/flock"
spoilt='echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."; exit 1'
python_that "$spoilt"
check "other wheels, from the index too" with_python exits 1 "is not what" "$toolkit" fetch
python_that "[[ \$uncached ]] || { $spoilt; }
$wheels_unpacked"
check "a wheel spoilt in pip's cache is got anew" with_python prints "$own" "$toolkit" fetch
check "that one is removed" "$toolkit" remove
python_that 'mkdir -p "$target/nvidia/cu13/bin"; echo started >"'"$T"'/started"; exec sleep 60'
PATH=$T/bin:$PATH "$toolkit" fetch >/dev/null 2>&1 &
pid=$!
for ((i = 0; i < 100; i++)); do [[ -e $T/started ]] && break; sleep 0.1; done
sleeper=$(pgrep -P "$(pgrep -P "$pid" timeout)" sleep)
kill -KILL "$pid"
wait "$pid" 2>/dev/null
kill "$sleeper" # what it had started, and nothing else
check "what a killed run left is no toolkit" exits 4 "there is none" "$toolkit" find
check "it left something" bash -c "compgen -G '$own.tmp.*'"
python_that "$wheels_unpacked"
check "the next run makes it" with_python prints "$own" "$toolkit" fetch
check "and removes what was left" bash -c "! compgen -G '$own.tmp.*'"
check "it is found" prints "$own" "$toolkit" find
check "folders where compilers look" test -e "$own/lib64/libcudart.so" -a -e "$own/targets/x86_64-linux/lib/libcudart_static.a" -a -e "$own/licences/nvidia_x.txt"
python_that 'exit 1'
check "once made, pip is not asked again" with_python prints "$own" "$toolkit" fetch
echo "other pins" >>"$own/wheels.txt"
check "one of other wheels is not taken" exits 4 "there is none" "$toolkit" find
python_that "$wheels_unpacked"
check "it is made anew" with_python prints "$own" "$toolkit" fetch
check "removed" "$toolkit" remove
check "nothing is left" is_empty
python_that 'mkdir -p "$target/nvidia/cu13/bin"'
check "wheels without a compiler" with_python exits 1 "does not run here" "$toolkit" fetch
check "nothing is left of them" is_empty

# --- digests: pip's own check ---
if "$real_python" -m pip --version >/dev/null 2>&1; then
    mkdir "$T/wheels"
    "$real_python" - "$T/wheels" "$root/deploy/cuda/wheels-13.0.txt" <<'PYTHON'
import re, sys, zipfile
for name, version in re.findall(r"^([\w-]+)==([\d.]+) ", open(sys.argv[2]).read(), re.M):
    n = name.replace("-", "_")
    with zipfile.ZipFile(f"{sys.argv[1]}/{n}-{version}-py3-none-any.whl", "w") as z:
        z.writestr(f"{n}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        z.writestr(f"{n}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{n}-{version}.dist-info/RECORD", "")
        z.writestr("nvidia/cu13/bin/nvcc", "#!/bin/sh\necho hostile\n")
PYTHON
    check "wheels that are others are refused" exits 1 "is not what" env PIP_NO_INDEX=1 PIP_FIND_LINKS="$T/wheels" "$toolkit" fetch
    check "nothing is kept of them" is_empty
else
    skipped=$((skipped + 1)) && echo "skipped: digests of wheels: python3 has no pip (apt install python3-pip)"
fi

# --- quickstart: the plug-in has a build of its own; cmake and ninja write down what they are asked for ---
mkdir -p "$T/tree/deploy/cuda" "$T/tools"
cp "$root/quickstart" "$T/tree/"
printf '#!/bin/sh\necho /made-up-cuda\n' >"$T/tree/deploy/cuda/toolkit"
printf '#!/bin/sh\nprintf installed\n' >"$T/tools/dpkg-query"
cat >"$T/tools/cmake" <<'SH'
#!/bin/sh
echo "cmake $*" >>"$ASKED"
case "$*" in
    *"-B build/cuda "*) [ "$CUDA_FAILS" != cmake ] || { echo "nvcc is broken"; exit 1; } ;;
    "--preset "*) mkdir -p "build/$2" && : >"build/$2/build.ninja" ;;
esac
SH
cat >"$T/tools/ninja" <<'SH'
#!/bin/sh
echo "ninja $*" >>"$ASKED"
[ "$2" = build/cuda ] || { echo done && : >"$2/penstock" && exit 0; }
[ "$CUDA_FAILS" != ninja ] || { echo "nvcc is broken"; exit 1; }
mkdir -p build/cuda && echo "a plug-in" >build/cuda/libpenstock-cuda.so && echo done
SH
chmod +x "$T/tree/deploy/cuda/toolkit" "$T/tools/"*
quickstart() { # WHAT-FAILS WORD...
    rm -f "$T/asked"
    ASKED=$T/asked CUDA_FAILS=$1 PATH=$T/tools:$PATH "$T/tree/quickstart" build --no-install "${@:2}"
}
asked_apart() { # no word of CUDA reaches the program's build
    grep -q 'build/cuda' "$T/asked" && ! grep -E '^(cmake --preset|ninja -C build/release)' "$T/asked" | grep -i cuda
}
beside=$T/tree/build/release/libpenstock-cuda.so
for fails in cmake ninja; do
    check "a plug-in that $fails does not make is said" exits 1 "the kernels for the GPU are not built; build/release/penstock is" quickstart $fails --cuda
    check "$fails: the program is there, nothing is beside it" test -e "$T/tree/build/penstock" -a ! -e "$beside"
    check "$fails: its build is not told of CUDA" asked_apart
done
check "the next build is one of the program" exits 0 "build/penstock is there" quickstart ""
check "a plug-in that is made lies beside the program" exits 0 "libpenstock-cuda.so is there" quickstart "" --cuda
check "whole, and by the toolkit's compiler" bash -c "[[ \$(cat '$beside') == 'a plug-in' && ! -e '$beside.new' ]] && grep -q CMAKE_CUDA_COMPILER=/made-up-cuda/bin/nvcc '$T/asked'"
check "apart from the program's build, too" asked_apart

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
