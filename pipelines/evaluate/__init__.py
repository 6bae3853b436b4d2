"""Evaluate predictions on gold: metrics with intervals, paired comparisons of models, and error analysis."""
