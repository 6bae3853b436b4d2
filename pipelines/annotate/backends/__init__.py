"""Connect annotation tools (Label Studio, files) through one protocol."""
