#!/usr/bin/env bash
# Makes the lock files: the development one first, so that the service's and the image's are subsets of it.
# Hashes only: no index addresses, so the same files serve behind any mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
uv="${UV:-.venv/bin/uv}"
flags=(--quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate)
"$uv" pip compile "${flags[@]}" --all-extras --group dev --group docs pyproject.toml -o requirements-dev.lock "$@"
"$uv" pip compile "${flags[@]}" --group build --constraint requirements-dev.lock pyproject.toml -o requirements.lock "$@"
"$uv" pip compile "${flags[@]}" --group pyproject.toml:amd -o requirements-amd.lock "$@"
"$uv" pip compile "${flags[@]}" --all-extras --group build --constraint requirements-dev.lock pyproject.toml \
  -o deploy/images/requirements.lock "$@"
