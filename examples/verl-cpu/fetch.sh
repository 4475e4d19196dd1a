#!/bin/sh
# Fetches the packages of requirements.txt into a folder for PYTHONPATH. Any Python with pip will do.
#
# usage: fetch.sh FOLDER [PYTHON]
set -eu
list=$(dirname "$0")/requirements.txt folder=$1 python=${2:-python3}
! cmp -s "$list" "$folder/requirements.txt" || exit 0
rm -rf "$folder" "$folder.new"
mkdir -p "$folder.new"

# fetch ARGUMENT...: with pip, which may run with another Python. Some packages have no wheel.
fetch() {
	"$python" -m pip install --quiet --disable-pip-version-check --no-deps \
		--implementation=cp --python-version=3.11 --target "$folder.new" "$@"
}

echo "fetching verl and its packages into $folder (once, a few minutes)" >&2
torch=$(grep '^torch==' "$list")
fetch --index-url https://download.pytorch.org/whl/cpu "$torch" # without CUDA
grep -vFx "$torch" "$list" >"$folder.new/requirements.txt"
fetch --requirement "$folder.new/requirements.txt"
cp "$list" "$folder.new"
mv "$folder.new" "$folder"
