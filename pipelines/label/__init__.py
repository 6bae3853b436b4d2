"""Labelling: posts, prompts, labellers, votes and what is made of them."""
