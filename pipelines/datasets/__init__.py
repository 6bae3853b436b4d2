"""Load posts and memes as examples for models."""
