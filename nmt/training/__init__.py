"""Training: updates, validation, checkpoints, and stopping at any time without losing work."""
