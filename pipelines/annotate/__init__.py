"""Run rounds of annotation by people, validate their answers, and build gold labels from them."""
