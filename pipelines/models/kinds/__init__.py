"""The kinds of models, one package each; see :mod:`pipelines.models.kind`."""
