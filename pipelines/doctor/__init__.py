"""Examine a deployment: each check is a small function that returns what it found and the fix."""
