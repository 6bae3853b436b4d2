"""Provide the column mappings of published datasets, read by :mod:`pipelines.annotate.imports.mapping`."""
