"""Errors, parameters, label schemes, processes and progress: what every room needs."""
