"""Compute metrics of label sets with their uncertainty, decision thresholds, alerts, and calibrated probabilities."""
