"""Request labels of memes and remarks on them."""
