"""Checks of parallel corpora for problems that harm training."""
