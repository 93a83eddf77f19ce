#!/bin/sh
# Train on two machines; torchrun starts a rank per GPU. The config, the corpus and the run are on shared storage.
#   sbatch configs/cluster/train.slurm.sh mine.yaml
# To resume, submit it again. Without GPUs: delete --gpus-per-node, set --nproc-per-node 1.
#SBATCH --job-name=nmt-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --requeue
set -eu
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=1 NMT_CACHE="$PWD/cache"
exec srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node gpu --max-restarts 3 \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:29400" \
    -m nmt train "$@"
