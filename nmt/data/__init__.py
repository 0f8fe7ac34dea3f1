"""From raw corpora to batches: sources, cleaning, the prepared store, and the order of training."""
