#!/usr/bin/env bash
#SBATCH --job-name={NAME}
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --output=slurm-%j.log
# Trains on the nodes of a Slurm job: sbatch --nodes=N slurm.sh
set -euo pipefail
export MASTER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash run.sh "$@"
