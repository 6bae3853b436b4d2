"""Simulated vendors of language models."""
