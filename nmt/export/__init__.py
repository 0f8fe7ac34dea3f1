"""Models for other engines. Each is one file with one function, `export(loaded, folder)`."""
