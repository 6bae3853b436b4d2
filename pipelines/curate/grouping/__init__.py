"""Items of a corpus, their near-duplicates and the groups that no split separates."""
