"""Fit models, predict with them, and collect the answers of models that are not fitted here."""
