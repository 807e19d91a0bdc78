#!/usr/bin/env bash
# Trains on this machine, or as node RANK of NODES that MASTER leads.
# Made by `assay export --to {TOOL}`. PYTHON has {PACKAGE}; ASSAY_PYTHON, where it is another, Assay.
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python}
{CHECK}NODES=${NODES:-${SLURM_NNODES:-1}}
RANK=${RANK:-${SLURM_NODEID:-0}}
MASTER=${MASTER:-127.0.0.1}
MORE=("$@")
if command -v nvidia-smi > /dev/null && nvidia-smi > /dev/null; then
  EACH=${EACH:-$(nvidia-smi -L | wc -l)}
  MORE=(--bf16 true "${MORE[@]}")
else
  EACH=${EACH:-1}
fi
WORLD=$((NODES * EACH))
BATCH={BATCH}  # sequences of an optimizer step
AT_ONCE={TOGETHER}
while [ $AT_ONCE -gt 1 ] && [ $((BATCH % (WORLD * AT_ONCE))) -ne 0 ]; do AT_ONCE=$((AT_ONCE - 1)); done
if [ $((BATCH % (WORLD * AT_ONCE))) -ne 0 ]; then
  echo "a batch of $BATCH sequences cannot be divided among $WORLD processes: set EACH" >&2
  exit 2
fi
PASSES=$((BATCH / (WORLD * AT_ONCE)))
MORE=(--per_device_train_batch_size $AT_ONCE --gradient_accumulation_steps $PASSES {PER_ROUND} "${MORE[@]}")
