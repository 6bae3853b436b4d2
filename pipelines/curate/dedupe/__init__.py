"""Detect near-duplicate images and posts."""
