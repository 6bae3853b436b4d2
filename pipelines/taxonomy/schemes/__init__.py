"""The data files of the label schemes; a package, so that an installation brings them along."""
