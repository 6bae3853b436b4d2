"""Annotation backends: one class of :mod:`pipelines.annotate.backend` in each module."""
