"""Label posts by their nearest neighbours."""
