#!/usr/bin/env bash
# From nothing to a served model: bash recipes/quickstart.sh [OUT] [options of keras-attn translate]
#
# Makes an environment, installs, trains a Transformer to read dates written in many languages,
# evaluates and exports it, serves the export and asks the server to translate five lines that it
# never saw. Everything lands in OUT (default: ./quickstart): .venv, card.json, curve.png, export/.
# Run again with the same OUT it resumes, or serves the model that is already there.
set -euo pipefail

say() { printf '\n== %s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." >/dev/null && pwd)
source "$checkout/recipes/environment.sh"

out=${1:-quickstart}
[ $# -eq 0 ] || shift
mkdir -p "$out" || fail "Cannot make the folder OUT. Received: $out"
out=$(cd "$out" >/dev/null && pwd)
python=$out/.venv/bin/python
log=$out/server.log
server=

stop_server() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true
  server=
}
trap stop_server EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export KERAS_BACKEND=tensorflow
# A folder named recipes or serving in the current directory must not hide ours.
export PYTHONSAFEPATH=1
# Modules are compiled once, beside the environment.
export PYTHONPYCACHEPREFIX=$out/.venv/pycache
unset PYTHONDONTWRITEBYTECODE
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}

say "1. Environment"
make_environment "$out/.venv" "$checkout" recipes,serving

if [ -f "$out/card.json" ] && [ -f "$out/export/1/saved_model.pb" ]; then
  say "2. Train: $out already holds a trained model; remove it to train anew"
else
  say "2. Train, evaluate, export"
  "$python" -m keras_attn translate --out "$out" "$@"
fi

say "3. Serve $out/export"
read -r port grpc_port < <("$python" - <<'PYTHON'
import socket

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))
PYTHON
)
"$python" -m keras_attn serve --rest_api_port="$port" --port="$grpc_port" \
  --model_name=dates --model_base_path="$out/export" >"$log" 2>&1 &
server=$!

url=http://127.0.0.1:$port/v1/models/dates
available() {
  "$python" - "$url" <<'PYTHON'
import json
import sys
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
        versions = json.load(answer)["model_version_status"]
except OSError:
    sys.exit(1)
sys.exit(not any(version["state"] == "AVAILABLE" for version in versions))
PYTHON
}

deadline=$((SECONDS + 120))
until available; do
  kill -0 "$server" 2>/dev/null || { tail -n 20 "$log" >&2; fail "The server stopped; see $log."; }
  [ $SECONDS -lt $deadline ] || fail "The server was not ready after two minutes; see $log."
  sleep 0.5
done
echo "Available at $url"

say "4. Five lines it never saw"
# The recipe leaves test lines, which no training step has read, one to a row.
lines=()
while IFS= read -r line && [ ${#lines[@]} -lt 5 ]; do
  lines+=("$line")
done <"$out/unseen.txt"
answers=$("$python" -m keras_attn ask --url "$url" -- "${lines[@]}")
paste -d '\n' <(printf '%s\n' "${lines[@]}") <(sed 's/^/    -> /' <<<"$answers")

say "Done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "Export: $out/export"
echo "Card:   $out/card.json"
printf 'Serve it again: %q -m keras_attn serve --rest_api_port=8501 --model_name=dates' "$python"
printf ' --model_base_path=%q\n' "$out/export"
