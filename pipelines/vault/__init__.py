"""Store keys, tombstones and split assignments of records."""
