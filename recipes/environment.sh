# Sourced, not run: finds a Python, makes a virtual environment and installs this checkout into it.
# Nothing is written into the checkout, so it may be read-only and stays as clean as it was.

# find_python: prints the command of the first Python 3.11 to 3.13 that can make an environment.
find_python() {
  local candidate reason=""
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python; do
    command -v "$candidate" >/dev/null || continue
    if ! "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
      2>/dev/null; then
      reason="${reason:-"keras_attn needs Python 3.11, 3.12 or 3.13; $candidate is $(
        "$candidate" --version 2>&1 | head -n 1
      )"}"
    elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      reason="$candidate cannot make virtual environments: install its venv module (python3-venv)"
    else
      printf '%s\n' "$candidate"
      return
    fi
  done
  echo "${reason:-"keras_attn needs Python 3.11, 3.12 or 3.13; no python3 was found"}." \
    "PYTHON=/path/to/python names another one." >&2
  return 1
}

# make_environment FOLDER CHECKOUT EXTRAS: afterwards FOLDER/bin/python, in any working directory,
# imports keras_attn, recipes and serving of this checkout.
make_environment() {
  local environment=$1 checkout=$2 extras=$3 python
  mkdir -p "$environment/metadata" || return 1
  # pip comes last when an environment is made: without it, an earlier run was interrupted.
  if ! "$environment/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python) || return 1
    echo "Making an environment in $environment with $("$python" --version)"
    "$python" -m venv "$environment" || return 1
  fi
  # setuptools would otherwise leave keras_attn.egg-info and build/ in the checkout.
  printf '[egg_info]\negg_base = %s\n[build]\nbuild_base = %s\n' \
    "$environment/metadata" "$environment/metadata" >"$environment/metadata/setup.cfg"
  # Compiling all modules of all libraries takes longer than the few that are imported.
  echo "Installing keras_attn[$extras] (about a minute the first time)"
  DIST_EXTRA_CONFIG="$environment/metadata/setup.cfg" \
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
    --editable "$checkout[$extras]" || return 1
  # An installed package holds the two folders as keras_attn.recipes and keras_attn.serving only.
  printf '%s\n' "$checkout" >"$("$environment/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
}
