"""Generate the offline Reddit with its truth."""
