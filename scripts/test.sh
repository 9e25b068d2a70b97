#!/usr/bin/env bash
# Sets up, looks at the format, builds and tests everything, and tests a selection under the address and undefined-behaviour
# sanitizers. Options:
#   --sanitizers   also all tests under each sanitizer and without inlining (hours on two cores)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=(release asan-selection)
setup=(--checks)
for argument in "$@"; do
  case "$argument" in
    --sanitizers)
      presets+=(asan tsan debug-no-inlining)
      setup+=(--sanitizers)
      ;;
    *)
      echo "test: expected --sanitizers or nothing, got $argument" >&2
      exit 2
      ;;
  esac
done

scripts/setup.sh "${setup[@]}"
scripts/format.sh --check
for preset in "${presets[@]}"; do
  echo "test: building $preset"
  cmake --preset "$preset" -DLINNET_WERROR=ON >/dev/null
  cmake --build --preset "$preset"
  echo "test: testing $preset"
  ctest --preset "$preset"
done
