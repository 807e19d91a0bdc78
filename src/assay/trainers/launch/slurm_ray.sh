#!/usr/bin/env bash
#SBATCH --job-name={NAME}
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --output=slurm-%j.log
# Starts Ray on the nodes of a Slurm job and trains there: sbatch --nodes=N slurm.sh
set -euo pipefail
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
ADDRESS=$(srun --nodes=1 --ntasks=1 -w "$HEAD" hostname --ip-address | awk '{print $1}'):6379
srun --nodes=1 --ntasks=1 -w "$HEAD" ray start --head --port=6379 --block &
sleep 20
if [ "$SLURM_NNODES" -gt 1 ]; then
  srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$HEAD" \
    ray start --address="$ADDRESS" --block &
  sleep 20
fi
GPUS=${GPUS:-8} RAY_ADDRESS=$ADDRESS srun --overlap --nodes=1 --ntasks=1 -w "$HEAD" bash run.sh "$@"
