"""Annotate through plain folders."""
