"""Keep keys and content: the vault, sealed values, typed tables, answers."""
