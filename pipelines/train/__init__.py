"""Models of the benchmark: what they see, how they are fitted, what they predict."""
