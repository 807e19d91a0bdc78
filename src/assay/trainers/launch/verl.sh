#!/usr/bin/env bash
# Trains on this machine, or on the Ray cluster of RAY_ADDRESS.
# Made by `assay export --to {TOOL}`. PYTHON has {PACKAGE}; ASSAY_PYTHON, where it is another, Assay.
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python}
{CHECK}HERE=$PWD
NODES=${NODES:-${SLURM_NNODES:-1}}
A=actor_rollout_ref
export VERL_FILE_LOGGER_PATH=$HERE/output/metrics.jsonl
mkdir -p output
# verl begins its log anew where it is resumed.
[ ! -f output/metrics.jsonl ] || mv output/metrics.jsonl "output/metrics-$(date +%s%N).jsonl"
if [ -z "${RAY_ADDRESS:-}" ]; then
  # Ray leaves its sessions behind: they get a folder of this process, and those of ended ones go.
  for old in /tmp/assay-verl-*; do
    [ ! -e "$old" ] || kill -0 "${old##*-}" 2> /dev/null || rm -rf "$old"
  done
  export RAY_TMPDIR=/tmp/assay-verl-$$
  mkdir -m 700 "$RAY_TMPDIR"
fi
FILES=(data.train_files="$HERE/data/train.parquet" data.val_files="$HERE/data/train.parquet" {MODEL}
  reward.reward_manager.module.path="$HERE/verl_reward.py"
  trainer.default_local_dir="$HERE/output" trainer.rollout_data_dir="$HERE/output/rollouts")
if [ -n "${RAY_ADDRESS:-}" ] || { command -v nvidia-smi > /dev/null && nvidia-smi > /dev/null; }; then
  MORE=(trainer.nnodes="$NODES" trainer.n_gpus_per_node="${GPUS:-$(nvidia-smi -L | wc -l)}")
else
  export VERL_USE_EXTERNAL_MODULES=verl_on_cpu VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda
  export PYTHONPATH="$HERE${PYTHONPATH:+:$PYTHONPATH}"
  MORE=(trainer.device=cpu trainer.nnodes=1 trainer.n_gpus_per_node=1
    $A.rollout.name=hf $A.rollout.free_cache_engine=False $A.rollout.agent.num_workers=1
    $A.model.use_remove_padding=False +$A.model.override_config.attn_implementation=sdpa
    $A.actor.strategy=fsdp2 $A.actor.use_torch_compile=False
    $A.actor.fsdp_config.mixed_precision.param_dtype=fp32
    +$A.ref.fsdp_config.mixed_precision.param_dtype=fp32
    reward.num_workers=1 data.dataloader_num_workers=0
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1
    +ray_kwargs.ray_init.address=local +ray_kwargs.ray_init.include_dashboard=False
    ray_kwargs.ray_init.num_cpus=16 +ray_kwargs.ray_init.num_gpus=4)  # logical ones
fi
exec "$PYTHON" -m verl.trainer.main_ppo --config-path "$HERE" --config-name config \
  "${FILES[@]}" "${MORE[@]}" "$@"
