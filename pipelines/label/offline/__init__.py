"""Label posts without a key or network, by three small classifiers fitted on the dev gold (SPEC 2.3)."""
