"""Measure how far annotators agree."""
