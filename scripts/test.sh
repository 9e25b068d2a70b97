#!/usr/bin/env bash
# Sets up, builds and tests everything. Options:
#   --sanitizers   also under the address, undefined-behaviour and thread sanitizers (half an hour more on two cores)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=(release)
setup=()
for argument in "$@"; do
  case "$argument" in
    --sanitizers)
      presets+=(asan tsan)
      setup+=(--sanitizers)
      ;;
    *)
      echo "test: expected --sanitizers or nothing, got $argument" >&2
      exit 2
      ;;
  esac
done

scripts/setup.sh "${setup[@]}"
for preset in "${presets[@]}"; do
  echo "test: building $preset"
  cmake --preset "$preset" -DLINNET_WERROR=ON >/dev/null
  cmake --build "build/$preset"
  echo "test: testing $preset"
  ctest --preset "$preset"
done
