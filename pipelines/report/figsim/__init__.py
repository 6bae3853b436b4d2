"""Build the sections and tables of the FigSIM report."""
