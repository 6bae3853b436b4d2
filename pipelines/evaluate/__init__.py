"""Evaluate predictions on gold, compare models, analyse items and moderation systems, and report beside the papers."""
