"""Examine a deployment for ``corpus doctor``: each check is a small function that returns what it found and a fix."""
