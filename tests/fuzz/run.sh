#!/bin/sh
# Runs every fuzz target for a while, from its seeds, two at a time. Fails when one finds a crash, and says
# where it lies.
# Usage: tests/fuzz/run.sh SECONDS BUILD_DIRECTORY   (built with: scripts/build asan fuzzers)
set -u
if [ $# -ne 2 ] || ! [ "$1" -gt 0 ] 2>/dev/null; then
  echo "usage: $0 SECONDS BUILD_DIRECTORY" >&2
  exit 2
fi
seconds=$1 build=$2
here=$(cd "$(dirname "$0")" && pwd)
found=0 failed=0
first='' first_process='' second='' second_process=''
trap 'kill $first_process $second_process 2>/dev/null; exit 130' INT TERM

# The background job becomes the fuzzer itself, so that its process id is the fuzzer's.
fuzz() {
  work=$build/fuzz/$1
  mkdir -p "$work/corpus" "$work/crashes"
  exec "$build/bin/fuzz_$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
    -print_final_stats=1 -artifact_prefix="$work/crashes/" "$work/corpus" "$here/corpus/$1" >"$work/log" 2>&1
}

# report NAME PROCESS
report() {
  [ -n "$1" ] || return 0
  work=$build/fuzz/$1
  if wait "$2"; then
    printf '%s: ' "$1"
    sed -n 's/^stat::number_of_executed_units: */ok, executions: /p' "$work/log"
  else
    failed=$((failed + 1))
    echo "$1: FAILED; inputs in $work/crashes, log in $work/log:"
    tail -n 30 "$work/log"
  fi
}

report_both() {
  report "$first" "$first_process"
  report "$second" "$second_process"
  first='' first_process='' second='' second_process=''
}

for program in "$build"/bin/fuzz_*; do
  name=${program##*/fuzz_}
  # Only targets: the tests of the corpus lie there too in some builds.
  [ -x "$program" ] && [ -d "$here/corpus/$name" ] || continue
  found=$((found + 1))
  fuzz "$name" &
  if [ -z "$first" ]; then
    first=$name first_process=$!
  else
    second=$name second_process=$!
    report_both
  fi
done
report_both
if [ "$found" -eq 0 ]; then
  echo "$0: no fuzz_* programs in $build/bin; build them with scripts/build asan fuzzers" >&2
  exit 2
fi
[ "$failed" -eq 0 ]
