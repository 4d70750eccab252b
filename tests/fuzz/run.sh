#!/bin/sh
# Runs every fuzz target for a while, from its seeds. Fails when one finds a crash, and says where it lies.
# Usage: tests/fuzz/run.sh SECONDS BUILD_DIRECTORY   (built with: cmake --preset fuzz && cmake --build build-fuzz)
set -u
if [ $# -ne 2 ] || ! [ "$1" -gt 0 ] 2>/dev/null; then
  echo "usage: $0 SECONDS BUILD_DIRECTORY" >&2
  exit 2
fi
seconds=$1 build=$2
here=$(cd "$(dirname "$0")" && pwd)
found=0 failed=0
for program in "$build"/bin/fuzz_*; do
  [ -x "$program" ] || continue
  found=$((found + 1))
  name=$(basename "$program")
  name=${name#fuzz_}
  work=$build/fuzz/$name
  mkdir -p "$work/corpus" "$work/crashes"
  printf '%s: ' "$name"
  if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
      -artifact_prefix="$work/crashes/" "$work/corpus" "$here/corpus/$name" >"$work/log" 2>&1; then
    sed -n 's/^stat::number_of_executed_units: */ok, executions: /p' "$work/log"
  else
    failed=$((failed + 1))
    echo "FAILED; inputs in $work/crashes, log in $work/log:"
    tail -n 30 "$work/log"
  fi
done
if [ "$found" -eq 0 ]; then
  echo "$0: no fuzz_* programs in $build/bin; build them with the preset fuzz" >&2
  exit 2
fi
[ "$failed" -eq 0 ]
