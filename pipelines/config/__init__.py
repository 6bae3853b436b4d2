"""Parameters, settings and their validation; imports no feature."""
