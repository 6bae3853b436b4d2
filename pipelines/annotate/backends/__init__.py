"""Connect annotation tools (Label Studio, Argilla, files) through one protocol."""
