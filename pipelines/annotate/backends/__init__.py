"""Annotation tools behind one protocol."""
