"""Hold the papers' printed numbers and their discrepancies, for the tables and the report."""
