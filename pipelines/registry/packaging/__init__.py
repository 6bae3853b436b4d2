"""Package trained models for the MLflow registry, with their model card and serving code."""
