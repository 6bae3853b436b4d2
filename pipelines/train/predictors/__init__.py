"""Read fine-tuned models and predict with them: encoders, nearest neighbours, causal models."""
