"""Delete records everywhere they are stored, and prove it."""
