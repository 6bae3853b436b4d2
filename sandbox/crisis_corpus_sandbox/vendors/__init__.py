"""Simulate the vendors of language models (OpenAI, Anthropic, Google)."""
