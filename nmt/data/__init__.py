"""Data pipeline: corpora, cleaning, tokenization, the prepared store and batching."""
