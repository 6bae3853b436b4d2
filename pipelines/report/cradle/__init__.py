"""The sections and tables of the CRADLE report."""
