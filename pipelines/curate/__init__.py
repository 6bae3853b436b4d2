"""Turn the collected items into a deduplicated, sampled and split corpus."""
