"""Hold the data files of the label schemes in a package, so that they are installed with it."""
