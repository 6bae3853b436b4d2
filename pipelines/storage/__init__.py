"""Typed tables, sealed columns and stored answers."""
