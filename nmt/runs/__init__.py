"""Run directories: checkpoints, what a run says of itself, the model card, pretrained models."""
