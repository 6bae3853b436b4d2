"""A backend on a Label Studio server."""
