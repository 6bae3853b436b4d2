"""Metrics of label sets, their uncertainty, thresholds and calibration."""
