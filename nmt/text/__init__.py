"""Text: normalization, words, sentences, spans, numbers, languages and tokenizers."""
