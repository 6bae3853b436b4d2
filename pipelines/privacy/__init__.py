"""Who may be read, and who may not: identities, keys, tombstones, scrubbing."""
