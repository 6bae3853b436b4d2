"""Aggregate the votes of an ensemble into silver labels."""
