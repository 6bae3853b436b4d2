"""Define and validate parameters and settings."""
