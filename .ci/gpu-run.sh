#!/usr/bin/env bash
# Run the bundle beside this script on a machine with a GPU: Linux, Python 3, no Rust.
#
#     run.sh              logs and results into ./out, or into $OUT
#     run.sh conformance  these steps only, and no results
#
# HEADWATER_REQUIRE_GPU=2 where there are two GPUs: then tests of two must run as well.
#
# Runs the suite of the driver's contract, the tests, also under compute-sanitizer, the examples at
# full size and every benchmark, and writes results/<gpu>.json. A step that fails does not keep the
# others from running; the exit status says whether all went well.
set -uo pipefail

commit=@COMMIT@
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Python's own xz: the machine need not have the tool.
python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
    "$here/bundle.tar.xz" "$work" || exit 1

only=" $* "
export HEADWATER_DEVICE=${HEADWATER_DEVICE:-cuda:0}
export HEADWATER_REQUIRE_GPU=${HEADWATER_REQUIRE_GPU:-1}
export RUST_BACKTRACE=1
# NVRTC and its like lie where the loader does not look by itself.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
failed=()

# step NAME SECONDS COMMAND...: its output into NAME.log; what it exits with into NAME.status.
step() {
    local name=$1 limit=$2 start=$SECONDS status=0
    shift 2
    [ "$only" = "  " ] || [[ $only == *" $name "* ]] || return 0
    printf '\n== %s\n' "$name"
    (cd "$work" && timeout --kill-after=10 "$limit" "$@") 2>&1 | tee "$out/$name.log" || status=$?
    echo "$status" >"$out/$name.status"
    [ "$status" -eq 124 ] && echo "gave up after $limit s" | tee -a "$out/$name.log"
    [ "$status" -eq 0 ] || failed+=("$name ($status)")
    printf '== %s: status %d, %d s\n' "$name" "$status" $((SECONDS - start))
}

echo "commit $commit, device $HEADWATER_DEVICE"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/gpus.csv" ||
    failed+=("nvidia-smi")

# Nothing of an earlier run is to be taken for one of this run.
rm -f "$out"/memcheck.json "$out"/*.figures.jsonl "$out"/*.log "$out"/*.status "$out"/results/*.json
# Every rule of the contract on the GPU and on the simulated device, by tests that share one opened
# GPU. The library's other tests need Rust, or no GPU.
# What needs two GPUs is left out where one is asked for, and counted neither as passed nor as ignored.
left_out=()
[ "$HEADWATER_REQUIRE_GPU" -ge 2 ] || left_out=(--skip two_gpus)
step conformance "${TESTS_LIMIT_S:-300}" ./lib/headwater driver::conformance:: \
    --include-ignored --test-threads=1 "${left_out[@]}"
# Tests that need a GPU are ignored elsewhere.
# One after the other: they share the GPU, and one that makes a kernel run for half a second, or
# fault, holds up those of other tests that measure time.
# Left out are those about the source and its documents, which are not in the bundle, and those that
# compile a driver of their own.
step tests "${TESTS_LIMIT_S:-300}" ./test/it --include-ignored --test-threads=1 \
    --skip layers:: --skip documents:: --skip exit::
# Told apart from the other tests for what it prints: how much 500 random programs did, and what came of it.
step programs 120 ./test/it programs::random_programs_compute_what_they_say_on_any_device --nocapture
step example-engines 120 ./example/engines
for example in async_launch stale overlap "overlap --pageable" prefetch load_model two_buffers columns fan_in; do
    name=example-${example/ --/-}
    # Its name and its arguments, in words.
    step "$name" 120 ./example/$example
    step "$name-one-stream" 120 env HEADWATER_SINGLE_STREAM=1 ./example/$example
    # The same bytes on many streams and on one.
    step "$name-digest" 10 grep --fixed-strings --line-regexp \
        "$(grep --no-messages '^digest' "$out/$name.log")" "$out/$name-one-stream.log"
done
for bench in "$work"/bench/*; do
    [ -x "$bench" ] || continue
    name=$(basename "$bench")
    step "bench-$name" "${BENCH_LIMIT_S:-300}" "$bench" --json "$out/$name.figures.jsonl"
done
# The longest comes last: a machine that is only lent for a while may go before it ends.
step memcheck "${TESTS_LIMIT_S:-300}" python3 ./memcheck.py ./test/it "$out/memcheck.json"
step assemble-results 30 python3 ./assemble-results.py "$commit" "$out"

if [ "${#failed[@]}" -gt 0 ]; then
    printf '\nfailed: %s\n' "$(IFS=,; echo "${failed[*]}")"
    exit 1
fi
printf '\nall went well\n'
