#!/usr/bin/env bash
# Trains on a Ray cluster that shares this folder: RAY_ADDRESS=http://HEAD:8265 NODES=2 GPUS=8 bash ray.sh
set -euo pipefail
cd "$(dirname "$0")"
exec ray job submit --address "${RAY_ADDRESS:-http://127.0.0.1:8265}" -- \
  env NODES="${NODES:-1}" GPUS="${GPUS:-8}" RAY_ADDRESS=auto bash "$PWD/run.sh" "$@"
