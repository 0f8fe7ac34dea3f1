"""Networks: encoder-decoder models in PyTorch. They know nothing of text."""
