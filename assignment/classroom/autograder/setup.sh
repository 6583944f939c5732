#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image: installs Python, uv, and what pyproject.toml pins.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
source=/autograder/source grader=/opt/grader

apt-get update
apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv
python=python3
if ! python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'; then
    python=python3.11 # of Ubuntu 22.04, whose python3 is 3.10
    apt-get install --yes --no-install-recommends python3.11 python3.11-venv
fi

$python -m venv "$grader/uv"
"$grader/uv/bin/pip" install --quiet uv
UV_PROJECT_ENVIRONMENT=$grader/venv "$grader/uv/bin/uv" sync --quiet --no-default-groups --no-python-downloads \
    --no-cache --project "$source/grader" --python "$(command -v "$python")"

id -u grader >/dev/null 2>&1 || useradd --create-home grader # submissions are not run as root
chmod 700 "$source" # settings.json may hold the seed
mv "$source/grader" "$grader/checkout"
chmod -R go=rX "$grader"
cd "$grader/checkout"
runuser -u grader -- "$grader/venv/bin/python" grade.py --list >/dev/null
echo "setup.sh: ready"
