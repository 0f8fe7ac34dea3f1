"""Names of models: the catalog, finding a model by name or path, and the import of published
models."""
