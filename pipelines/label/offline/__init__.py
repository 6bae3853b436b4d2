"""Label posts without a key or network, by three small classifiers fitted on the gold of validation (SPEC 2.3)."""
