"""nmt: an end-to-end neural machine translation application for the command line."""

__version__ = "0.1.0"
