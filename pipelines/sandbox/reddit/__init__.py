"""Generate the offline Reddit and its ground truth."""
