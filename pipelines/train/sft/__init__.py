"""Fine-tune causal models on the JSON of the labels."""
