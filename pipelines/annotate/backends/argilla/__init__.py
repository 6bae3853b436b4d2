"""A backend on an Argilla server."""
