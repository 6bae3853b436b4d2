"""Predict labels with trained, prompted and registered models, and read predictions from external files."""
