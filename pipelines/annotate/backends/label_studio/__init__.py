"""Annotate on a Label Studio server."""
