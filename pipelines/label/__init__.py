"""Label posts and memes: labellers, votes, aggregation, silver labels and review queues."""
