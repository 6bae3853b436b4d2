"""Describe the items of a corpus with gold labels, and test how their features differ between labels."""
