"""Send prompts to language models: transport, prompts, budget and parsed responses."""
