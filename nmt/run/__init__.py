"""Run directories and checkpoints: reading and writing the files of a run."""
