"""Send labelling prompts to language models: prompts, transport, limits, budget and parsed responses."""
