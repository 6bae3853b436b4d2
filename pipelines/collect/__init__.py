"""Collect a month of posts and images from a source."""
