#!/usr/bin/env bash
# Installs the Debian packages that Linnet is built and tested with, where any are missing; needs no root otherwise. Options:
#   --checks     also what scripts/format.sh and scripts/tidy.sh need
#   --clang      also what the fuzz targets and the thread sanitizer are built with
#   --coverage   also what scripts/coverage.sh needs
set -euo pipefail

packages=(git g++ cmake ninja-build libhwy-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev
  libpng-dev libturbojpeg0-dev libcairo2-dev libsndfile1-dev libsentencepiece-dev zlib1g-dev libxxhash-dev libgtest-dev libgmock-dev libbenchmark-dev libopenmpi-dev openmpi-bin iproute2 pkgconf
  python3-numpy python3-dev python3-venv python3-pip)
for argument in "$@"; do
  case "$argument" in
    --checks) packages+=(clang-format-14 clang-tidy-14) ;;
    --clang) packages+=(clang libclang-rt-dev) ;;
    --coverage) packages+=(gcovr) ;;
    *)
      echo "setup: expected --checks, --clang or --coverage, got $argument" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: expected Debian 12 or a relative of it; elsewhere install by hand what is called there: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == "installed" ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup: all packages are there"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: expected root or sudo to install ${missing[*]}, got neither" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
