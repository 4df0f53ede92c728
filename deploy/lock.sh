#!/bin/sh
# Choose the newest packages that pyproject.toml allows, and write their versions and hashes for Linux on x86_64.
# Needs uv, and nothing else does: `pip` installs what is locked. Commit the four files together.
set -eu
cd "$(dirname "$0")/.."
export UV_CUSTOM_COMPILE_COMMAND="sh deploy/lock.sh"

lock() {
    uv pip compile --quiet --upgrade --universal --generate-hashes --no-annotate --python-version 3.11 "$@"
}

# Packages of the container, those that build it, and, with the same versions of the first, those of CI and those that a
# test installs apart.
lock pyproject.toml --extra serve -o deploy/requirements.lock
lock deploy/build.in -o deploy/build.lock
lock pyproject.toml --extra bench --extra demo --extra test --extra dev --extra docs -c deploy/requirements.lock \
    -o deploy/ci.lock
lock deploy/outsiders.in -c deploy/requirements.lock -o deploy/outsiders.lock
