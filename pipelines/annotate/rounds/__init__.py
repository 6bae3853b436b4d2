"""Run rounds of annotation by people, from the drawn items to the adjudicated labels."""
