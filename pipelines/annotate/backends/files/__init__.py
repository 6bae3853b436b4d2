"""A backend of plain folders."""
