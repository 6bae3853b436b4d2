"""OCR engines: one class of :mod:`pipelines.collect.read.engine` in each module."""
