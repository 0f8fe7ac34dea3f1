"""The bottom of the package: errors, registry, files, console, config and what they need."""
