"""From a source to a month of posts and images."""
