"""What the papers print, and where it does not hold together; the tables and the report read it."""
