"""The sections and tables of the FigSIM report."""
