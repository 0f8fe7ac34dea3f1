"""Visualization of attention maps, learning curves and position encodings."""
