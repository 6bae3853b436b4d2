"""The registry: models that load safely, say what they are for, and change only by a recorded decision."""
