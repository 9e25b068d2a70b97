#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz and runs each for some minutes, under the address and undefined-behaviour sanitizers:
#   scripts/fuzz.sh [MINUTES] [--seconds SECONDS] [TARGET ...]
# MINUTES may be a fraction; without a number each target gets 10 minutes. TARGET is a name such as png; without names all
# targets run. JOBS=2 runs two at a time. Fails where an input crashes a target, or takes more than 20 seconds or 2 GB, and
# names the input. What was learnt about a target stays in build/fuzz/corpus for the next run. Installs clang where it is
# missing (scripts/setup.sh --clang).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  echo "fuzz: expected [MINUTES] [--seconds SECONDS] [TARGET ...], got $1" >&2
  exit 2
}

seconds=600
targets=()
while (($# > 0)); do
  case "$1" in
    --seconds)
      [[ "${2:-}" =~ ^[0-9]+$ ]] || usage "--seconds ${2:-and nothing}"
      seconds=$2
      shift
      ;;
    -*) usage "$1" ;;
    [0-9]* | .[0-9]*) seconds=$(awk -v minutes="$1" 'BEGIN { printf "%d", minutes * 60 + 0.5 }') ;;
    *)
      [[ -f "tests/fuzz/$1_fuzz.cc" ]] || usage "$1, which is no target"
      targets+=("$1")
      ;;
  esac
  shift
done
# libFuzzer takes 0 for no limit.
if ((seconds < 1)); then usage "no time"; fi
if ((${#targets[@]} == 0)); then
  for file in tests/fuzz/*_fuzz.cc; do
    file=${file##*/}
    targets+=("${file%_fuzz.cc}")
  done
fi

scripts/setup.sh --clang
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/%/_fuzz}"

build=build/fuzz
findings=$build/findings
mkdir -p "$findings"
folder=$(mktemp -d "$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/linnet-fuzz-XXXXXX")
trap 'rm -rf "$folder"' EXIT

export LINNET_FUZZ_FOLDER=$folder
export ASAN_OPTIONS=quarantine_size_mb=16:allow_addr2line=1
export UBSAN_OPTIONS=print_stacktrace=1

# Runs a target; false where there is a finding.
run_target() {
  local name=$1 program=$build/tests/fuzz/$1_fuzz work=$folder/$1 log=$folder/$1.log corpus=$build/corpus/$1
  mkdir -p "$corpus" "$work"
  if ! "$program" --prepare="$work" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "fuzz: $name: expected to accept its own seeds; $program --prepare=FOLDER shows why it does not" >&2
    return 1
  fi
  local known=()
  [[ -d tests/fuzz/inputs/$name ]] && known=("tests/fuzz/inputs/$name")
  if ! "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=16384 \
    -dict="$work/words" -artifact_prefix="$findings/$name-" -print_final_stats=1 \
    "$corpus" "$work/seeds" "${known[@]}" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    local input
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "fuzz: $name: a finding; $program ${input:-(see above)} reproduces it" >&2
    return 1
  fi
  local executions rate coverage
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  echo "fuzz: $name: $executions inputs in $seconds s, $rate a second, $coverage edges, no finding"
}

status=0
running=0
for name in "${targets[@]}"; do
  if ((running >= ${JOBS:-1})); then
    wait -n || status=1
    running=$((running - 1))
  fi
  run_target "$name" &
  running=$((running + 1))
done
while ((running > 0)); do
  wait -n || status=1
  running=$((running - 1))
done
exit "$status"
