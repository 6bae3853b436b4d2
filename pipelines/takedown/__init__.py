"""Delete records wherever they are stored (takedowns), and record what was deleted."""
