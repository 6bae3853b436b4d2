"""Examples of posts and memes as models see them."""
