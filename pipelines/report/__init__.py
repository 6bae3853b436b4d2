"""Render reports of a corpus's models beside the papers' numbers."""
