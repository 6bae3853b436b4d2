"""Read items, find their near-duplicates, and form the groups that no split separates."""
