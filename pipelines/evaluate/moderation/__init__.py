"""Audit moderation systems: what they flag, by severity and figurative language."""
