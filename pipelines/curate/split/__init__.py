"""Split a sample into train, validation and test without leaks."""
