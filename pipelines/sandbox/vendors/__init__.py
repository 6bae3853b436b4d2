"""Simulate vendors of language models."""
