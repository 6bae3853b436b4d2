"""Evaluate labels: metrics, their uncertainty, and the tables of both papers."""
