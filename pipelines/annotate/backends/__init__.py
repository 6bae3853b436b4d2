"""Connect annotation tools through one protocol (:class:`pipelines.annotate.backends.backend.Backend`)."""
