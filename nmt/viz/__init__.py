"""Figures and pages: attention maps, learning curves, position encodings."""
