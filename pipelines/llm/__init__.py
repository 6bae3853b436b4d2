"""Ask language models: transport, prompts, budget and parsed responses."""
