"""Read items, find near-duplicates, and form the groups of items that must stay in one split."""
