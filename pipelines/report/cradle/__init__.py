"""Build the sections and tables of the CRADLE report."""
