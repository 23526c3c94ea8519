#!/usr/bin/env bash
# Builds the images of deploy/images/Dockerfile with buildah or docker, whichever is there: build_images.sh agent api full
# PYTHON_IMAGE: the base, best with its digest (python:3.13-slim@sha256:…).  IMAGE, VERSION: name and tag.  The tag of a
# target is VERSION-TARGET, that of `full` is VERSION.  NUMBA_CPU_NAME: the oldest processor that the kernels must run on.
# BUILD_FLAGS: further options of the builder, such as `--isolation chroot` for buildah without rights.
set -euo pipefail
cd "$(dirname "$0")/.."
image="${IMAGE:-fleetwright}"
version="${VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)}"
arguments=(--file deploy/images/Dockerfile)
[ -z "${PYTHON_IMAGE:-}" ] || arguments+=(--build-arg "PYTHON_IMAGE=$PYTHON_IMAGE")
[ -z "${NUMBA_CPU_NAME:-}" ] || arguments+=(--build-arg "NUMBA_CPU_NAME=$NUMBA_CPU_NAME")
# shellcheck disable=SC2206 - several options in one variable
arguments+=(${BUILD_FLAGS:-})

if command -v buildah >/dev/null; then
  build=(buildah build --format oci --layers --ignorefile deploy/images/Dockerfile.dockerignore)
elif command -v docker >/dev/null && docker version >/dev/null 2>&1; then
  build=(docker build)
else
  echo "build_images.sh: neither buildah nor a Docker daemon is here (Debian: apt install buildah)" >&2
  exit 1
fi
for target in "$@"; do
  tag="$image:$version-$target"
  [ "$target" != full ] || tag="$image:$version"
  echo "==> $tag"
  "${build[@]}" "${arguments[@]}" --target "$target" --tag "$tag" .
done
