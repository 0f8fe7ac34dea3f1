"""Run directories: checkpoints, run information, model cards and pretrained models."""
