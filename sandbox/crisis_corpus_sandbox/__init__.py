"""Provide an offline Reddit, its ground truth and simulated model vendors for the demo and the tests."""
