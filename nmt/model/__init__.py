"""Encoder-decoder networks in PyTorch. They read and write token ids; this package does not handle
text."""
