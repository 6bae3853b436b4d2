"""Package trained models for the registry, with their card and serving code."""
