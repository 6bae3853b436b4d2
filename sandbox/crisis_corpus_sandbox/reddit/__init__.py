"""Generate the offline Reddit (synthetic memes and posts) and its ground truth."""
