"""Annotate on an Argilla server."""
