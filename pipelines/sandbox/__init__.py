"""Provide an offline Reddit and its ground truth for the demo and the tests."""
