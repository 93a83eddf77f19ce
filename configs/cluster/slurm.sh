#!/bin/sh
# A Slurm array: each task translates one of 10 parts of a file.
#   split -n l/10 -d -a 3 new.de new.de.
#   sbatch configs/cluster/slurm.sh runs/mine new.de new.en
# To resume, submit it again: finished parts stay as they are. When all are done:
#   cat new.en.??? > new.en
# For another number of parts, change it in both places: split -n l/100 and --array=0-99.
#SBATCH --job-name=nmt-translate
#SBATCH --array=0-9
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --requeue
set -eu
part=$(printf %03d "$SLURM_ARRAY_TASK_ID")
test -e "$3.$part" ||
    exec srun nmt translate --resume -m "$1" -i "$2.$part" -o "$3.$part" --threads "$SLURM_CPUS_PER_TASK"
