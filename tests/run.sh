#!/usr/bin/env bash
# Makes an environment, installs everything and runs the tests: bash tests/run.sh [pytest options].
# KERAS_ATTN_VENV names an environment to make and keep; without it a temporary one is used.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$checkout/recipes/environment.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
environment=${KERAS_ATTN_VENV:-$scratch/venv}
case $environment in /*) ;; *) environment=$PWD/$environment ;; esac
make_environment "$environment" "$checkout" all

export KERAS_BACKEND=tensorflow
export TF_CPP_MIN_LOG_LEVEL=2
export TF_ENABLE_ONEDNN_OPTS=1
# Caches go to the scratch folder: a run leaves nothing in the checkout.
export PYTHONPYCACHEPREFIX=$scratch/pycache
export HYPOTHESIS_STORAGE_DIRECTORY=$scratch/hypothesis

cd "$checkout"
"$environment/bin/python" -m pytest -o cache_dir="$scratch/pytest" --numprocesses 2 "$@"
