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
run_pytest() {
    "$environment/bin/python" -m pytest -o cache_dir="$scratch/pytest" --numprocesses "$@"
}
if [ $# -gt 0 ]; then
    run_pytest 2 "$@"
    exit
fi
# TensorFlow keeps what it has compiled until its process ends, some gigabytes after so many tests:
# each part has processes of its own.
failed=0
run_pytest 2 keras_attn tests/[a-l]*/ || failed=$?
run_pytest 2 tests/[m-r]*/ || failed=$?
# Of these many wait, for servers and for other processes.
run_pytest 3 tests/[s-z]*/ tests/test_*.py || failed=$?
exit "$failed"
