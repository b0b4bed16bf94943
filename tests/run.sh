#!/usr/bin/env bash
# Makes an environment, installs everything and runs the tests:
#   bash tests/run.sh               the fast tests
#   bash tests/run.sh --all         all tests
#   bash tests/run.sh [--all] ...   pytest gets the other arguments: a folder, -k, -x
# KERAS_ATTN_VENV names an environment to make and keep; without it a temporary one is used.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$checkout/recipes/environment.sh"

all=false
if [ "${1:-}" = --all ]; then
    all=true
    shift
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
environment=${KERAS_ATTN_VENV:-$scratch/venv}
case $environment in /*) ;; *) environment=$PWD/$environment ;; esac
make_environment "$environment" "$checkout" dev

export KERAS_BACKEND=tensorflow
export TF_CPP_MIN_LOG_LEVEL=2
export TF_ENABLE_ONEDNN_OPTS=1
# A run leaves nothing in the checkout. Compiled modules stay with the environment: a new process
# that finds none compiles for 15 seconds, and so would all that start together.
export PYTHONPYCACHEPREFIX=$environment/pycache
unset PYTHONDONTWRITEBYTECODE
if [ ! -d "$PYTHONPYCACHEPREFIX" ]; then
    "$environment/bin/python" -c "import keras_attn.models, tensorflow_text, tf2onnx" 2>/dev/null ||
        true  # the tests say what is wrong
fi
export HYPOTHESIS_STORAGE_DIRECTORY=$scratch/hypothesis

cd "$checkout"
# Exit code 5 of pytest means that no test was chosen: it is the result if every run says so.
result=5
run_pytest() {
    local code=0
    "$environment/bin/python" -m pytest -o cache_dir="$scratch/pytest" --dist worksteal \
        --durations-path tests/durations.json "$@" || code=$?
    if [ "$code" -eq 0 ] && [ "$result" -eq 5 ]; then result=0; fi
    if [ "$code" -ne 0 ] && [ "$code" -ne 5 ]; then result=$code; fi
}
# Durations divide the slow tests alone, so those of the fast ones are not stored.
case "$all $*" in
    false*--store-durations*) echo "--store-durations needs --all" >&2; exit 2 ;;
esac
fast_arguments=()
for argument in "$@"; do
    [ "$argument" = --store-durations ] || fast_arguments+=("$argument")
done
run_pytest --numprocesses 2 -m "not slow" "${fast_arguments[@]}"
# Each process imports all files that it is given, and half of all have no slow test. For keras_attn
# tests/conftest.py passes the files of slow examples.
slow_files=()
has_path=
for argument in "$@"; do
    if [ -e "${argument%%::*}" ]; then has_path=true; fi
done
if [ -z "$has_path" ]; then
    mapfile -t slow_files < <(grep -rlE "slow|start_server" --include="test_*.py" tests | sort)
    slow_files+=(keras_attn)
fi
# Slow tests wait for servers and other processes, so three share two cores. Their processes are
# new, and so are those of the second half: TensorFlow keeps what it compiled until its process
# ends, 6 GB in each for all of them.
if [ "$all" = true ] && [ $# -gt 0 ]; then
    run_pytest --numprocesses 3 -m slow "${slow_files[@]}" "$@"
elif [ "$all" = true ]; then
    for half in 1 2; do
        run_pytest --numprocesses 3 -m slow --splits 2 --group "$half" "${slow_files[@]}"
    done
fi
exit "$result"
