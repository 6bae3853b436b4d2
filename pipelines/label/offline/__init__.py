"""Labellers that need no key and no network: three small classifiers fitted on the dev gold (SPEC 2.3)."""
