"""Run annotation rounds, from the drawn items to the adjudicated labels."""
