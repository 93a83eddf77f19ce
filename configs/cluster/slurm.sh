#!/bin/sh
# A Slurm array: each task translates one of 10 shards.
#   sbatch configs/cluster/slurm.sh runs/mine new.de new.en
# To resume, submit it again: finished shards end at once. When all are done:
#   nmt merge new.en
# For another number of shards, change it in both places: --array=0-99 and /100.
#SBATCH --job-name=nmt-translate
#SBATCH --array=0-9
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --requeue
set -eu
exec srun nmt translate -m "$1" -i "$2" -o "$3" --shard "$SLURM_ARRAY_TASK_ID/10" --threads "$SLURM_CPUS_PER_TASK"
