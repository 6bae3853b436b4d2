"""Provide the data files of the annotation protocols; a package, so that they are installed."""
