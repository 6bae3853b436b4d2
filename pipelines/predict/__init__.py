"""Predict with trained, prompted, registered and external models."""
