"""Run annotation rounds, validate the answers, and build gold labels from them."""
