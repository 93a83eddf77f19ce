"""Training: corpus preparation, the training step and loop, checkpoints, validation."""
