"""Synthetic corpora: text that a teacher translates, for back-translation and sequence-level
distillation."""
