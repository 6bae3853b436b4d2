"""Store the encryption keys, tombstones (marks of deleted records) and split assignments of records."""
