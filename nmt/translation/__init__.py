"""Translation of lines: segments, the translator, alignment, confidence, the guard and the
glossary."""
