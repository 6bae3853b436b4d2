"""Back up everything that a corpus cannot make again, and restore it to another place."""
