"""Clone, change, check and publish the corpus repository."""
