"""The data files of the annotation protocols; a package, so that an installation brings them along."""
