#!/usr/bin/env bash
# Sets up, looks at the format and at what clang-tidy finds, builds and tests everything, the wheel of the Python package too,
# tests a selection under the address and undefined-behaviour sanitizers, and runs every fuzz target for ten seconds. Options:
#   --sanitizers   also all tests under each sanitizer and without inlining (hours on two cores)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=(release asan-selection)
for argument in "$@"; do
  case "$argument" in
    --sanitizers)
      presets+=(asan tsan debug-no-inlining)
      ;;
    *)
      echo "test: expected --sanitizers or nothing, got $argument" >&2
      exit 2
      ;;
  esac
done

scripts/setup.sh --checks --clang
scripts/format.sh --check
scripts/tidy.sh
for preset in "${presets[@]}"; do
  echo "test: building $preset"
  options=(-DLINNET_WERROR=ON)
  if [[ "$preset" == asan-selection ]] && ! grep --quiet avx512 /proc/cpuinfo; then
    # The preset has kernels of AVX-512, which are not this processor's: those of AVX2 in their place.
    options+=("-DCMAKE_CXX_FLAGS=-DHWY_DISABLED_TARGETS='(HWY_SSSE3|HWY_SSE4|HWY_AVX3)'")
  fi
  cmake --preset "$preset" "${options[@]}" >/dev/null
  cmake --build --preset "$preset"
  echo "test: testing $preset"
  # Two at a time: tests are waiting or run on one thread for a third of their time.
  ctest --preset "$preset" --parallel 2
  if [[ "$preset" == release ]]; then
    # With the library that is built already: about three minutes on two cores, most of them tests. PyTorch is installed once,
    # where there is room for it.
    cmake --install build/release --prefix build/release/installed >/dev/null
    cache=${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}/linnet
    mkdir -p "$cache"
    pytorch=(--pytorch "$cache/pytorch")
    if [[ ! -e "$cache/pytorch/complete" ]] && (($(df --output=avail -k "$cache" | tail -1) < 10 * 1024 * 1024)); then
      echo "test: linnet.torch is not tested: PyTorch needs 10 GB in $cache" >&2
      pytorch=()
    fi
    scripts/wheel.sh --linnet build/release/installed "${pytorch[@]}"
  fi
done

echo "test: fuzzing"
cmake --preset fuzz -DLINNET_WERROR=ON >/dev/null
JOBS=2 scripts/fuzz.sh --seconds 10
