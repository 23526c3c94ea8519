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
# The images: build tools, then one lock for each target of deploy/images/Dockerfile.
image=("$uv" pip compile "${flags[@]}" --constraint requirements-dev.lock)
api_extras=(--extra postgres --extra kubernetes --extra oidc --extra nvsentinel --extra otel)
"${image[@]}" --group pyproject.toml:build -o deploy/images/build.lock "$@"
"${image[@]}" --group pyproject.toml:agent-image -o deploy/images/agent.lock "$@"
"${image[@]}" "${api_extras[@]}" pyproject.toml -o deploy/images/api.lock "$@"
"${image[@]}" --all-extras pyproject.toml -o deploy/images/full.lock "$@"
