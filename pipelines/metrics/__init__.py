"""Compute metrics of label sets, their uncertainty, decision thresholds and calibration."""
